"""Any single fault at any step of any node's turn: a stream ends in [DONE], in an error object, or by its client.

The dispatcher and the links are the real ones; the nodes do their turn step by step, and at one step something happens.
Whoever takes over is held to the contract of a continuation: it gets the request and, behind it, what the client has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import msgspec
import pytest

from sparewatt.core.errors import ProtocolViolation
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from tests.unit.inference.nodes import a_model, some_specs
from tests.unit.inference.scripted import DONE, ScriptedNode, Stage

ABLE = some_specs(a_model(capabilities=("chat", "continue_raw")))
WORDS = [f"word-{n} " for n in range(6)]
TEXT = "".join(WORDS)
REQUEST = {"model": "llama-3-8b", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50}
BODY = msgspec.json.encode(REQUEST)


def chunk(name: str, delta: dict[str, object], finish: str | None = None) -> bytes:
    told = {"id": name, "created": 1, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + msgspec.json.encode(told) + b"\n\n"


def steps(node: ScriptedNode) -> Iterator[Callable[[], None]]:
    """A node's turn: what it does, one thing after the other. It writes what is left of TEXT."""
    opened = node.opened[-1]
    body = node.latest_body
    carried = body[len(body) - opened.continue_bytes :].decode()
    assert TEXT.startswith(carried)
    rest, name = WORDS[carried.count(" ") :], f"chatcmpl-{node.id[-2:]}"
    usage = {"prompt_tokens": 7 + carried.count(" "), "completion_tokens": len(rest)}
    yield lambda: None
    yield node.head
    yield lambda: node.data(chunk(name, {"role": "assistant", "content": ""}))
    for word in rest:
        yield lambda word=word: node.data(chunk(name, {"content": word}))  # type: ignore[misc]
    yield lambda: node.data(chunk(name, {}, "stop"))
    yield lambda: node.data(b"data: " + msgspec.json.encode({"id": name, "choices": [], "usage": usage}) + b"\n\n")
    yield lambda: node.data(DONE)
    yield node.end


N_STEPS = 3 + len(WORDS) + 4
"""Of a turn that writes the whole answer: opened, head, role, words, finish, usage, [DONE], end."""


def link_lost(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    node.lost()


def error_frame(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    node.fail("backend_broke")


def refusal(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    node.fail("refused", "no room")


def exception_on_the_node(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    node.fail("protocol", "the node stumbled (KeyError)")


def backend_timeout(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    node.fail("backend_timeout")


def stall(stage: Stage, _node: ScriptedNode, run: JobRun) -> None:
    """Until it is given up, and not longer: whoever takes over does not stall."""
    attempts = len(run.record.attempts)
    for _ in range(240):
        if len(run.record.attempts) > attempts or run.record.outcome is not Outcome.RUNNING:
            return
        stage.clock.advance(0.5)


def out_of_time(stage: Stage, _: ScriptedNode, __: JobRun) -> None:
    stage.clock.advance(stage.rules.job_s)


def client_leaves(_: Stage, __: ScriptedNode, run: JobRun) -> None:
    run.cancel()


def said(*frames: bytes) -> Callable[[Stage, ScriptedNode, JobRun], None]:
    """Data that no model server should send."""

    def say(_: Stage, node: ScriptedNode, __: JobRun) -> None:
        _do(lambda: node.data(*frames), node)

    return say


def head_again(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    _do(lambda: node.head(500), node)


def early_end(_: Stage, node: ScriptedNode, __: JobRun) -> None:
    _do(node.end, node)


FAULTS = {
    "link lost": link_lost,
    "error frame": error_frame,
    "refusal": refusal,
    "node exception": exception_on_the_node,
    "backend timeout": backend_timeout,
    "stall": stall,
    "garbage": said(b"data: <html>\n\n"),
    "half an event": said(b'data: {"choices": [{"del'),
    "error event": said(b'data: {"error": {"message": "out of memory"}}\n\n'),
    "comment and garbage": said(b": busy\n\n" + b"data: \xff\xfe\n\n"),
    "error status": head_again,
    "early end": early_end,
    "job timer": out_of_time,
    "client leaves": client_leaves,
}


def play(stage: Stage, run: JobRun, blows: dict[tuple[int, int], str]) -> None:
    """Every node has its turn, step by step; a blow falls after a step of a turn."""
    for turn in range(12):
        attempts = len(run.record.attempts)
        if run.record.outcome is not Outcome.RUNNING:
            return
        node = stage.turn(run)
        for number, step in enumerate(steps(node)):
            if len(run.record.attempts) > attempts or run.record.outcome is not Outcome.RUNNING:
                break
            _do(step, node)
            if (turn, number) in blows:
                FAULTS[blows[turn, number]](stage, node, run)
        stage.clock.advance(1.0)  # who waits for a node looks again


def _do(step: Callable[[], None], node: ScriptedNode) -> None:
    """A node that breaks the link's own rules loses its link, as a gateway would have it."""
    try:
        step()
    except ProtocolViolation:
        node.lost()


def judge(stage: Stage, run: JobRun, *, left: bool = False) -> str:
    """How it ended, having checked that it is one of the ways in which it may."""
    sink = stage.sink
    stage.assert_nothing_left()
    assert run.record.outcome is not Outcome.RUNNING
    if left:
        assert run.record.outcome is Outcome.CANCELLED
        return "left"
    if sink.calls == ["fail"]:
        return "error reply"
    assert sink.calls == ["start", "finish"]
    *events, last, rest = sink.body.split(b"\n\n")
    assert rest == b""
    told = [msgspec.json.decode(event.removeprefix(b"data: ")) for event in events]
    choices = [choice for each in told for choice in each["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert len({each["id"] for each in told}) == 1
    assert sum("role" in choice["delta"] for choice in choices) <= 1
    if last == b"data: [DONE]":
        assert text == TEXT
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
        assert [each["usage"]["completion_tokens"] for each in told if each.get("usage")] == [len(WORDS)]
        return "done"
    assert set(msgspec.json.decode(last.removeprefix(b"data: "))) == {"error"}
    assert TEXT.startswith(text)
    assert b"[DONE]" not in sink.body
    return "error object"


@pytest.mark.parametrize(("step", "fault"), list(product(range(N_STEPS), FAULTS)))
def test_a_fault_at_any_step_is_mended(step: int, fault: str) -> None:
    stage = Stage(4, specs=ABLE)
    run = stage.dispatch(body=BODY, wants_usage=True)
    play(stage, run, {(0, step): fault})
    left = fault == "client leaves" and step < N_STEPS - 1
    ended = judge(stage, run, left=left)
    has_begun = bool(stage.sink.pieces)
    if fault == "job timer" and step < N_STEPS - 4:
        assert ended == ("error object" if has_begun else "error reply")
    elif not left:
        assert ended == "done"


@pytest.mark.parametrize(("step", "fault"), list(product(range(8), FAULTS)))
def test_a_fault_of_the_node_that_took_over_is_mended_too(step: int, fault: str) -> None:
    stage = Stage(4, specs=ABLE)
    run = stage.dispatch(body=BODY, wants_usage=True)
    play(stage, run, {(0, 5): "link lost", (1, step): fault})
    left = fault == "client leaves"
    ended = judge(stage, run, left=left)
    if fault == "job timer":
        assert ended in ("error object", "done")
    elif not left:
        assert ended == "done"


@pytest.mark.parametrize(("step", "fault"), list(product(range(N_STEPS), FAULTS)))
def test_what_nobody_can_go_on_with_ends_in_an_error_object(step: int, fault: str) -> None:
    """Nobody says that it can."""
    stage = Stage(4)
    run = stage.dispatch(body=BODY, wants_usage=True)
    play(stage, run, {(0, step): fault})
    ended = judge(stage, run, left=fault == "client leaves" and step < N_STEPS - 1)
    assert ended in ("done", "error object", "error reply", "left")
    if 3 <= step < 2 + len(WORDS) and fault not in ("client leaves", "half an event", "early end"):
        assert ended == "error object"
