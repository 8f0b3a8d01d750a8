"""Sends a request to one named node for a comparison, as an ordinary job that the network pays.

A node cannot tell it from traffic: same frames, same deadlines, its own price. The pay comes from an account of the
network's own with a daily limit; what the limit does not cover is not checked today.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId, NodeId
from sparewatt.core.limits import JOB_TIMEOUT_S
from sparewatt.core.money import Nano
from sparewatt.inference.call import ModelCall
from sparewatt.inference.checks.answers import ReadAnswer, read_body, read_stream
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import DirectPath, Job
from sparewatt.inference.matcher.formula import RANKINGS
from sparewatt.inference.matcher.model import AllowedNodes, MatchJob
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.service import Metering, Payer, Quote, RunningTab
from sparewatt.inference.prompt import chat_units, size_of
from sparewatt.ledger.budgets import KeyBudget
from sparewatt.ledger.model import TokenPrice
from sparewatt.protocol.openai.chat import for_node
from sparewatt.trust.checks.probe_prompts import ProbePrompt

CHECKS_ACCOUNT, CHECKS_KEY = AccountId("acc_checks"), KeyId("key_checks")
"""Who pays for checks: a line of its own in the books."""
_FAST = RANKINGS["fast"]


class CheckRequest(msgspec.Struct, frozen=True):
    """What is sent for a comparison."""

    call: ModelCall
    body: bytes
    model: ModelId
    body_model: str

    @classmethod
    def of_job(cls, job: Job) -> CheckRequest:
        return cls(job.call, job.body, job.match.model, job.body_model)

    @classmethod
    def of_probe(cls, prompt: ProbePrompt, model: ModelId) -> CheckRequest:
        body = msgspec.json.encode(prompt.request(model))
        messages = tuple(msgspec.json.encode(message) for message in prompt.messages)
        call = ModelCall(
            path="/v1/chat/completions",
            model=model,
            body=body,
            size=msgspec.structs.replace(size_of(messages, is_text=True), units=chat_units(messages)),
            prompt=messages,
            is_text=True,
            stream=prompt.stream,
            output_limit=prompt.max_tokens,
            needs=frozenset({"chat"}),
        )
        return cls(call, for_node(body, stream=prompt.stream), model, model)


class OneNode:
    """Implements Gate: a job for this node and no other."""

    __slots__ = ("_allowed",)
    near: str | None = None

    def __init__(self, node_id: NodeId) -> None:
        self._allowed = AllowedNodes(frozenset({node_id}))

    def stages(self) -> Sequence[AllowedNodes | None]:
        return (self._allowed,)

    def payer_nodes(self) -> Collection[NodeId]:
        return ()

    def relaxations(self) -> list[str]:
        return []

    def admits(self, node_id: NodeId) -> bool:
        return node_id in self._allowed.nodes


@dataclass(slots=True, eq=False)
class CheckSink:
    """Implements Sink: keeps the reply until it is whole."""

    done: asyncio.Future[bool]
    run: JobRun | None = None
    pieces: list[bytes] = field(default_factory=list)
    _unread_bytes: int = 0

    def start(self, headers: Mapping[str, str]) -> None: ...

    def data(self, data: bytes) -> None:
        self.pieces.append(data)
        self._unread_bytes += len(data)
        self.read()

    def read(self) -> None:
        """Flow-control credit for the node, as for a client that reads at once."""
        if self.run is not None and self._unread_bytes:
            n_bytes, self._unread_bytes = self._unread_bytes, 0
            self.run.consumed(n_bytes)

    def direct_path(self) -> DirectPath | None:
        return None

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(True)

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None:  # noqa: ARG002 (Sink)
        if not self.done.done():
            self.done.set_result(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDispatch:
    dispatcher: Dispatcher
    table: NodeTable
    metering: Metering | None
    """None on a network without books: then nobody is paid for anything."""
    daily_nano: Nano
    price_cap: Callable[[ModelId], TokenPrice]
    """The most that the network pays for a model, whatever a node asks."""
    new_match_id: Callable[[], MatchId]

    async def ask(self, node_id: NodeId, request: CheckRequest) -> ReadAnswer | None:
        """The node's answer; None if it gave none, or today's money for checks is spent."""
        row = self.table.get(node_id)
        if row is None or request.model not in row.models:
            return None
        match, call = self._match(request), request.call
        try:
            tab = await self._open_tab(Quote(match, call, self._price(node_id, request.model)))
        except SparewattError:
            return None
        job = Job(
            match=match,
            call=call,
            key_id=CHECKS_KEY,
            body=request.body,
            tab=tab,
            gate=OneNode(node_id),
            attempts_max=1,
            allow_resume=False,
            body_model=request.body_model,
            reply_model=request.body_model,
            output_limit=call.output_limit,
            is_check=True,
            may_check=False,
        )
        return await self._run(job, tab)

    async def _run(self, job: Job, tab: RunningTab | None) -> ReadAnswer | None:
        sink = CheckSink(asyncio.get_running_loop().create_future())
        if tab is not None:
            try:
                tab.start()
            except SparewattError:
                tab.drop()
                return None
        run = sink.run = self.dispatcher.dispatch(job, sink, ranking=_FAST)
        if tab is not None:
            tab.watch(run.record.attempts)
        sink.read()
        try:
            async with asyncio.timeout(JOB_TIMEOUT_S):
                is_whole = await sink.done
        except TimeoutError:
            is_whole = False
        finally:
            run.cancel()  # does nothing once it is over
        data = b"".join(sink.pieces)
        if not is_whole:
            return None
        return read_stream(data) if job.call.stream else read_body(data)

    def _match(self, request: CheckRequest) -> MatchJob:
        size, typical = request.call.size, self.table.typical_output_tokens(request.model)
        limit = request.call.output_limit
        output_tokens = typical if limit is None else min(limit, typical)
        return MatchJob(self.new_match_id(), request.model, size.tokens, output_tokens, size.tokens_floor)

    def _price(self, node_id: NodeId, model: ModelId) -> TokenPrice:
        row, most = self.table.get(node_id), self.price_cap(model)
        report = row.models.get(model) if row is not None else None
        if report is None:
            return most
        prompt, completion = report.prompt_price_nano, report.completion_price_nano
        return TokenPrice(Nano(min(prompt, most.prompt)), Nano(min(completion, most.completion)))

    async def _open_tab(self, quote: Quote) -> RunningTab | None:
        if self.metering is None:
            return None
        payer = Payer(CHECKS_ACCOUNT, CHECKS_KEY, KeyBudget(self.daily_nano, "day"))
        return await self.metering.open(payer, quote)
