"""What a node answers counts only for the question that it was asked, and only under its own key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparewatt.core.errors import NodeUnreachable, RateLimited, SparewattError, UnprocessableContent
from sparewatt.core.ids import NodeId
from sparewatt.core.rng import seeded
from sparewatt.leasing import node_keys
from sparewatt.leasing.node_keys import NodeKeyRequests
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.link.frames import NodeKeyRequest, SignedNodeKey
from sparewatt.protocol.signing import SigningKey

KEY, STRANGER = SigningKey.generate(rng=seeded(1)), SigningKey.generate(rng=seeded(2))
NODE = NodeId(KEY.address)
REGISTRY, PROVIDER, OTHER = ("0x" + digit * 40 for digit in "abc")
REQUEST = NodeKeyRequest(31337, REGISTRY, PROVIDER)


def signed_by(key: SigningKey, request: NodeKeyRequest = REQUEST) -> SignedNodeKey:
    return sign_node_key(request, key=key, offers_leases=True, wallet=None)


def answering(*answers: tuple[NodeId, SignedNodeKey]) -> NodeKeyRequests:
    """The node's link brings these, in order, once it is asked."""

    def send(_node: NodeId, _request: NodeKeyRequest) -> bool:
        for node_id, signed in answers:
            asyncio.get_running_loop().call_soon(requests.receive, node_id, signed)
        return True

    requests = NodeKeyRequests(send=send)
    return requests


async def test_a_nodes_own_signature_is_returned() -> None:
    signature = await answering((NODE, signed_by(KEY))).ask(NODE, REQUEST)
    assert signature.hex() == signed_by(KEY).signature


async def test_a_signature_of_another_key_is_refused() -> None:
    with pytest.raises(UnprocessableContent, match="not its key's own"):
        await answering((NODE, signed_by(STRANGER))).ask(NODE, REQUEST)


async def test_a_signature_for_another_provider_is_refused() -> None:
    elsewhere = signed_by(KEY, NodeKeyRequest(31337, REGISTRY, OTHER))
    forged = SignedNodeKey(REQUEST, elsewhere.signature)
    with pytest.raises(UnprocessableContent, match="not its key's own"):
        await answering((NODE, forged)).ask(NODE, REQUEST)


async def test_the_high_form_of_a_signature_is_refused() -> None:
    with pytest.raises(UnprocessableContent):
        await answering((NODE, SignedNodeKey(REQUEST, "ff" * 65))).ask(NODE, REQUEST)


async def test_an_answer_of_another_node_or_to_another_question_is_dropped() -> None:
    others = (NodeId(STRANGER.address), signed_by(STRANGER)), (NODE, signed_by(KEY, NodeKeyRequest(1, REGISTRY, OTHER)))
    requests = answering(*others, (NODE, signed_by(KEY)))
    assert await requests.ask(NODE, REQUEST)


async def test_a_refusal_is_told_in_the_nodes_words() -> None:
    with pytest.raises(UnprocessableContent, match="gone fishing"):
        await answering((NODE, SignedNodeKey(REQUEST, refusal="gone fishing"))).ask(NODE, REQUEST)


async def test_a_node_without_a_link_is_unreachable() -> None:
    with pytest.raises(NodeUnreachable, match="not connected"):
        await NodeKeyRequests(send=lambda _node, _request: False).ask(NODE, REQUEST)


async def test_a_silent_node_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_keys, "ANSWER_S", 0.01)
    requests = answering()
    with pytest.raises(NodeUnreachable, match="did not answer"):
        await requests.ask(NODE, REQUEST)
    requests.receive(NODE, signed_by(KEY))  # too late: nobody waits


async def test_two_that_ask_the_same_share_one_question() -> None:
    asked: list[NodeKeyRequest] = []

    def send(_node: NodeId, request: NodeKeyRequest) -> bool:
        asked.append(request)
        return True

    requests = NodeKeyRequests(send=send)
    both = [asyncio.create_task(requests.ask(NODE, REQUEST)) for _ in range(2)]
    await asyncio.sleep(0)
    requests.receive(NODE, signed_by(KEY))
    assert len({await each for each in both}) == 1
    assert asked == [REQUEST]


async def test_questions_that_are_open_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_keys, "WAITING_MAX", 1)
    requests = answering()
    first = asyncio.create_task(requests.ask(NODE, REQUEST))
    await asyncio.sleep(0)
    with pytest.raises(RateLimited):
        await requests.ask(NODE, NodeKeyRequest(1, REGISTRY, OTHER))
    await _cancelled(first)


async def _cancelled(task: asyncio.Task[bytes]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("make", [lambda: signed_by(STRANGER), lambda: SignedNodeKey(REQUEST, refusal="no")])
async def test_a_failed_answer_that_nobody_awaits_is_no_unhandled_error(make: Callable[[], SignedNodeKey]) -> None:
    requests = answering()
    task = asyncio.create_task(requests.ask(NODE, REQUEST))
    await asyncio.sleep(0)
    answer = requests._waiting[NODE, REQUEST]
    task.cancel()
    requests.receive(NODE, make())
    await asyncio.gather(task, return_exceptions=True)
    assert isinstance(answer.exception(), SparewattError)
