"""Plays behaviours against a network and finds out what others notice: some at the same time, each on a model of its
own, and those that are about the whole gateway alone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp

from tests.integration import asking
from tests.integration.hostile_nodes.behaviour import Attack, Behaviour, Scale
from tests.integration.hostile_nodes.clients import LINE_BYTES_MAX, Asked, ask, question
from tests.integration.hostile_nodes.honest import SERVING_S, AttackedNetwork
from tests.integration.hostile_nodes.judging import FIRST, Earned, Findings
from tests.integration.hostile_nodes.trapping import MARKER
from tests.integration.people import Person, sign_up
from tests.soak.hostile import rss_bytes

AT_ONCE = 4
PACE_S = 0.04
"""Between the beginnings of two requests on one model."""
CALM_REQUESTS = 20
KNOWN_REQUESTS = 40
"""Of each model to each honest node, before anybody attacks: a network that has a history."""
CALM_PATIENCE_S = 30.0
PATIENCE_S = 5.0
"""How much longer than the bound on a wait a client stays, to see what comes of it."""
FAILURES_MAX = 4
"""After so many the verdict is clear, and the rest is not asked."""
ENDS_S = 60.0
"""Within which what ends by itself must have ended."""
REJOIN_S_MAX = 40.0
"""Then it counts as never."""
POLL_S = 0.1
BOOKED_S = 3.0
"""From the end of a job until its earnings are in the database: journals are settled every second."""

FREED_S = 15.0
"""Until what a gateway frees in the background is freed."""


@dataclass(slots=True, kw_only=True)
class Runner:
    attacked: AttackedNetwork
    scale: Scale
    session: aiohttp.ClientSession
    calm_wait_s: float = 0.0
    restarts: bool = True
    """Whether honest nodes may be restarted, where a bound is about that."""
    on_played: Callable[[Findings], None] = lambda _: None
    """Called with each behaviour that is over, before its earnings are known."""
    _waves: itertools.count[int] = field(default_factory=itertools.count)
    _owners: list[tuple[Findings, Person]] = field(default_factory=list)
    _log_read_bytes: int = 0

    @property
    def root_url(self) -> str:
        return self.attacked.network.root_url

    async def calm(self) -> None:
        """What requests wait for when nobody attacks; also, a gateway gets to know every honest node and model."""
        nodes = [node.name for node in self.attacked.honest]
        each_node = [self._ask_node(model, node) for model in self.attacked.models for node in nodes]
        anybody = [
            self._ask_bystanders(model, CALM_REQUESTS, "peace", CALM_PATIENCE_S) for model in self.attacked.models
        ]
        known = [each for lane in await asyncio.gather(*each_node) for each in lane]
        asked = [each for lane in await asyncio.gather(*anybody) for each in lane]
        wrong = [each for each in (*known, *asked) if not (each.is_served and each.is_genuine)]
        assert not wrong, f"without an attack: {wrong[0].error or wrong[0].text!r}"
        self.calm_wait_s = max(each.wait_s for each in asked)

    async def _ask_node(self, model: str, node: str) -> list[Asked]:
        """One after another, so that the network knows how every honest owner counts and how fast its node is."""
        key = self.attacked.clients[0].key
        asked = (question(model, number, topic=f"what {node} does", only=node) for number in range(KNOWN_REQUESTS))
        return [await ask(self.session, self.root_url, key, each, timeout_s=CALM_PATIENCE_S) for each in asked]

    async def play(self, behaviours: Sequence[Behaviour]) -> list[Findings]:
        """All of them: those that may, at the same time, one on each model."""
        together = [each for each in behaviours if not each.is_alone]
        found: list[Findings] = []
        lanes = len(self.attacked.models)
        for at in range(0, len(together), lanes):
            found += await self._wave(together[at : at + lanes])
        for each in behaviours:
            if each.is_alone:
                found += await self._wave([each])
        await self.collect_earnings()
        return found

    async def _wave(self, behaviours: Sequence[Behaviour]) -> list[Findings]:
        before = self._memory()
        pairs = zip(behaviours, self.attacked.models, strict=False)
        found = list(await asyncio.gather(*(self.play_one(each, model) for each, model in pairs)))
        grown = await self._grown_for_good(before, least=min(each.bounds.memory_bytes_max for each in behaviours))
        wave, log = next(self._waves), self._new_log()
        for each in found:
            each.wave, each.memory_bytes, each.marker_logged = wave, grown, MARKER in log
            self.on_played(each)
        return found

    async def play_one(self, behaviour: Behaviour, model: str) -> Findings:
        emails = [f"liar-{secrets.token_hex(8)}@example.org" for _ in range(behaviour.owners)]
        owners = [await asyncio.to_thread(sign_up, self.attacked.network, email) for email in emails]
        by_turns = itertools.cycle(owners)
        attack = Attack(
            root_url=self.root_url,
            model=model,
            honest_names=[node.name for node in self.attacked.honest],
            scale=self.scale,
            behaviour=behaviour,
            session=self.session,
            make_token=lambda: self._token(next(by_turns)),
            client_key=self.attacked.clients[0].key,
        )
        findings = Findings(behaviour=behaviour, calm_wait_s=self.calm_wait_s)
        try:
            await attack.start()
            await self._beside(attack, findings)
        finally:
            await attack.stop()
        await self._until_serving()
        findings.liars = attack.node_ids
        findings.let_in = attack.let_in
        findings.notes += attack.notes
        findings.jobs_given = sum(node.opened for node in attack.nodes)
        self._owners += [(findings, owner) for owner in owners]
        return findings

    async def _beside(self, attack: Attack, findings: Findings) -> None:
        behaviour, topic = attack.behaviour, attack.behaviour.name
        going_on = asyncio.ensure_future(behaviour.beside(attack)) if behaviour.beside is not None else None
        began_s = time.monotonic()
        try:
            pinned = self._ask_pinned(attack) if behaviour.is_paid else _nothing()
            patience_s = self.calm_wait_s + behaviour.bounds.extra_wait_s_max + PATIENCE_S
            others = self._ask_bystanders(attack.model, self.scale.requests, topic, patience_s)
            findings.bystanders, findings.pinned = await asyncio.gather(others, pinned)
            if going_on is not None:
                await self._wait_beside(behaviour, going_on, began_s, findings)
            is_rejoining = self.restarts and behaviour.bounds.rejoin_s_max is not None
            findings.rejoin_s = await self._rejoin() if is_rejoining else None
        finally:
            if going_on is not None:
                going_on.cancel()
                with suppress(asyncio.CancelledError):
                    await going_on

    async def _wait_beside(
        self, behaviour: Behaviour, going_on: asyncio.Future[None], began_s: float, findings: Findings
    ) -> None:
        least_s = ENDS_S if behaviour.ends_by_itself else self.scale.storm_s
        await asyncio.wait([going_on], timeout=max(0.0, began_s + least_s - time.monotonic()))
        if behaviour.ends_by_itself and not going_on.done():
            findings.notes.append(f"what went on beside was not over after {ENDS_S:.0f} s")

    async def _rejoin(self) -> float | None:
        """Seconds from the restart of all honest nodes until they serve; None if they do not come back."""
        began_s = time.monotonic()
        self.attacked.restart_honest_nodes()
        is_back = await self._serving_within(REJOIN_S_MAX)
        return time.monotonic() - began_s if is_back else None

    async def _serving_within(self, ceiling_s: float) -> bool:
        until_s = time.monotonic() + ceiling_s
        while not await asyncio.to_thread(self.attacked.is_serving):
            if time.monotonic() > until_s:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _until_serving(self) -> None:
        """What comes next is not judged by what this one did to honest nodes."""
        assert await self._serving_within(SERVING_S), "honest nodes do not come back"

    # clients

    async def _ask_bystanders(self, model: str, count: int, topic: str, patience_s: float) -> list[Asked]:
        """Some at once, one after another; the rest is left out when it is clear that they are not served."""
        turn, asked = asyncio.Semaphore(AT_ONCE), list[Asked]()
        keys = itertools.cycle([client.key for client in self.attacked.clients])

        async def ask_one(number: int, key: str) -> Asked | None:
            async with turn:
                if sum(not each.is_served for each in asked[FIRST:]) >= FAILURES_MAX:
                    return None
                asking_for = question(model, number, topic=topic)
                found = await ask(self.session, self.root_url, key, asking_for, timeout_s=patience_s)
                asked.append(found)
                return found

        async with asyncio.TaskGroup() as tasks:
            made = []
            for number in range(count):
                made.append(tasks.create_task(ask_one(number, next(keys))))
                await asyncio.sleep(PACE_S)
        return [found for task in made if (found := task.result()) is not None]

    async def _ask_pinned(self, attack: Attack) -> list[Asked]:
        """A client that wants the liar and nobody else. What it is told is its own affair; what is paid is not."""
        only, key = attack.nodes[0].node_id, self.attacked.clients[0].key
        patience_s = self.calm_wait_s + PATIENCE_S
        topic = f"{attack.behaviour.name}, pinned"
        asked = [question(attack.model, number, topic=topic, only=only) for number in range(self.scale.pinned)]
        return await asyncio.gather(
            *(ask(self.session, self.root_url, key, each, timeout_s=patience_s) for each in asked)
        )

    async def _token(self, owner: Person) -> str:
        headers = {"authorization": f"Bearer {owner.key}"}
        async with self.session.post(f"{self.root_url}/v1/join-tokens", json={}, headers=headers) as reply:
            told = await reply.json()
        assert reply.status == 201, told
        token: str = told["token"]
        return token

    # what is left behind

    async def collect_earnings(self) -> None:
        """Of every behaviour so far, once the books have them."""
        await asyncio.sleep(BOOKED_S)
        owners, self._owners = self._owners, []
        for findings, owner in owners:
            reply = await asyncio.to_thread(
                asking.ask, self.attacked.network, "GET", "/v1/earnings?limit=1000", key=owner.key
            )
            assert reply.status == 200, reply.body
            findings.earned += [
                Earned(
                    job=line["job_id"], prompt_tokens=line["prompt_tokens"], completion_tokens=line["completion_tokens"]
                )
                for line in reply.json()["data"]
            ]

    async def _grown_for_good(self, before: int, *, least: int) -> int:
        """What stays: a gateway frees its heap some seconds after strangers have knocked."""
        deadline = time.monotonic() + FREED_S
        while (grown := self._memory() - before) >= least and time.monotonic() < deadline:  # noqa: ASYNC110 (memory of another process)
            await asyncio.sleep(0.5)
        return grown

    def _memory(self) -> int:
        return rss_bytes(self.attacked.network.pid)

    def _new_log(self) -> str:
        with self.attacked.network.output.open("rb") as file:
            file.seek(self._log_read_bytes)
            new = file.read()
        self._log_read_bytes += len(new)
        return new.decode(errors="replace")


@asynccontextmanager
async def running(attacked: AttackedNetwork, scale: Scale) -> AsyncIterator[Runner]:
    """Knows what requests wait for without an attack."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=LINE_BYTES_MAX) as session:
        runner = Runner(attacked=attacked, scale=scale, session=session)
        await runner.calm()
        yield runner


async def _nothing() -> list[Asked]:
    return []


def table(found: Sequence[Findings]) -> str:
    """One line for each behaviour, for a report."""
    lines = [
        "| behaviour | what it does | others served | longer wait | paid, times honest | share | memory | bounds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for each in found:
        paid = "-" if each.pay_ratio is None else f"{each.pay_ratio:.2f}"
        wrong = "; ".join(each.broken_bounds()).replace("|", "/") or "kept"
        lines.append(
            f"| {each.behaviour.name} | {each.behaviour.lie} | {each.success:.1%} of {len(each.judged)} "
            f"| {max(0.0, each.extra_wait_s):.1f} s | {paid} | {each.share:.0%} | {each.memory_bytes / 1e6:+.1f} MB "
            f"| {json.dumps(wrong, ensure_ascii=False)[1:-1]} |"
        )
    return "\n".join(lines)
