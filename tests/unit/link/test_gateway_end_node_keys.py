"""A gateway asks a node for its key's signature, and the node answers: both ends alone."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import LinkFlooded, ProtocolViolation
from sparewatt.link.node_end import GatewayLink
from sparewatt.protocol.link.frames import (
    NodeKeyRequest,
    Opcode,
    SignedNodeKey,
    decode_message,
    encode_frame,
    encode_message,
)
from tests.unit.link.ends import lone_gateway, lone_node

REQUEST = NodeKeyRequest(31337, "0x" + "a" * 40, "0x" + "b" * 40)
SIGNED = SignedNodeKey(REQUEST, "ab" * 65)


def test_the_question_leaves_as_one_frame_of_the_link() -> None:
    link, wire, _, _ = lone_gateway()
    link.request_node_key(REQUEST)
    (frame,) = wire.frames()
    assert (frame.op, frame.stream) == (Opcode.PROVIDER, 0)
    assert decode_message(frame.payload, NodeKeyRequest) == REQUEST


def test_the_answer_reaches_the_observer() -> None:
    link, _, observer, _ = lone_gateway()
    link.receive(encode_message(Opcode.NODE_KEY, SIGNED))
    assert observer.node_keys == [SIGNED]


@pytest.mark.parametrize("payload", [b"{}", b'{"request": {"chain_id": 0}}', b'{"signature": "zz"}', b"\xff"])
def test_an_answer_in_another_form_ends_the_link(payload: bytes) -> None:
    link, _, observer, _ = lone_gateway()
    with pytest.raises(ProtocolViolation):
        link.receive(encode_frame(Opcode.NODE_KEY, 0, payload))
    assert observer.node_keys == []


def test_a_flood_of_answers_ends_the_link() -> None:
    link, _, _, _ = lone_gateway()
    with pytest.raises(LinkFlooded):
        link.receive(encode_message(Opcode.NODE_KEY, SIGNED) * 1_000)


def test_a_node_that_offers_nothing_refuses() -> None:
    link, wire, _, _ = lone_node()
    link.receive(encode_message(Opcode.PROVIDER, REQUEST))
    (frame,) = wire.frames()
    reply = decode_message(frame.payload, SignedNodeKey)
    assert (frame.op, reply.request, reply.signature) == (Opcode.NODE_KEY, REQUEST, None)
    assert reply.refusal


def test_a_node_answers_with_what_its_agent_signs() -> None:
    link, wire, _, _ = lone_node()
    assert isinstance(link, GatewayLink)
    link.sign_node_key = lambda request: SignedNodeKey(request, "cd" * 65)
    link.receive(encode_message(Opcode.PROVIDER, REQUEST))
    (frame,) = wire.frames()
    assert decode_message(frame.payload, SignedNodeKey) == SignedNodeKey(REQUEST, "cd" * 65)
