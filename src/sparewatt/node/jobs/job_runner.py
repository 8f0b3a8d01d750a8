"""Jobs on this node: each is one request to the model server, its reply passed on as it comes.

A job that could not start in the time that its gateway counted on is refused at once: elsewhere it is served sooner.
"""

from __future__ import annotations

import asyncio

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.limits import NODE_QUEUE_PER_SLOT
from sparewatt.core.log import Logger
from sparewatt.link.node_end import IncomingJob
from sparewatt.node.backends.backend import Backend, BackendError, BackendReply, BackendUnreachable, BadBackendReply
from sparewatt.node.backends.throttle import throttled
from sparewatt.node.jobs.continuation import BackendRequest, CannotContinue, as_chat_stream, continuation_request
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.jobs.stream_accumulator import StreamAccumulator, can_be_streamed
from sparewatt.node.jobs.token_counter import TokenCounter
from sparewatt.node.jobs.ttft_estimator import NO_FOREIGN_LOAD, BackendCapacity, ForeignLoad, TtftEstimator
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import FailCode, JobEnd, JobFailure, JobPath, JobReplyHead
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, validated
from sparewatt.protocol.link.receipts import Receipt
from sparewatt.protocol.openai.chat import as_stream
from sparewatt.protocol.openai.prompts import count_prompts

_log = Logger("sparewatt.node")
CHAT: JobPath = "/v1/chat/completions"
BACKLOG_S_MAX = 1e6
"""What a report may say of prompts still to be read."""


class NodeJobRunner:
    """Implements JobRunner."""

    def __init__(
        self,
        backend: Backend,
        inventory: Inventory,
        *,
        limit_tps: float | None,
        clock: Clock,
        receipts: ReceiptIssuer | None = None,
    ) -> None:
        self._backend = backend
        self._inventory = inventory
        self._receipts = receipts
        self._limit_tps = limit_tps
        self._clock = clock
        self._tasks: dict[IncomingJob, asyncio.Task[None]] = {}
        self._ttft_estimator = TtftEstimator()
        inventory.count_own_jobs = self.count
        inventory.on_backend_lost = self.fail_waiting
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        self.paused: str | None = None
        """Why its owner's rules let no job in for a while; those that run go on."""
        self.is_shared = False
        """Whether several processes of a gateway send jobs: what one sends is news for the others."""

    def load(self, origin: str | None = None) -> NodeLoad:
        """As a gateway's process should see it that sends its jobs by the link `origin`: other links' are foreign."""
        mine = len(self._tasks)
        slots = self._inventory.specs.slots
        others = self._foreign_load(origin) if self.is_shared and origin is not None else NO_FOREIGN_LOAD
        self._refresh_capacity()
        return NodeLoad(
            running=min(mine, slots),
            queued=max(0, mine - slots),
            foreign=self._inventory.foreign_requests + others.jobs,
            foreign_backlog_s=min(BACKLOG_S_MAX, others.backlog_s),
            foreign_kv_bytes=others.kv_bytes,
            foreign_models=others.models,
            draining=self.draining or self.paused is not None,
            paused=self.paused,
            kv_used=self._inventory.kv_used,
            kv_capacity_bytes=self._inventory.kv_capacity_bytes,
            prefill_share=self._ttft_estimator.prefill_share(self._clock.now_s()),
        )

    def _foreign_load(self, origin: str) -> ForeignLoad:
        return self._ttft_estimator.load_of([job for job in self._tasks if job.origin != origin])

    def _refresh_capacity(self) -> None:
        inventory = self._inventory
        self._ttft_estimator.capacity = BackendCapacity(
            inventory.specs.slots, inventory.foreign_requests, inventory.kv_capacity_bytes
        )

    def count(self) -> int:
        return len(self._tasks)

    def start(self, job: IncomingJob) -> None:
        refusal = self._refusal(job)
        if refusal is not None:
            job.fail(JobFailure(code="refused", message=refusal, load=self.load(job.origin)))
            return
        self._idle.clear()
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job] = task
        self._ttft_estimator.begin(
            job,
            self._model(job),
            job.meta.prompt_tokens,
            now_s=self._clock.now_s(),
            cached_tokens=job.meta.cached_tokens,
        )
        task.add_done_callback(lambda task: self._on_task_done(job, task))
        self._note_load_changed()

    def cancel(self, job: IncomingJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    def fail_waiting(self, why: str) -> None:
        """The model server does not answer any more: what has not begun can still be done elsewhere."""
        for job, task in [(job, task) for job, task in self._tasks.items() if not self._has_begun(job)]:
            self._forget(job)
            job.fail(JobFailure(code="backend_timeout", message=why[:500], load=self.load(job.origin)))
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

    def _on_task_done(self, job: IncomingJob, task: asyncio.Task[None]) -> None:
        self._forget(job)
        if not task.cancelled() and (error := task.exception()) is not None:  # nobody foresaw it: tell the gateway
            _log.warning("job_crashed", error=repr(error))
            job.fail(
                JobFailure(
                    code="protocol", message=f"the node stumbled ({type(error).__name__})", load=self.load(job.origin)
                )
            )
        if not self._tasks:
            self._idle.set()

    def _forget(self, job: IncomingJob) -> None:
        """Count it no more."""
        if self._tasks.pop(job, None) is not None:
            self._note_load_changed()
        self._ttft_estimator.end(job, now_s=self._clock.now_s())

    def _note_load_changed(self) -> None:
        """A job came or went: the process that sent it counts for itself, the others hear it from us."""
        if self.is_shared:
            self._inventory.note_load_changed()

    def _has_begun(self, job: IncomingJob) -> bool:
        turn = self._ttft_estimator.slot_uses.get(job)
        return turn is not None and turn.first_token_at_s is not None

    def _refusal(self, job: IncomingJob) -> str | None:
        specs = self._inventory.specs
        model = self._model(job)
        if self.draining:
            return "the node is stopping"
        if self.paused is not None:
            return f"the node is paused: {self.paused}"
        if model is None:
            return "the model is not here any more"
        if len(self._tasks) >= specs.slots * (1 + NODE_QUEUE_PER_SLOT):
            return "the node is full"
        return self._lateness(job, model)

    def _lateness(self, job: IncomingJob, model: ModelReport) -> str | None:
        """Why it would come too late, if so."""
        promised_s = job.meta.promised_ttft_s
        self._refresh_capacity()
        own_s = self._ttft_estimator.late_ttft_s(
            model,
            job.meta.prompt_tokens,
            promised_s=promised_s,
            now_s=self._clock.now_s(),
            cached_tokens=job.meta.cached_tokens,
        )
        if own_s is None:
            return None
        return f"the first token would take {own_s:.1f} s here, {promised_s:.1f} s were counted on"

    def _model(self, job: IncomingJob) -> ModelReport | None:
        return next((model for model in self._inventory.specs.models if model.id == job.meta.model), None)

    async def _run(self, job: IncomingJob) -> None:
        began_s = self._clock.now_s()
        count = TokenCounter()
        try:
            first_byte_s = await self._relay(job, began_s, count)
        except CannotContinue as error:
            self._forget(job)
            job.fail(JobFailure(code="refused", message=str(error), load=self.load(job.origin)))
        except (BackendError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.info("job_failed", why=str(error))
            self._forget(job)  # the report that goes with it must not count this job any more
            job.fail(JobFailure(code=_fail_code(error), message=str(error), load=self.load(job.origin)))
            self._inventory.refresh_soon()
        else:
            self._forget(job)
            duration_s = self._clock.now_s() - began_s
            job.end(JobEnd(load=self.load(job.origin), first_byte_s=first_byte_s, duration_s=duration_s))
        finally:  # also of an answer that was cancelled half-way
            self._issue_receipt(job, count, began_s)

    async def _relay(self, job: IncomingJob, began_s: float, count: TokenCounter) -> float | None:
        """Pass the reply on, chunk by chunk; tells when the first one came."""
        errand = await self._backend_request(job)
        is_passed_on = job.meta.stream or self._backend.aborts_on_disconnect
        is_passed_on = is_passed_on or not can_be_streamed(job.meta.path, job.body)
        assembler = None if is_passed_on else StreamAccumulator(prompts=count_prompts(job.meta.path, errand.body))
        body = errand.body if assembler is None else as_stream(errand.body)
        first_byte_s: float | None = None
        async with self._backend.post(errand.path, body) as reply:
            assembler = assembler if _is_stream(reply) else None
            content_type = reply.content_type if assembler is None else "application/json"
            job.send_head(_head(reply.status, content_type))
            if not _is_stream(reply):
                count.expect_whole()
            chunks = (
                reply.chunks if errand.has_requested_shape or not _is_stream(reply) else as_chat_stream(reply.chunks)
            )
            async for chunk in throttled(chunks, limit_tps=self._limit_tps, clock=self._clock):
                if first_byte_s is None:
                    first_byte_s = self._clock.now_s() - began_s
                self._count(job, count, chunk)
                if assembler is None:
                    await job.send_data(chunk)
                else:
                    assembler.feed(chunk)
        if assembler is not None:
            await job.send_data(assembler.body())
        count.end()
        return first_byte_s

    async def _backend_request(self, job: IncomingJob) -> BackendRequest:
        """What the model server is asked: the request as it came, or the rest of an answer that another node began."""
        body, ours = bytes(job.body), len(job.body) - job.meta.continue_bytes
        if not job.meta.continue_bytes:
            return BackendRequest(job.meta.path, body, has_requested_shape=True)
        ways, text = self._inventory.continuation_of(job.meta.model), body[ours:].decode()
        return await continuation_request(self._backend, ways, job.meta.model, body[:ours], text)

    def _count(self, job: IncomingJob, count: TokenCounter, chunk: bytes) -> None:
        had_begun = count.has_begun
        count.feed(chunk)
        if count.has_begun and not had_begun:
            count.first_token_at_s = self._clock.now_s()
            self._ttft_estimator.note_first_token(job, now_s=count.first_token_at_s)

    def _issue_receipt(self, job: IncomingJob, count: TokenCounter, began_s: float) -> None:
        """A receipt for what was delivered; nothing delivered needs none."""
        was_useful = count.completion_tokens or (job.meta.path != CHAT and count.prompt_tokens)
        if self._receipts is None or not job.meta.job or not was_useful:
            return
        now_s, first_s = self._clock.now_s(), count.first_token_at_s
        self._receipts.for_link(job.origin).issue(
            Receipt(
                job=job.meta.job,
                node=self._receipts.node,
                model=job.meta.model,
                prompt_tokens=count.prompt_tokens,
                completion_tokens=count.completion_tokens,
                first_token_ms=round(1000 * ((first_s or now_s) - began_s)),
                duration_ms=round(1000 * (now_s - began_s)),
            )
        )


def _is_stream(reply: BackendReply) -> bool:
    """Errors come whole, and some servers answer whole whatever they are asked."""
    return reply.status == 200 and reply.content_type != "application/json"


def _head(status: int, content_type: str) -> JobReplyHead:
    """What a gateway would end the link for is the model server's fault, and that of this job alone."""
    try:
        return validated(JobReplyHead(status=status, content_type=content_type))
    except msgspec.ValidationError:
        raise BadBackendReply(f"the model server's answer has an impossible head (status {status})") from None


def _fail_code(error: Exception) -> FailCode:
    match error:
        case BackendUnreachable():
            return "backend_unreachable"
        case BadBackendReply():
            return "backend_broke"
        case _:
            return "protocol"
