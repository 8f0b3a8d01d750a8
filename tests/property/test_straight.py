"""A stream's pieces that go straight to the client leave the same behind as those that take the long way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import DirectPath, WriteBatch
from sparewatt.link.gateway_end import LINK_CREDIT_PARTS
from sparewatt.protocol.link.frames import Opcode, encode_frame
from tests.unit.inference.scripted import FINISH, ROLE, RecordingSink, ScriptedNode, Stage, event

DONE = b"data: [DONE]\n\n"
CHUNK = b"%x\r\n%b\r\n"


class Client(RecordingSink):
    """As an exchange does it: what is written while the client keeps up counts as taken."""

    def __init__(self, *, is_short: bool) -> None:
        super().__init__()
        self._is_short = is_short
        self._left: list[Any] = []
        self._batch = WriteBatch(self._left.append)
        self._direct = DirectPath(self._arrive, CHUNK, self._batch, is_open=True)
        self.run: JobRun | None = None
        self.is_paused = False
        self._untaken_bytes = 0
        self.wire = b""

    def data(self, data: bytes) -> None:
        self._arrive(self._direct.take_unwritten() + CHUNK % (len(data), data))
        if self.is_paused or self.run is None:
            self._untaken_bytes += len(data)
        else:
            self.run.consumed(len(data))

    def direct_path(self) -> DirectPath | None:  # type: ignore[override]
        return self._direct if self._is_short else None

    def turn_ends(self) -> None:
        while self._left:
            self._left.pop()()

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused, self._direct.is_open = is_paused, not is_paused
        if not is_paused and self.run is not None:
            n_bytes = self._untaken_bytes + self._direct.unread_bytes
            self._untaken_bytes = self._direct.unread_bytes = 0
            self.run.consumed(n_bytes)

    def finish(self) -> None:
        self.wire += self._direct.take_unwritten()
        super().finish()

    def _arrive(self, data: bytes) -> None:
        self.wire += data


@dataclass(frozen=True)
class Step:
    pieces: tuple[bytes, ...]
    wait_s: float
    in_one_message: bool
    turn_ends: bool
    pauses: bool | None


TEXT = st.text(min_size=1, max_size=12) | st.sampled_from(['"', "\\", "\n", "é", " a", "x" * 9000])
ODD = st.sampled_from([b": a comment\n\n", b"data: null\n\n", event({"reasoning": "x"}), b'data: {"id":"c1","cho'])
PIECE = TEXT.map(lambda text: event({"content": text})) | ODD
STEPS = st.lists(
    st.builds(
        Step,
        pieces=st.lists(PIECE, min_size=1, max_size=3).map(tuple),
        wait_s=st.floats(0, 3),
        in_one_message=st.booleans(),
        turn_ends=st.booleans(),
        pauses=st.none() | st.booleans(),
    ),
    max_size=14,
)


class Told:
    """One way of telling a client the answer."""

    def __init__(self, *, is_short: bool) -> None:
        self.stage = Stage(count=2)
        self.stage.sink = self.client = Client(is_short=is_short)
        for node in self.stage.nodes.values():
            node.link.credit_parts = LINK_CREDIT_PARTS
        self.run = self.client.run = self.stage.dispatch()
        self.node: ScriptedNode = self.stage.turn(self.run)
        self.node.begin(ROLE, event({"content": "a"}), event({"content": "b"}), event({"content": "c"}))

    def take(self, step: Step) -> None:
        self.stage.clock.advance(step.wait_s)
        if sum(map(len, step.pieces)) > self.node.may_send_bytes or self.client.over:
            return
        if step.in_one_message:
            self.node._sent[1] += sum(map(len, step.pieces))
            self.node.link.receive(b"".join(encode_frame(Opcode.DATA, 1, piece) for piece in step.pieces))
        else:
            self.node.data(*step.pieces)
        if step.turn_ends:
            self.client.turn_ends()
        if step.pauses is not None:
            self.client.pause(is_paused=step.pauses)

    def end(self) -> None:
        if not self.client.over:
            self.node.data(FINISH, DONE)
            self.node.end()
        self.client.turn_ends()

    def left(self) -> tuple[object, ...]:
        """All that another way must leave as well; the wire once the turn is over."""
        attempt, seen = self.run._attempt, self.run.record.attempts[0].delivered
        said = attempt.emitted if attempt is not None else None
        return (
            self.run.tokens,
            seen,
            said.text() if said is not None and not said.is_more_than_text else None,
            self.node.credit_bytes,
            self.run._passed_bytes,
            (attempt.was_throttled, attempt._heard_at_s, attempt._longest_pause_s) if attempt else None,
            self.client.calls,
            len(self.run.record.attempts),
        )


@settings(deadline=None)
@given(STEPS)
def test_the_short_way_leaves_what_the_long_way_does(steps: list[Step]) -> None:
    short, long = Told(is_short=True), Told(is_short=False)
    for step in steps:
        short.take(step)
        long.take(step)
        assert short.left() == long.left()
    short.end()
    long.end()
    assert short.left() == long.left()
    assert short.client.wire == long.client.wire


def test_alike_chunks_go_straight_and_others_do_not() -> None:
    told = Told(is_short=True)
    before = len(told.client.wire)
    told.node.data(event({"content": "d"}))
    assert len(told.client.wire) == before, "it waits for the end of the turn"
    told.node.data(event({"content": "e"}), event({"reasoning": "f"}))
    assert b'"e"' in told.client.wire, "what is read comes after it, not before"
    told.client.turn_ends()
    assert told.client.wire.index(b'"d"') < told.client.wire.index(b'"e"') < told.client.wire.index(b'"f"')


def test_what_broke_for_one_client_still_leaves_for_the_others() -> None:
    later: list[Any] = []
    batch = WriteBatch(later.append)
    arrived: list[bytes] = []

    def breaks(_: bytes) -> None:
        raise RuntimeError("gone")

    first, second = (DirectPath(write, CHUNK, batch, is_open=True) for write in (breaks, arrived.append))
    batch.pieces |= {first: b"1", second: b"2"}
    batch.schedule()
    for leave in later[:]:
        try:
            leave()
        except RuntimeError:
            later[-1]()
    assert arrived == [b"2"]
    assert not batch.pieces


def test_a_node_that_has_used_up_its_credit_has_had_to_wait_on_either_way() -> None:
    for is_short in (True, False):
        told = Told(is_short=is_short)
        told.client.pause(is_paused=True)
        frame_bytes = len(event({"content": ""}))
        told.node.data(event({"content": "x" * (told.node.may_send_bytes - frame_bytes)}))
        assert told.node.may_send_bytes == 0
        assert told.run._attempt is not None
        assert told.run._attempt.was_throttled
        told.client.pause(is_paused=False)
        assert told.node.may_send_bytes == told.node.opened[-1].window_bytes, "all was taken"
