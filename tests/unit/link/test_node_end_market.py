"""What a gateway says about the market of leases, on both ends of a link."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import LinkFlooded, ProtocolViolation
from sparewatt.protocol.link.frames import Opcode, decode_message, encode_frame, encode_message
from sparewatt.protocol.link.lease_frames import LeaseLookup, LeaseOutcome, MarketFacts
from sparewatt.protocol.link.lease_tasks import (
    ActKind,
    LeaseAct,
    LeaseReport,
    LeaseTask,
    ProgramPhase,
    TaskState,
)
from tests.unit.link.ends import lone_gateway, lone_node
from tests.unit.node.leases.lease_world import lookup, market

OUTCOME = LeaseOutcome(order_id="0x" + "1" * 64, attempt=0, result="standby", provider="0x" + "2" * 40, term=1)
TASK = LeaseTask(
    order_id="0x" + "1" * 64,
    attempt=0,
    term=1,
    state=TaskState.PENDING,
    renter=lookup().renter,
    renter_nonce=lookup().renter_nonce,
    policy=lookup().policy,
    specification=lookup().specification,
    content=lookup().content,
    lease_moves="0x" + "3" * 40,
    rate_uusd=1_000,
    confirm_by=99,
)
ACT = LeaseAct(kind=ActKind.ACCEPT, order_id=TASK.order_id, term=2, signature="ab" * 65)
REPORT = LeaseReport(order_id=TASK.order_id, term=1, phase=ProgramPhase.RUNNING, since=7)
FRAMES: list[tuple[Opcode, msgspec.Struct]] = [
    (Opcode.MARKET, market()),
    (Opcode.LOOKUP, lookup()),
    (Opcode.OUTCOME, OUTCOME),
    (Opcode.LEASE_TASK, TASK),
]


class Listener:
    def __init__(self) -> None:
        self.heard: list[msgspec.Struct] = []

    def on_market(self, facts: MarketFacts) -> None:
        self.heard.append(facts)

    def on_lookup(self, lookup: LeaseLookup) -> None:
        self.heard.append(lookup)

    def on_outcome(self, outcome: LeaseOutcome) -> None:
        self.heard.append(outcome)

    def on_task(self, task: LeaseTask) -> None:
        self.heard.append(task)


def test_a_gateway_sends_each_as_one_frame_of_the_link() -> None:
    link, wire, _, _ = lone_gateway()
    link.send_market(market())
    link.send_lookup(lookup())
    link.send_outcome(OUTCOME)
    link.send_task(TASK)
    sent = [(frame.op, frame.stream, frame.payload) for frame in wire.frames()]
    assert [(op, stream) for op, stream, _ in sent] == [(op, 0) for op, _ in FRAMES]
    for (_, _, payload), (_, message) in zip(sent, FRAMES, strict=True):
        assert decode_message(payload, type(message)) == message


def test_a_node_hears_them_in_their_order() -> None:
    link, _, _, _ = lone_node()
    link.market = listener = Listener()
    link.receive(b"".join(encode_message(op, message) for op, message in FRAMES))
    assert listener.heard == [message for _, message in FRAMES]


def test_a_node_without_leases_lets_them_pass() -> None:
    link, wire, _, _ = lone_node()
    link.receive(b"".join(encode_message(op, message) for op, message in FRAMES))
    assert wire.frames() == []


LIES: list[tuple[Opcode, msgspec.Struct, dict[str, Any]]] = [
    (Opcode.MARKET, market(), {"chain_id": 0}),
    (Opcode.MARKET, market(), {"task_manager": "0x" + "A" * 40}),
    (Opcode.MARKET, market(), {"validators": [{"vote_key": "0x" + "1" * 40, "url": "ftp://x", "weight": 1}]}),
    (Opcode.MARKET, market(), {"validators": [{"vote_key": "0x" + "1" * 40, "url": "https://a b", "weight": 1}]}),
    (Opcode.MARKET, market(), {"validators": [{"vote_key": "0x" + "1" * 40, "url": "https://x", "weight": 1}] * 65}),
    (Opcode.MARKET, market(), {"beat_ms": 1}),
    (Opcode.MARKET, market(), {"attempt_s": 0}),
    (Opcode.MARKET, market(), {"held": [{"order_id": "0x" + "1" * 64, "term": 1}] * 65}),
    (Opcode.LOOKUP, lookup(), {"order_id": "0x12"}),
    (Opcode.LOOKUP, lookup(), {"attempt": 1 << 32}),
    (Opcode.LOOKUP, lookup(), {"content": "x" * 65_537}),
    (Opcode.LOOKUP, lookup(), {"weights": {f"0x{number:040x}": 1 for number in range(65)}}),
    (Opcode.LOOKUP, lookup(), {"weights": {"alice": 1}}),
    (Opcode.LOOKUP, lookup(), {"policy": {str(number): 1 for number in range(33)}}),
    (Opcode.OUTCOME, OUTCOME, {"result": "maybe"}),
    (Opcode.OUTCOME, OUTCOME, {"term": -1}),
]


@pytest.mark.parametrize(("op", "message", "lie"), LIES)
def test_what_is_beyond_all_bounds_ends_the_link(op: Opcode, message: msgspec.Struct, lie: dict[str, Any]) -> None:
    link, _, _, _ = lone_node()
    link.market = listener = Listener()
    with pytest.raises(ProtocolViolation):
        link.receive(encode_frame(op, 0, msgspec.json.encode(msgspec.to_builtins(message) | lie)))
    assert listener.heard == []


def test_the_longest_lookup_fits_into_a_frame() -> None:
    longest = lookup(content='"' * 65_536, weights={f"0x{number:040x}": (1 << 63) - 1 for number in range(64)})
    link, _, _, _ = lone_node()
    link.market = listener = Listener()
    link.receive(encode_message(Opcode.LOOKUP, longest))
    assert listener.heard == [longest]


@pytest.mark.parametrize(("op", "message"), FRAMES)
def test_a_node_does_not_send_them(op: Opcode, message: msgspec.Struct) -> None:
    link, _, _, _ = lone_gateway()
    with pytest.raises(ProtocolViolation):
        link.receive(encode_message(op, message))


def test_a_gateway_hears_a_nodes_acts_and_reports() -> None:
    node, wire, _, _ = lone_node()
    for said in (ACT, REPORT):
        node.send_lease(said)
    gateway, _, observer, _ = lone_gateway()
    for frame in wire.frames():
        gateway.receive(encode_frame(frame.op, frame.stream, frame.payload))
    assert observer.lease_words == [ACT, REPORT]


def test_a_flood_of_acts_ends_the_link() -> None:
    gateway, _, _, _ = lone_gateway()
    with pytest.raises(LinkFlooded):
        gateway.receive(encode_message(Opcode.LEASE_REPORT, REPORT) * 10_000)
