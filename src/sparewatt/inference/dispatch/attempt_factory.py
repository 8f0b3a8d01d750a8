"""What a job's attempts are made of: a slot on the node, the request for its server, a record, and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.timer_queue import TimerQueue
from sparewatt.inference.dispatch.attempt import Attempt, AttemptListener
from sparewatt.inference.dispatch.deadlines import TIMED_JOBS_MIN, Deadlines, deadlines
from sparewatt.inference.dispatch.failover import Seam
from sparewatt.inference.dispatch.first_token_times import FirstTokenTimes
from sparewatt.inference.dispatch.model import AttemptRecord, DispatchRules, Job
from sparewatt.inference.dispatch.served_model import ServedRequest, served_name, streamed_request
from sparewatt.inference.matcher.model import Candidate
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink
from sparewatt.protocol.openai.chat import with_model
from sparewatt.protocol.openai.stream_accumulator import can_be_streamed


class AttemptContext(NamedTuple):
    """What all attempts of a gateway share."""

    table: NodeTable
    links: Mapping[NodeId, NodeLink]
    rules: DispatchRules
    clock: Clock
    deadlines: TimerQueue
    first_tokens: FirstTokenTimes
    is_leased: Callable[[NodeId, str], bool] = lambda _node_id, _order_id: False
    """Whether the chain has just given a node this lease."""


class AttemptFactory:
    """One per job."""

    __slots__ = ("_context", "_renamed")

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._renamed: tuple[bytes, ServedRequest] | None = None
        """A body, and the request that it became under the name of a node's server."""

    def reserve(self, candidate: Candidate, job: Job) -> Reservation:
        return self._context.table.reserve(
            candidate.node_id,
            job.match,
            now_s=self._context.clock.now_s(),
            cached_tokens=candidate.cached_tokens,
            is_streamed=job.call.stream or can_be_streamed(job.call.path, job.body),
        )

    def record(self, candidate: Candidate, job: Job, *, started_ms: float, seam: Seam | None) -> AttemptRecord:
        """With the node's price now; a later change counts for later jobs."""
        row = self._context.table.get(candidate.node_id)
        record = AttemptRecord(candidate.node_id, started_ms=started_ms)
        if seam is not None:
            record.carried_tokens, record.carried_chars = seam.tokens, len(seam.text)
        if row is not None:
            model = row.models[job.match.model]
            record.owner = row.owner
            record.prompt_price_nano = model.prompt_price_nano
            record.completion_price_nano = model.completion_price_nano
        return record

    def attempt(
        self,
        job: Job,
        candidate: Candidate,
        record: AttemptRecord,
        owner: AttemptListener,
        *,
        promised_s: float = 0.0,
        seam: Seam | None = None,
    ) -> Attempt:
        context, served = self._context, self._served_request(candidate.node_id, job)
        if not job.call.stream:
            served = streamed_request(served or ServedRequest(job.match.model, job.body), job.call.path)
        return Attempt(
            job,
            candidate,
            record,
            owner=owner,
            rules=context.rules,
            clock=context.clock,
            deadlines=context.deadlines,
            marks=self._marks(candidate, job, has_first_token=served is None or job.call.stream or served.prompts > 0),
            promised_ttft_s=promised_s,
            seam=seam,
            served=served,
        )

    def link(self, candidate: Candidate) -> NodeLink | None:
        return self._context.links.get(candidate.node_id)

    def _marks(self, candidate: Candidate, job: Job, *, has_first_token: bool) -> Deadlines:
        """A prediction is poor as long as few of the node's prompts were timed here."""
        rules, model, prompt_tokens = self._context.rules, job.match.model, job.match.prompt_tokens
        floor_s, finish_s = rules.first_token_floor_s, 0.0
        if not job.call.stream:
            floor_s, finish_s = max(floor_s, rules.whole_reply_floor_s), candidate.predicted_finish_s
        if not has_first_token:
            return deadlines(rules, predicted_s=finish_s, floor_s=floor_s)
        row = self._context.table.get(candidate.node_id)
        position = row.positions.get(model) if row is not None else None
        is_poor = position is not None and position.reading.count < TIMED_JOBS_MIN
        is_loaded = row is not None and model in row.models and row.models[model].state == "warm"
        p99_s = self._context.first_tokens.p99_s(model, prompt_tokens) if is_poor and is_loaded else None
        ttft_s = candidate.predicted_ttft_s
        return deadlines(rules, predicted_s=ttft_s, floor_s=floor_s, finish_s=finish_s, p99_s=p99_s)

    def _served_request(self, node_id: NodeId, job: Job) -> ServedRequest | None:
        """The request under the name that the node's server uses; None if the job has that name already."""
        name = served_name(job.match.model, self._context.table.get(node_id))
        if name == job.body_model or not job.body_model:
            return None if name == job.match.model else ServedRequest(name, job.body)
        renamed = self._renamed
        if renamed is None or renamed[0] is not job.body or renamed[1].model != name:
            renamed = self._renamed = job.body, ServedRequest(name, with_model(job.body, name))
        return renamed[1]
