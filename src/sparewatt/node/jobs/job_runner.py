"""Runs a gateway's jobs: each is one request to the model server, whose reply is passed on as it comes.

A job that could not start in the time that its gateway promised is refused at once, so that another node can take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import BadRequest, MediaNotFetched
from sparewatt.core.limits import NODE_QUEUE_PER_SLOT
from sparewatt.core.log import Logger
from sparewatt.link.node_end import IncomingJob
from sparewatt.node.backends.backend import Backend, BackendError, BackendReply, BackendUnreachable, BadBackendReply
from sparewatt.node.backends.reply_stream import EventDataSplitter, throttled
from sparewatt.node.egress.media_fetcher import MediaFetcher
from sparewatt.node.jobs.abandoned_requests import AbandonedRequests
from sparewatt.node.jobs.continuation import BackendRequest, CannotContinue, as_chat_stream, continuation_request
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.jobs.token_counter import TokenCounter
from sparewatt.node.jobs.ttft_estimator import NO_FOREIGN_LOAD, BackendCapacity, TtftEstimator
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import FailCode, JobEnd, JobFailure, JobPath, JobReplyHead
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, validated
from sparewatt.protocol.link.receipts import Receipt
from sparewatt.protocol.openai.chat import as_stream, error_body
from sparewatt.protocol.openai.prompts import count_prompts
from sparewatt.protocol.openai.stream_accumulator import BrokenStream, StreamAccumulator, can_be_streamed

_log = Logger("sparewatt.node")
CHAT: JobPath = "/v1/chat/completions"
BACKLOG_S_MAX = TTFT_S_MAX = 1e6
"""The bounds of a report."""
CLOSE_S = 2.0
OBSERVED_PROMPT_TOKENS_MIN, OBSERVED_TOKENS_MIN = 50, 16
"""Shorter jobs say little about the speed of reading and writing."""
BLOCKED_SHARE_MAX = 0.05
"""A job that waited longer than this share of its time for its client to read says nothing about writing."""
LEASED = "a lease has its machine"


@dataclass(slots=True)
class _Company:
    """Whether a job has the model server, had it to itself, and how long it waited for its client."""

    was_alone_at_first: bool = False
    blocked_s: float = 0.0
    is_at_server: bool = False
    """Whether the server has the request."""


class Refusal(NamedTuple):
    """Why a job is not begun."""

    message: str
    ttft_s: float = 0.0
    """The time to first token that it would have; 0 if that is not the reason."""


@dataclass(slots=True, eq=False)
class NodeJobRunner:
    """Implements JobRunner."""

    backend: Backend
    inventory: Inventory
    clock: Clock
    receipts: ReceiptIssuer | None = None
    media: MediaFetcher | None = None
    """None: one for the hosts that the owner allows."""
    on_delivered: Callable[[str, int, int], None] = lambda _model, _prompt, _completion: None
    """Is told what was delivered: model, tokens read and written."""
    draining: bool = field(init=False, default=False)
    paused: str | None = field(init=False, default=None)
    """Why the owner's rules accept no new jobs now; those that run are finished."""
    leased: str | None = field(init=False, default=None)
    """The order of the lease that has what answers are written with: no new jobs until it is over."""
    is_shared: bool = field(init=False, default=False)
    """Whether several gateway processes send jobs: then each must learn of the others' jobs."""
    _tasks: dict[IncomingJob, asyncio.Task[None]] = field(init=False, default_factory=dict)
    _ttft_estimator: TtftEstimator = field(init=False, default_factory=TtftEstimator)
    _abandoned: AbandonedRequests = field(init=False)
    _media: MediaFetcher = field(init=False)
    _idle: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()
        self._media = self.media or MediaFetcher(self.inventory.settings.fetch_hosts())
        self._abandoned = AbandonedRequests(
            self.backend, self.clock, live=lambda: len(self._tasks), on_released=self._release_abandoned
        )

    def load(self, origin: str | None = None) -> NodeLoad:
        """As the gateway process at the link `origin` should see it: jobs of other links count as foreign."""
        jobs, slots, inventory = len(self._tasks), self.inventory.specs.slots, self.inventory
        others, now_s = NO_FOREIGN_LOAD, self.clock.now_s()
        is_shared, abandoned = self.is_shared and origin is not None, self._abandoned.jobs
        if is_shared or abandoned:
            shared = [job for job in self._tasks if job.origin != origin] if is_shared else []
            others = self._ttft_estimator.load_of(shared, abandoned=abandoned, now_s=now_s)
        self._refresh_capacity()
        return NodeLoad(
            running=min(jobs, slots),
            queued=max(0, jobs - slots),
            foreign=inventory.foreign_requests + others.jobs,
            foreign_backlog_s=min(BACKLOG_S_MAX, others.backlog_s),
            foreign_kv_bytes=others.kv_bytes,
            foreign_models=others.models,
            draining=self.draining or self.paused is not None or self.leased is not None,
            paused=self.paused or (None if self.leased is None else LEASED),
            kv_used=inventory.kv_used,
            kv_capacity_bytes=inventory.kv_capacity_bytes,
            prefill_share=self._ttft_estimator.prefill_share(now_s),
        )

    def _refresh_capacity(self) -> None:
        inventory = self.inventory
        self._ttft_estimator.capacity = BackendCapacity(
            inventory.specs.slots, inventory.foreign_requests, inventory.kv_capacity_bytes
        )

    def count(self) -> int:
        return len(self._tasks)

    def start(self, job: IncomingJob) -> None:
        refusal = self._refusal(job)
        if refusal is not None:
            self._fail(job, "refused", refusal.message, ttft_s=refusal.ttft_s)
            return
        self._idle.clear()
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job] = task
        meta, now_s = job.meta, self.clock.now_s()
        self._ttft_estimator.begin(
            job, self._model(job), meta.prompt_tokens, now_s=now_s, cached_tokens=meta.cached_tokens
        )
        task.add_done_callback(lambda task: self._on_task_done(job, task))
        self._note_jobs_changed()

    def cancel(self, job: IncomingJob) -> None:
        task = self._tasks.get(job)
        if task is not None:
            task.cancel()

    def fail_waiting(self, why: str) -> None:
        """The model server does not answer any more: fail jobs without a first token, which other nodes can take."""
        for job, task in [(job, task) for job, task in self._tasks.items() if not self._has_first_token(job)]:
            self._fail(job, "backend_timeout", why[:500])
            task.cancel()

    def break_off(self, order_id: str) -> int:
        """A lease needs what answers are written with: other nodes go on with them. Returns how many there were.

        A gateway believes this only of a lease that the chain has just given this node.
        """
        broken = list(self._tasks.items())
        for job, task in broken:
            self._fail(job, "leased", LEASED, lease=order_id)
            task.cancel()
        return len(broken)

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
        await self.wait_until_idle(CLOSE_S)
        await self._abandoned.close()

    def _on_task_done(self, job: IncomingJob, task: asyncio.Task[None]) -> None:
        self._forget(job)
        if not task.cancelled() and (error := task.exception()) is not None:  # a bug: the gateway must still get a FAIL
            _log.warning("job_crashed", error=repr(error))
            self._fail(job, "protocol", f"the node had an internal error ({type(error).__name__})")
        if not self._tasks:
            self._idle.set()

    def _fail(self, job: IncomingJob, code: FailCode, message: str, *, ttft_s: float = 0.0, lease: str = "") -> None:
        self._forget(job)  # first: the load in the message must not count this job any more
        load = self.load(job.origin)
        job.fail(JobFailure(code=code, message=message, load=load, ttft_s=ttft_s, lease=lease))

    def _forget(self, job: IncomingJob) -> None:
        if self._tasks.pop(job, None) is not None:
            self._note_jobs_changed()
        if job not in self._abandoned.jobs:
            self._ttft_estimator.end(job, now_s=self.clock.now_s())

    def _abandon(self, job: IncomingJob) -> None:
        """Its client left while its prompt was read: the server is busy with it until it is seen not to be.

        An answer that is being written ends with its next token.
        """
        left_s = self._ttft_estimator.left_to_read_s(job, now_s=self.clock.now_s())
        self._abandoned.add(job, left_to_read_s=left_s)
        self._forget(job)
        self.inventory.note_load_changed()

    def _release_abandoned(self, job: IncomingJob) -> None:
        self._ttft_estimator.end(job, now_s=self.clock.now_s())
        self._note_jobs_changed()
        self.inventory.note_load_changed()

    def _note_jobs_changed(self) -> None:
        self.inventory.own_jobs = len(self._tasks) + len(self._abandoned.jobs)
        if self.is_shared:
            self.inventory.note_load_changed()

    def _has_first_token(self, job: IncomingJob) -> bool:
        slot_use = self._ttft_estimator.slot_uses.get(job)
        return slot_use is not None and slot_use.first_token_at_s is not None

    def _refusal(self, job: IncomingJob) -> Refusal | None:
        model = self._model(job)
        if self.draining:
            return Refusal("the node is stopping")
        if self.paused is not None or self.leased is not None:
            return Refusal(f"the node is paused: {self.paused or LEASED}")
        if model is None:
            return Refusal("the model is not here any more")
        if len(self._tasks) >= self.inventory.specs.slots * (1 + NODE_QUEUE_PER_SLOT):
            return Refusal("the node is full")
        self._refresh_capacity()
        late_s = self._ttft_estimator.late_ttft_s(
            model,
            job.meta.prompt_tokens,
            promised_s=job.meta.promised_ttft_s,
            now_s=self.clock.now_s(),
            cached_tokens=job.meta.cached_tokens,
        )
        if late_s is None:
            return None
        promised_s, ttft_s = job.meta.promised_ttft_s, min(TTFT_S_MAX, late_s)
        return Refusal(f"the first token would take {late_s:.1f} s here, {promised_s:.1f} s were counted on", ttft_s)

    def _model(self, job: IncomingJob) -> ModelReport | None:
        return next((model for model in self.inventory.specs.models if model.id == job.meta.model), None)

    async def _run(self, job: IncomingJob) -> None:
        began_s = self.clock.now_s()
        count, company = TokenCounter(), _Company()
        try:
            first_byte_s = await self._relay(job, began_s, count, company)
        except asyncio.CancelledError:
            if company.is_at_server and not self._has_first_token(job):
                self._abandon(job)
            raise
        except MediaNotFetched as error:
            await self._answer_error(job, error, began_s)
        except (CannotContinue, BadRequest) as error:
            self._fail(job, "refused", str(error))
        except (BackendError, BrokenStream, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.info("job_failed", why=str(error))
            self._fail(job, _fail_code(error), str(error))
            self.inventory.refresh_soon()
        else:
            self._observe(job, count, company, began_s)
            self._forget(job)
            duration_s = self.clock.now_s() - began_s
            job.end(JobEnd(load=self.load(job.origin), first_byte_s=first_byte_s, duration_s=duration_s))
        finally:  # a cancelled answer too has a receipt for what was delivered
            self._issue_receipt(job, count, began_s)

    async def _relay(self, job: IncomingJob, began_s: float, count: TokenCounter, company: _Company) -> float | None:
        """Pass the reply on, chunk by chunk; returns the seconds to its first byte."""
        request = await self._backend_request(job)
        accumulator = self._accumulator(job, request)
        body = request.body if accumulator is None else as_stream(request.body)
        first_byte_s: float | None = None
        splitter = EventDataSplitter()
        company.is_at_server = True
        async with self.backend.post(request.path, body) as reply:
            is_stream = _is_stream(reply)
            accumulator = accumulator if is_stream else None
            job.send_head(_head(reply.status, reply.content_type if accumulator is None else "application/json"))
            if not is_stream:
                count.expect_whole()
            chunks = as_chat_stream(reply.chunks) if is_stream and not request.has_requested_shape else reply.chunks
            async for chunk in throttled(chunks, limit_tps=self.inventory.settings.speed_limit_tps, clock=self.clock):
                if first_byte_s is None:
                    first_byte_s = self.clock.now_s() - began_s
                self._count(job, count, company, chunk)
                if accumulator is None:
                    read_s = self.clock.now_s()
                    await job.send_data(chunk)
                    company.blocked_s += self.clock.now_s() - read_s
                else:
                    for event in splitter.feed(chunk):
                        accumulator.add(event)
        if accumulator is not None:
            await job.send_data(accumulator.body())
        count.end()
        return first_byte_s

    async def _answer_error(self, job: IncomingJob, error: BadRequest, began_s: float) -> None:
        """As a model server does that finds the request at fault."""
        job.send_head(JobReplyHead(status=error.status, content_type="application/json"))
        await job.send_data(msgspec.json.encode(error_body(error)))
        self._forget(job)
        duration_s = self.clock.now_s() - began_s
        job.end(JobEnd(load=self.load(job.origin), first_byte_s=duration_s, duration_s=duration_s))

    async def _backend_request(self, job: IncomingJob) -> BackendRequest:
        """The request as it came, or one for the rest of an answer that another node began."""
        request_bytes = len(job.body) - job.meta.continue_bytes
        body = await self._media.inlined(job.meta.path, bytes(job.body[:request_bytes]))
        if not job.meta.continue_bytes:
            return BackendRequest(job.meta.path, body, has_requested_shape=True)
        support, text = self.inventory.probed.continuation_of(job.meta.model), bytes(job.body[request_bytes:]).decode()
        return await continuation_request(self.backend, support, job.meta.model, body, text)

    def _accumulator(self, job: IncomingJob, request: BackendRequest) -> StreamAccumulator | None:
        """For an answer that the client wants whole and the model server has to stream."""
        path = job.meta.path
        if job.meta.stream or self.backend.aborts_on_disconnect or not can_be_streamed(path, job.body):
            return None
        return StreamAccumulator(prompts=count_prompts(path, request.body))

    def _count(self, job: IncomingJob, count: TokenCounter, company: _Company, chunk: bytes) -> None:
        had_begun = count.has_begun
        count.feed(chunk)
        if count.has_begun and not had_begun:
            count.first_token_at_s = self.clock.now_s()
            company.was_alone_at_first = self._is_alone(job)
            self._ttft_estimator.note_first_token(job, now_s=count.first_token_at_s)

    def _is_alone(self, job: IncomingJob) -> bool:
        return self._ttft_estimator.is_alone(job) and not self.inventory.foreign_requests

    def _observe(self, job: IncomingJob, count: TokenCounter, company: _Company, began_s: float) -> None:
        """Compare a job that had the server to itself with its model's curve, by the server's count of tokens."""
        model, first_s, now_s = self._model(job), count.first_token_at_s, self.clock.now_s()
        if model is None or model.measured is None or first_s is None or not company.was_alone_at_first:
            return
        speed, prompt, written = model.measured, count.prompt_tokens, count.completion_tokens
        if prompt >= OBSERVED_PROMPT_TOKENS_MIN and not job.meta.cached_tokens:
            self.inventory.observe(model.id, "reading", seen_s=first_s - began_s, expected_s=speed.prefill_s(prompt))
        is_unblocked = company.blocked_s <= BLOCKED_SHARE_MAX * (now_s - began_s)
        if written >= OBSERVED_TOKENS_MIN and is_unblocked and self._is_alone(job):
            seen_s, expected_s = (now_s - first_s) / (written - 1), speed.step_s(1, prompt + written / 2)
            self.inventory.observe(model.id, "writing", seen_s=seen_s, expected_s=expected_s)

    def _issue_receipt(self, job: IncomingJob, count: TokenCounter, began_s: float) -> None:
        """None if nothing was delivered."""
        has_delivered = count.completion_tokens or (job.meta.path != CHAT and count.prompt_tokens)
        if self.receipts is None or not job.meta.job or not has_delivered:
            return
        now_s, first_s = self.clock.now_s(), count.first_token_at_s
        self.on_delivered(job.meta.model, count.prompt_tokens, count.completion_tokens)
        self.receipts.for_link(job.origin).issue(
            Receipt(
                job=job.meta.job,
                node=self.receipts.node,
                model=job.meta.model,
                prompt_tokens=count.prompt_tokens,
                completion_tokens=count.completion_tokens,
                first_token_ms=round(1000 * ((first_s or now_s) - began_s)),
                duration_ms=round(1000 * (now_s - began_s)),
            )
        )


def _is_stream(reply: BackendReply) -> bool:
    """Errors are not streamed, and some servers never stream."""
    return reply.status == 200 and reply.content_type != "application/json"


def _head(status: int, content_type: str) -> JobReplyHead:
    """An invalid head fails this job only; sent on, it would make the gateway end the link."""
    try:
        return validated(JobReplyHead(status=status, content_type=content_type))
    except msgspec.ValidationError:
        raise BadBackendReply(f"the model server's answer has an impossible head (status {status})") from None


def _fail_code(error: Exception) -> FailCode:
    match error:
        case BackendUnreachable():
            return "backend_unreachable"
        case BadBackendReply() | BrokenStream():
            return "backend_broke"
        case _:
            return "protocol"
