"""Signs that this node's key serves a provider of leases. A pure decision.

A registry takes a node key only with the key's own signature, and for one provider for ever: so the owner decides, by
offering leases at all, and by naming a wallet if the provider is to be that and no other.
"""

from __future__ import annotations

from sparewatt.protocol.contracts.meta_transactions import NodeKey
from sparewatt.protocol.link.frames import NodeKeyRequest, SignedNodeKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest


def sign_node_key(
    request: NodeKeyRequest, *, key: SigningKey, offers_leases: bool, wallet: str | None
) -> SignedNodeKey:
    """`wallet`: the only provider that the owner allows; None for any that the gateway names."""
    if not offers_leases:
        return SignedNodeKey(request, refusal="its owner offers no leases: run 'sparewatt node leases on' there")
    if wallet is not None and wallet.lower() != request.provider:
        return SignedNodeKey(request, refusal=f"its owner allows no other provider than {wallet.lower()}")
    domain = contract_domain(chain_id=request.chain_id, contract=request.registry)
    return SignedNodeKey(request, key.sign(message_digest(domain, NodeKey(request.provider, key.address))).hex())
