"""Whatever nodes, clients and clocks do, in whatever order: one outcome, nothing twice, nothing left behind."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import SEAMS_MAX, Outcome
from tests.trying import walks
from tests.unit.inference.nodes import a_model, some_specs
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, ScriptedNode, Stage, text_event

GARBAGE = [b"data: <html>\n\n", b'data: {"error":{"message":"no"}}\n\n']
PIECES = [ROLE, FINISH, USAGE, b": ping\n\n"]
ABLE = some_specs(a_model(capabilities=("chat", "continue_prefill")))
_ENDED = {Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED}


def text_of(body: bytes) -> str:
    events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event.startswith(b"data: {")]
    choices = [choice for event in events for choice in msgspec.json.decode(event).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


class OneJob(RuleBasedStateMachine):
    """Every token a node sends is unique, so that a byte sent twice or out of turn shows."""

    @initialize(nodes=st.integers(1, 6), stream=st.booleans(), wants_usage=st.booleans(), able=st.booleans())
    def dispatch(self, nodes: int, *, stream: bool, wants_usage: bool, able: bool) -> None:
        self.able = able
        self.stage = Stage(nodes, specs=ABLE if able else None)
        self.run_: JobRun = self.stage.dispatch(stream=stream, wants_usage=wants_usage)
        self.stream = stream
        self.cancelled = False
        self.tokens = 0
        self.taken_bytes = 0
        self.heads: set[tuple[str, int]] = set()
        """Nodes and which of their turns."""

    @property
    def node(self) -> ScriptedNode:
        return self.stage.turn(self.run_)

    def has_head(self) -> bool:
        return self.turn_of(self.node) in self.heads

    def turn_of(self, node: ScriptedNode) -> tuple[str, int]:
        return node.id, len(node.opened)

    def is_over(self) -> bool:
        return self.cancelled or self.stage.sink.over

    def is_seeking(self) -> bool:
        """A broken answer waits for somebody who can go on with it."""
        return self.run_.record.attempts[-1].outcome is not Outcome.RUNNING and not self.is_over()

    @precondition(lambda self: not self.has_head())
    @rule(status=st.sampled_from([200] * 9 + [400, 404, 429, 500, 503]))
    def head(self, status: int) -> None:
        self.heads.add(self.turn_of(self.node))
        self.node.head(status)

    @precondition(lambda self: self.has_head())
    @rule(count=st.integers(1, 4), cuts=st.integers(1, 40))
    def tokens_come(self, count: int, cuts: int) -> None:
        first = self.tokens + 1
        self.tokens += count
        self._send(b"".join(text_event(f"token-{n};") for n in range(first, first + count)), cuts)

    @precondition(lambda self: self.has_head())
    @rule(piece=st.sampled_from(PIECES), cuts=st.integers(1, 9))
    def something_else_comes(self, piece: bytes, cuts: int) -> None:
        self._send(piece, cuts)

    @rule(seconds=st.sampled_from([0.1, 5, 20]))
    def time_passes(self, seconds: float) -> None:
        self.stage.clock.advance(seconds)

    @rule()
    def client_takes(self) -> None:
        """Also what it was sent when the job is over: the handler writes on."""
        waiting = len(self.stage.sink.body) - self.taken_bytes
        self.taken_bytes += waiting
        self.run_.consumed(waiting)
        if self.stage.sink.pieces and not self.is_over():
            assert self.node.credit_bytes == self.node.sent_bytes

    @precondition(lambda self: self.has_head())
    @rule(how=st.sampled_from(["properly", "early", "after done, by failing", "with garbage after done"]))
    def answer_ends(self, how: str) -> None:
        if how != "early":
            self._send(DONE if self.stream else COMPLETION, 1)
        match how:
            case "after done, by failing":
                self.node.fail("backend_broke")
            case "with garbage after done":
                self._send(GARBAGE[0], 1)
            case _:
                self.node.end()

    @rule(
        what=st.sampled_from(["fail", "refuse", "link", "token and garbage", "garbage", "wait", "wait long", "leave"])
    )
    def something_goes_wrong(self, what: str) -> None:
        match what:
            case "fail":
                self.node.fail("backend_broke")
            case "refuse":
                self.node.fail("refused")
            case "link":
                self.node.lost()
            case "wait":
                self.stage.clock.advance(60)
            case "wait long":
                self.stage.clock.advance(self.stage.rules.job_s)
            case "leave":
                self.cancelled = self.cancelled or not self.stage.sink.over
                self.run_.cancel()
            case "garbage" if self.has_head():
                self._send(GARBAGE[1], 1)
            case "token and garbage" if self.has_head():
                self.tokens += 1
                self._send(text_event(f"token-{self.tokens};") + GARBAGE[0], 1)

    @precondition(lambda self: self.first_attempt() is not self.node)
    @rule()
    def a_node_that_failed_speaks_again(self) -> None:
        """It has been told to stop, but what it sent before crosses that on the wire."""
        node = self.first_attempt()
        if self.turn_of(node) in self.heads:
            node.data(text_event("token-0;"), DONE)
            node.end()

    def first_attempt(self) -> ScriptedNode:
        return self.stage.nodes[self.run_.record.attempts[0].node_id]

    def _send(self, data: bytes, cuts: int) -> None:
        size = -(-len(data) // cuts)
        for at in range(0, len(data), size):
            if self.node.may_send_bytes >= size and self.has_head():
                self.node.data(data[at : at + size])

    @invariant()
    def no_token_comes_twice_or_out_of_order(self) -> None:
        said = [int(part.split(b";")[0]) for part in self.stage.sink.body.split(b"token-")[1:]]
        assert said == sorted(set(said))

    @invariant()
    def a_reply_that_nobody_can_go_on_with_comes_from_one_node(self) -> None:
        if self.stage.sink.pieces and not self.able:
            assert self.stage.sink.headers["x-sparewatt-node"] == self.node.id

    @invariant()
    def nothing_follows_the_end(self) -> None:
        body = self.stage.sink.body
        assert body.count(b"[DONE]") <= 1
        assert body.endswith(DONE) or b"[DONE]" not in body
        assert body.count(b'"error"') <= 1

    @invariant()
    def a_running_job_holds_one_place_and_one_that_is_over_none(self) -> None:
        if self.is_over():
            self.stage.assert_nothing_left()
        else:
            assert sum(jobs for jobs, _, _ in self.stage.reserved) == (0 if self.is_seeking() else 1)
            alarms = len(self.stage.dispatcher.deadlines) + self.stage.clock.pending
            assert alarms in (2, 3), "its own, its attempt's or the next look for somebody, and that of all deadlines"
            assert self.stage.dispatcher.running == 1

    @invariant()
    def the_record_has_its_outcome_when_the_job_is_over(self) -> None:
        record = self.run_.record
        assert (record.outcome in _ENDED) is self.is_over()
        assert (record.outcome is Outcome.CANCELLED) is self.cancelled
        running = [attempt for attempt in record.attempts if attempt.outcome is Outcome.RUNNING]
        assert running == ([] if self.is_over() or self.is_seeking() else record.attempts[-1:])
        asked = Counter(attempt.node_id for attempt in record.attempts)
        refused = {attempt.node_id for attempt in record.attempts if attempt.outcome is Outcome.REFUSED}
        assert asked.total() <= (5 + SEAMS_MAX + 1 if self.able else 5)
        assert self.able or not any(attempt.carried_tokens for attempt in record.attempts)
        assert max(asked.values(), default=0) <= 2
        assert {node for node, times in asked.items() if times > 1} <= refused  # asked again, with nothing promised

    @invariant()
    def a_node_gets_no_more_credit_than_it_sent_bytes(self) -> None:
        assert all(node.credit_bytes <= node.sent_bytes for node in self.stage.nodes.values() if node.opened)

    @invariant()
    def whoever_goes_on_has_what_the_client_has(self) -> None:
        attempt = self.run_.record.attempts[-1]
        if attempt.carried_chars and attempt.first_token_ms is None and not self.is_seeking() and not self.is_over():
            opened, body = self.node.opened[-1], self.node.latest_body
            assert body[len(body) - opened.continue_bytes :].decode() == text_of(self.stage.sink.body)

    def teardown(self) -> None:
        """However it was left, time ends every job."""
        if not hasattr(self, "stage"):
            return
        self.stage.clock.advance(self.stage.rules.job_s)
        assert self.is_over()
        self.stage.assert_nothing_left()
        sink = self.stage.sink
        assert sink.calls in ([["start", "finish"], ["fail"]] if not self.cancelled else [[], ["start"]])
        if sink.calls == ["start", "finish"] and not self.stream:
            assert msgspec.json.decode(sink.body)["choices"]


OneJob.TestCase.settings = settings(walks(60, steps=30), suppress_health_check=list(HealthCheck))
TestOneJob = OneJob.TestCase
