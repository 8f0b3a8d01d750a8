"""Asks nodes, over their links, to sign that they serve a provider: a registry takes no node key without that.

A node's answer is a stranger's word. It counts only as the answer to a question that was asked of that very node, and
only if the signature recovers to the node's own key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sparewatt.core.errors import NodeUnreachable, RateLimited, UnprocessableContent
from sparewatt.core.ids import NodeId
from sparewatt.protocol.contracts.meta_transactions import NodeKey
from sparewatt.protocol.link.frames import NodeKeyRequest, SignedNodeKey
from sparewatt.protocol.signing import BadSignature, recover_address
from sparewatt.protocol.typed_message import contract_domain, message_digest

ANSWER_S = 5.0
"""A round trip and a signature; a node signs between two tokens."""
WAITING_MAX = 256
"""Questions that are open at once at this process."""


@dataclass(slots=True, kw_only=True, eq=False)
class NodeKeyRequests:
    send: Callable[[NodeId, NodeKeyRequest], bool]
    """Over the node's link to this process; False if there is none."""
    _waiting: dict[tuple[NodeId, NodeKeyRequest], asyncio.Future[bytes]] = field(init=False, default_factory=dict)

    async def ask(self, node_id: NodeId, request: NodeKeyRequest) -> bytes:
        """The node key's signature, checked. Raises NodeUnreachable, UnprocessableContent or RateLimited."""
        answer = self._waiting.get((node_id, request)) or self._open(node_id, request)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise NodeUnreachable(f"The node {node_id} did not answer in time. Try again.") from None
        finally:
            self._waiting.pop((node_id, request), None)

    def receive(self, node_id: NodeId, signed: SignedNodeKey) -> None:
        """What a node sent. An answer to no question is dropped."""
        answer = self._waiting.get((node_id, signed.request))
        if answer is None or answer.done():
            return
        if signed.signature is None:
            why = signed.refusal or "it gives no reason"
            answer.set_exception(UnprocessableContent(f"The node did not sign that it serves this provider: {why}."))
        elif not is_signed_by(node_id, signed.request, bytes.fromhex(signed.signature)):
            answer.set_exception(UnprocessableContent("The node sent a signature that is not its key's own."))
        else:
            answer.set_result(bytes.fromhex(signed.signature))

    def _open(self, node_id: NodeId, request: NodeKeyRequest) -> asyncio.Future[bytes]:
        if len(self._waiting) >= WAITING_MAX:
            raise RateLimited("Too many nodes are being registered right now. Try again in a moment.")
        if not self.send(node_id, request):
            raise NodeUnreachable(f"The node {node_id} is not connected. Start it, then try again.")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        self._waiting[node_id, request] = answer
        return answer


def is_signed_by(node_id: NodeId, request: NodeKeyRequest, signature: bytes) -> bool:
    domain = contract_domain(chain_id=request.chain_id, contract=request.registry)
    try:
        return recover_address(message_digest(domain, NodeKey(request.provider, node_id)), signature) == node_id
    except BadSignature:
        return False


def _retrieve(answer: asyncio.Future[bytes]) -> None:
    """An answer that came after its caller had left is no unhandled error."""
    if not answer.cancelled():
        answer.exception()
