"""Carries out one lease on this machine: takes the step that `steps` names, until the lease is over.

It signs what the contracts need of the provider and says how the program stands. A restart of the agent stops nothing:
the container runs on, and a new worker goes on with it as soon as a gateway has said where the lease stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import assert_never

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.node.leases.access.link_proxies import LinkProxies
from sparewatt.node.leases.chain_check import ChainDiffers
from sparewatt.node.leases.placed.lease_files import LeaseFiles, StoredLease
from sparewatt.node.leases.placed.machine_room import MachineRoom, NoRoom
from sparewatt.node.leases.placed.steps import LeaseSituation, LeaseStep, StartFailure, is_outdated, next_step
from sparewatt.node.leases.placed.task_check import (
    CheckedTask,
    joins_network,
    label_of,
    missing_secrets,
    open_secrets,
    plan_of,
)
from sparewatt.node.leases.placed.updates import AcceptsUpdate, never_accepts
from sparewatt.node.leases.runtime.model import (
    ContainerMissing,
    ContainerState,
    ImageUnavailable,
    LeaseContainer,
    LeaseLabel,
    LeaseRuntimeError,
    MachineUnable,
    RestartRule,
    StartRefused,
)
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.protocol.canonical_json import canonical_json
from sparewatt.protocol.contracts.lease_acts import ActContracts, sign_act
from sparewatt.protocol.contracts.reasons import HandOverReason
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_tasks import (
    TROUBLE_CHARS_MAX,
    ActKind,
    LeaseAct,
    LeaseDetailsDocument,
    LeaseReport,
    LeaseTask,
    ProgramPhase,
    ProposedUpdate,
    TaskState,
)
from sparewatt.protocol.signing import SigningKey

_log = Logger("sparewatt.node")
REPEAT_S = 2.0
"""Between two tries of what was said or failed, while the chain waits for it."""
LOOK_S = 15.0
"""Between two looks at a lease that runs."""
REPORT_S = 30.0
RETRY_S_MIN, RETRY_S_MAX = 5.0, 300.0
"""Between two tries to start what does not start, twice as long each time."""
REPLACE_GRACE_S = 10.0
"""For a program to end when an update replaces it."""
ACT_LIFE_S = 600
"""How long a signed act without a deadline of the lease's own is good."""
_PLACED = (TaskState.PENDING, TaskState.ACTIVE, TaskState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTools:
    """What every lease of this node shares."""

    runtime: LeaseRuntime
    key: SigningKey
    room: MachineRoom
    files: LeaseFiles
    clock: Clock
    say: Callable[[LeaseAct | LeaseReport], None]
    """To every gateway process that the node has a link to."""
    notify: Callable[[str], None]
    proxies: LinkProxies
    """To the gateway, of leases that may reach it."""
    may_claim: Callable[[], bool]
    """Whether the owner offers leases, and has not paused the node."""
    accepts_update: AcceptsUpdate = never_accepts
    """Whether the owner's rules let a running lease go on under other terms."""
    placed_term: Callable[[bytes, MarketFacts], Awaitable[int | None]] | None = None
    """By the owner's own chain: the term at which this node's provider has a lease. Raises ChainDiffers. None: there is
    no such chain, and the gateway's word counts."""


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseWorker:
    tools: LeaseTools
    checked: CheckedTask
    facts: MarketFacts
    provider: str
    is_told: bool
    """Whether a gateway has said where the lease stands since the agent started."""
    gpu_ids: tuple[str, ...] = ()
    is_done: bool = field(default=False, init=False)
    phase: ProgramPhase = field(default=ProgramPhase.WAITING, init=False)
    container: LeaseContainer | None = field(default=None, init=False)
    trouble: str | None = field(default=None, init=False)
    _phase_since_s: float = field(default=0.0, init=False)
    _failure: StartFailure | None = field(default=None, init=False)
    _retry_s: float = field(default=RETRY_S_MIN, init=False)
    _starting: asyncio.Task[LeaseContainer] | None = field(default=None, init=False)
    _reported: tuple[LeaseReport, float] | None = field(default=None, init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _image_digest: str | None = field(default=None, init=False)
    _kept: LeaseLabel | None = field(default=None, init=False)
    """What the runtime was told to keep running, since this agent started."""

    @property
    def task(self) -> LeaseTask:
        return self.checked.task

    @property
    def label(self) -> LeaseLabel:
        return label_of(self.task, node=self.tools.key.address)

    def tell(self, checked: CheckedTask, facts: MarketFacts) -> None:
        """What a gateway says now. An older term or block changes nothing."""
        old = self.task
        if self.is_told and (checked.task.term, checked.task.block_number) < (old.term, old.block_number):
            return
        if checked.task.sealed != old.sealed or checked.task.updated != old.updated:
            self._failure = None
        self.checked, self.facts, self.is_told = checked, facts, True
        self._woken.set()

    @property
    def is_placed(self) -> bool:
        """Whether the lease is this node's, as far as it knows."""
        return self.task.state in _PLACED

    def end(self, facts: MarketFacts) -> None:
        """The chain has it with this node no more."""
        over = msgspec.structs.replace(self.task, state=TaskState.OVER, block_number=facts.block_number)
        self.tell(replace(self.checked, task=over), facts)

    async def run(self) -> None:
        try:
            while not self.is_done:
                self._woken.clear()
                timer = self.tools.clock.call_later(await self._look(), self._woken.set)
                if not self.is_done:
                    await self._woken.wait()
                timer.cancel()
        finally:
            await self._give_up_start()

    async def _look(self) -> float:
        """One step. Returns how long to wait for news."""
        try:
            self.container = await self.tools.runtime.container(self.label)
            await self._collect_start()
            await self._adopt()
            await self._keep_proxy()
            step = next_step(self._situation())
            await self._take(step)
            self._answer_update()
        except LeaseRuntimeError as error:  # not seeing is not an end: the next look tells more
            self._note(self.phase, trouble=f"its container cannot be looked after: {error}")
            return REPEAT_S
        except NoRoom as error:
            self._note(self.phase, trouble=str(error))
            return REPEAT_S
        except (OSError, StartupError) as error:
            _log.warning("lease_not_stored", order=self.task.order_id, why=str(error)[:200])
            return REPEAT_S
        self._report()
        is_waiting = self.task.state in (TaskState.PENDING, TaskState.VACANT) or step is LeaseStep.REMOVE
        is_waiting = is_waiting or self.task.proposed is not None
        return REPEAT_S if is_waiting or self._starting is not None else LOOK_S

    def _situation(self) -> LeaseSituation:
        room, checked = self.tools.room, self.checked
        return LeaseSituation(
            task=self.task if self.is_told else None,
            container=self.container,
            missing_secrets=missing_secrets(checked),
            is_fetching=self._is_fetching,
            failure=self._failure,
            content=checked.content_hash if checked.content is not None else "",
            may_claim=self.tools.may_claim() and room.has_room(checked.key, checked.capacity),
            unix_s=self.tools.clock.unix_s(),
        )

    async def _take(self, step: LeaseStep) -> None:
        match step:
            case LeaseStep.WAIT:
                self._note_running()
            case LeaseStep.START:
                await self._begin_start()
            case LeaseStep.PAUSE:
                await self.tools.runtime.pause(self.label)
                self._note(ProgramPhase.PAUSED)
            case LeaseStep.UNPAUSE:
                await self.tools.runtime.unpause(self.label)
                self._woken.set()
            case LeaseStep.CONFIRM:
                self._note_running()
                self._confirm(started=True, why=None)
            case LeaseStep.CONFIRM_HELD:
                why, phase = self._held_by()
                self._note(phase, trouble=why)
                await self._hold()
                self._confirm(started=False, why=why)
            case LeaseStep.CLAIM:
                await self._claim()
            case LeaseStep.REMOVE:
                await self._remove()
            case _:
                assert_never(step)

    # starting

    async def _hold(self) -> None:
        """Raises NoRoom, OSError or StartupError."""
        key, capacity = self.checked.key, self.checked.capacity
        self.gpu_ids = await self.tools.room.take(key, capacity, term=self.task.term)
        stored = StoredLease(task=self.task, facts=self.facts, gpu_ids=self.gpu_ids)
        await asyncio.to_thread(self.tools.files.write, stored)

    async def _begin_start(self) -> None:
        if self._starting is None:
            self._note(ProgramPhase.PULLING)
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(lambda _: self._woken.set())

    async def _start(self) -> LeaseContainer:
        runtime, checked = self.tools.runtime, self.checked
        await self._hold()
        content = checked.content
        if content is None:
            raise ImageUnavailable("the order's document names nothing that can run")
        secrets = open_secrets(checked, key=self.tools.key, provider=self.provider)
        self._image_digest = await runtime.pull(content.image, self._on_pull)
        self._note(ProgramPhase.STARTING)
        plan = plan_of(
            checked,
            content,
            node=self.tools.key.address,
            secrets=secrets,
            gpu_ids=self.gpu_ids,
            gateway_url=self.tools.proxies.gateway.url,
        )
        found = await runtime.container(plan.label)
        if found is not None and is_outdated(found, plan.content):
            _log.info("lease_program_replaced", order=self.task.order_id)
            await runtime.stop(plan.label, grace_s=REPLACE_GRACE_S)
            await runtime.remove(plan.label)
        return await runtime.start(plan)

    def _on_pull(self, line: str) -> None:
        self.trouble = line[:TROUBLE_CHARS_MAX]

    async def _collect_start(self) -> None:
        """What became of a start. A lease that is over, or paused, gives it up."""
        starting = self._starting
        if starting is None:
            return
        if self.task.state not in (TaskState.PENDING, TaskState.ACTIVE):
            await self._give_up_start()
            return
        if not starting.done():
            return
        self._starting = None
        try:
            self.container = starting.result()
        except ValueError as error:  # a secret that was sealed to another node
            self._fail(f"a secret cannot be opened: {error}", is_renters=True)
        except ImageUnavailable as error:
            self._fail(str(error), is_renters=True)
        except MachineUnable as error:
            self._fail(str(error), is_renters=False)
        except StartRefused as error:
            # The engine runs plain containers, which was tried; what remains are the cards, or the program itself.
            self._fail(str(error), is_renters=not self.gpu_ids)
        except (LeaseRuntimeError, NoRoom, OSError, StartupError) as error:
            self._fail(str(error), is_renters=False)
        else:
            self._failure, self._retry_s, self.trouble = None, RETRY_S_MIN, None
            self._kept = self.label

    async def _adopt(self) -> None:
        """Of an agent that starts anew: once the lease is known to be this node's, its program is kept as before."""
        content, found = self.checked.content, self.container
        is_here = found is not None and found.state is not ContainerState.CREATED
        is_ours = self.is_told and self.task.state in (TaskState.PENDING, TaskState.ACTIVE)
        if not is_here or not is_ours or content is None or self._kept == self.label or self._starting is not None:
            return
        with suppress(ContainerMissing):  # it has just gone: then it is started
            restart, disk_mib = RestartRule(content.restart), self.checked.specification.disk_mib
            await self.tools.runtime.adopt(self.label, restart=restart, disk_mib=disk_mib)
            self._kept = self.label

    async def _keep_proxy(self) -> None:
        """While a lease that may reach the gateway runs here; also for one that was found after a restart."""
        found = self.container
        is_ours = self.is_told and self.task.state in (TaskState.PENDING, TaskState.ACTIVE)
        if is_ours and found is not None and joins_network(self.checked.content):
            await self.tools.proxies.keep(found)

    def _fail(self, why: str, *, is_renters: bool) -> None:
        retry_unix_s = self.tools.clock.unix_s() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
        self._failure = StartFailure(why=why[:TROUBLE_CHARS_MAX], is_renters=is_renters, retry_unix_s=retry_unix_s)
        self._note(ProgramPhase.FAILED, trouble=why)
        _log.warning("lease_not_started", order=self.task.order_id, is_renters=is_renters)

    async def _give_up_start(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    # what the node's key signs

    def _confirm(self, *, started: bool, why: str | None) -> None:
        content = self.checked.content
        details = LeaseDetailsDocument(
            started=started,
            why=None if why is None else why[:TROUBLE_CHARS_MAX],
            image_digest=self._image_digest,
            ports=content.ports if content is not None else (),
        )
        text = canonical_json(msgspec.to_builtins(details))
        self._sign(ActKind.CONFIRM, nonce=self.task.acts_nonce, deadline=self.task.confirm_by, details=text)

    @property
    def _is_fetching(self) -> bool:
        return self._starting is not None and self.phase is ProgramPhase.PULLING

    def _held_by(self) -> tuple[str, ProgramPhase]:
        """What keeps the renter's program from running."""
        if self._failure is not None:
            return self._failure.why, ProgramPhase.FAILED
        if self._is_fetching:
            return "its image is still being fetched", ProgramPhase.PULLING
        names = ", ".join(missing_secrets(self.checked))
        return f"waiting for the secrets {names}"[:TROUBLE_CHARS_MAX], ProgramPhase.WAITING

    async def _claim(self) -> None:
        """As a stand-in: the machine's part is kept from here on, so that the claim can be kept."""
        try:
            self.tools.room.keep(self.checked.key, self.checked.capacity)
        except NoRoom:
            return
        self._sign(ActKind.ACCEPT, term=self.task.term + 1)

    def _answer_update(self) -> None:
        """Accept what the renter proposes, if the owner's rules do; again until the chain has it."""
        update = self.task.proposed
        if update is None or not self.is_told or self.task.state is not TaskState.ACTIVE:
            return
        if self.tools.accepts_update(self.checked, update):
            nonce, deadline = self.task.moves_nonce, self._deadline()
            self._sign(ActKind.ACCEPT_UPDATE, nonce=nonce, deadline=deadline, update=update)

    def give_notice(self) -> None:
        """The owner wants the machine back after the agreed notice."""
        self._sign(ActKind.NOTICE, nonce=self.task.acts_nonce, deadline=self._deadline())

    def close_after_notice(self) -> None:
        self._sign(ActKind.CLOSE, nonce=self.task.acts_nonce, deadline=self._deadline())

    def resign(self) -> None:
        """At once: without a notice that is over it costs the bond (`HandOverReason.RESIGNED`)."""
        _log.info("lease_resigned", order=self.task.order_id, reason=HandOverReason.RESIGNED.name)
        self._sign(ActKind.RESIGN)

    def _deadline(self) -> int:
        return int(self.tools.clock.unix_s()) + ACT_LIFE_S

    def _sign(
        self,
        kind: ActKind,
        *,
        term: int | None = None,
        nonce: int = 0,
        deadline: int = 0,
        details: str = "",
        update: ProposedUpdate | None = None,
    ) -> None:
        act = LeaseAct(
            kind=kind,
            order_id=self.task.order_id,
            term=self.task.term if term is None else term,
            signature="",
            nonce=nonce,
            deadline=deadline,
            details=details,
            seq=update.seq if update is not None else 0,
        )
        contracts = ActContracts(self.facts.chain_id, self.facts.deployment_order, self.task.lease_moves)
        self.tools.say(sign_act(act, key=self.tools.key, contracts=contracts, update=update))

    # the end

    async def _remove(self) -> None:
        """With every container of this lease that this node has, also of earlier terms."""
        if not await self._has_ended():
            return
        own = self.tools.key.address
        for each in await self.tools.runtime.containers():
            if each.label.lease_id == self.task.order_id and each.label.node == own:
                await self.tools.runtime.remove(each.label)
        await self.tools.proxies.drop(self.task.order_id)
        self.container = None
        self._note(ProgramPhase.STOPPED)
        await self.tools.room.give_back(self.checked.key)
        await asyncio.to_thread(self.tools.files.remove, self.task.order_id)
        if self.task.state is TaskState.OVER:
            self.is_done = True
            self.tools.notify(f"removed what ran for the lease {self.task.order_id[:10]}…")

    async def _has_ended(self) -> bool:
        """Whether a chain of the owner's choice says so, too. While it does not answer, nothing is removed."""
        if self.tools.placed_term is None:
            return True
        try:
            term = await self.tools.placed_term(self.checked.key[0], self.facts)
        except ChainDiffers as differs:
            self._note(self.phase, trouble=f"the lease is said to be over, but {differs}")
            return False
        if term is not None:
            self._note(self.phase, trouble="the gateway says that the lease is over; the owner's chain has it here")
        return term is None

    # what is shown

    def _note_running(self) -> None:
        container = self.container
        if container is None:
            return
        phases = {
            ContainerState.RUNNING: ProgramPhase.RUNNING,
            ContainerState.PAUSED: ProgramPhase.PAUSED,
            ContainerState.EXITED: ProgramPhase.EXITED,
        }
        trouble = "its disk is full, so it is paused" if container.is_disk_full else None
        if container.is_out_of_memory:
            trouble = "its program was ended for using more memory than ordered"
        if self._failure is not None and is_outdated(container, self.checked.content_hash):
            trouble = f"it runs as before its update, which cannot be started: {self._failure.why}"
        self._note(phases.get(container.state, self.phase), trouble=trouble)

    def _note(self, phase: ProgramPhase, *, trouble: str | None = None) -> None:
        if phase is not self.phase:
            self._phase_since_s = self.tools.clock.unix_s()
        self.phase, self.trouble = phase, None if trouble is None else trouble[:TROUBLE_CHARS_MAX]

    def _report(self) -> None:
        """If something changed, and from time to time."""
        if self.task.state not in _PLACED:
            return
        container = self.container
        report = LeaseReport(
            order_id=self.task.order_id,
            term=self.task.term,
            phase=self.phase,
            since=int(self._phase_since_s),
            restarts=container.restarts if container is not None else 0,
            exit_code=container.exit_code if container is not None else None,
            trouble=self.trouble,
        )
        now_s = self.tools.clock.now_s()
        if self._reported is None or self._reported[0] != report or now_s - self._reported[1] >= REPORT_S:
            self._reported = (report, now_s)
            self.tools.say(report)
