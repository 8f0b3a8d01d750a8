"""Jobs on this node: each is one request to the model server, its reply passed on as it comes."""

from __future__ import annotations

import asyncio

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.limits import NODE_QUEUE_PER_SLOT
from sparewatt.core.log import Log
from sparewatt.link.node_end import IncomingJob
from sparewatt.node.backends.model import Backend, BackendBroke, BackendError, BackendReply, BackendUnreachable
from sparewatt.node.inventory import Inventory
from sparewatt.node.pacing import paced
from sparewatt.node.whole import Assembler
from sparewatt.protocol.link import End, Fail, FailCode, Head
from sparewatt.protocol.node import NodeLoad, checked
from sparewatt.protocol.openai import as_stream

_log = Log("sparewatt.node")


class Jobs:
    """Implements JobRunner."""

    def __init__(self, backend: Backend, inventory: Inventory, *, limit_tps: float | None, clock: Clock) -> None:
        self._backend = backend
        self._inventory = inventory
        self._limit_tps = limit_tps
        self._clock = clock
        self._tasks: dict[IncomingJob, asyncio.Task[None]] = {}
        self._begun: set[IncomingJob] = set()
        """Jobs of which the model server has sent something."""
        inventory.count_mine = self.count
        inventory.on_lost = self.give_up_waiting
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def load(self) -> NodeLoad:
        mine = len(self._tasks)
        slots = self._inventory.specs.slots
        return NodeLoad(
            running=min(mine, slots),
            queued=max(0, mine - slots),
            foreign=self._inventory.foreign_requests,
            draining=self.draining,
        )

    def count(self) -> int:
        return len(self._tasks)

    def start(self, job: IncomingJob) -> None:
        refusal = self._refusal(job)
        if refusal is not None:
            job.fail(Fail(code="refused", message=refusal, load=self.load()))
            return
        self._idle.clear()
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job] = task
        task.add_done_callback(lambda task: self._over(job, task))

    def cancel(self, job: IncomingJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    def give_up_waiting(self, why: str) -> None:
        """The model server does not answer any more: what has not begun can still be done elsewhere."""
        for job in [job for job in self._tasks if job not in self._begun]:
            task = self._tasks.pop(job)
            job.fail(Fail(code="backend_timeout", message=why[:500], load=self.load()))
            task.cancel()

    async def wait_until_idle(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await self.wait_until_idle(2.0)

    def _over(self, job: IncomingJob, task: asyncio.Task[None]) -> None:
        self._tasks.pop(job, None)
        self._begun.discard(job)
        if not task.cancelled() and (error := task.exception()) is not None:  # nobody foresaw it: tell the gateway
            _log.warning("job_crashed", error=repr(error))
            job.fail(Fail(code="protocol", message=f"the node stumbled ({type(error).__name__})", load=self.load()))
        if not self._tasks:
            self._idle.set()

    def _refusal(self, job: IncomingJob) -> str | None:
        specs = self._inventory.specs
        if self.draining:
            return "the node is stopping"
        if all(model.id != job.meta.model for model in specs.models):
            return "the model is not here any more"
        if len(self._tasks) >= specs.slots * (1 + NODE_QUEUE_PER_SLOT):
            return "the node is full"
        return None

    async def _run(self, job: IncomingJob) -> None:
        began_s = self._clock.now_s()
        try:
            first_byte_s = await self._relay(job, began_s)
        except (BackendError, msgspec.DecodeError) as error:
            _log.info("job_failed", why=str(error))
            self._tasks.pop(job, None)  # the report that goes with it must not count this job any more
            job.fail(Fail(code=_fail_code(error), message=str(error), load=self.load()))
            self._inventory.look_again()
        else:
            self._tasks.pop(job, None)
            duration_s = self._clock.now_s() - began_s
            job.end(End(load=self.load(), first_byte_s=first_byte_s, duration_s=duration_s))

    async def _relay(self, job: IncomingJob, began_s: float) -> float | None:
        """Pass the reply on, chunk by chunk; tells when the first one came."""
        assembler = None if job.meta.stream or self._backend.stops_whole_answers else Assembler()
        body = bytes(job.body) if assembler is None else as_stream(bytes(job.body))
        first_byte_s: float | None = None
        async with self._backend.post(job.meta.path, body) as reply:
            assembler = assembler if _is_stream(reply) else None
            content_type = reply.content_type if assembler is None else "application/json"
            job.head(_head(reply.status, content_type))
            async for chunk in paced(reply.chunks, limit_tps=self._limit_tps, clock=self._clock):
                if first_byte_s is None:
                    first_byte_s = self._clock.now_s() - began_s
                    self._begun.add(job)
                if assembler is None:
                    await job.data(chunk)
                else:
                    assembler.feed(chunk)
        if assembler is not None:
            await job.data(assembler.body())
        return first_byte_s


def _is_stream(reply: BackendReply) -> bool:
    """Errors come whole, and some servers answer whole whatever they are asked."""
    return reply.status == 200 and reply.content_type != "application/json"


def _head(status: int, content_type: str) -> Head:
    """What a gateway would end the link for is the model server's fault, and that of this job alone."""
    try:
        return checked(Head(status=status, content_type=content_type))
    except msgspec.ValidationError:
        raise BackendBroke(f"the model server's answer has an impossible head (status {status})") from None


def _fail_code(error: Exception) -> FailCode:
    match error:
        case BackendUnreachable():
            return "backend_unreachable"
        case BackendBroke():
            return "backend_broke"
        case _:
            return "protocol"
