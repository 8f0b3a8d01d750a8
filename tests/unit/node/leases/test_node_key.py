from __future__ import annotations

import pytest

from sparewatt.core.rng import seeded
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.contracts.meta_transactions import NodeKey
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.signing import SigningKey, recover_address
from sparewatt.protocol.typed_message import contract_domain, message_digest

KEY = SigningKey.generate(rng=seeded(1))
REGISTRY, PROVIDER, OTHER = ("0x" + digit * 40 for digit in "abc")
REQUEST = NodeKeyRequest(31337, REGISTRY, PROVIDER)


def signer_of(signature: str, *, chain_id: int = 31337, registry: str = REGISTRY, provider: str = PROVIDER) -> str:
    digest = message_digest(contract_domain(chain_id=chain_id, contract=registry), NodeKey(provider, KEY.address))
    return recover_address(digest, bytes.fromhex(signature))


def test_the_node_signs_for_the_provider_it_was_asked_about() -> None:
    signed = sign_node_key(REQUEST, key=KEY, offers_leases=True, wallet=None)
    assert signed.request == REQUEST
    assert signed.refusal is None
    assert signer_of(signed.signature or "") == KEY.address


def test_the_signature_is_for_one_provider_at_one_registry_of_one_chain() -> None:
    signature = sign_node_key(REQUEST, key=KEY, offers_leases=True, wallet=None).signature or ""
    for elsewhere in ({"chain_id": 1}, {"registry": OTHER}, {"provider": OTHER}):
        assert signer_of(signature, **elsewhere) != KEY.address


def test_a_node_that_offers_no_leases_signs_nothing() -> None:
    signed = sign_node_key(REQUEST, key=KEY, offers_leases=False, wallet=None)
    assert signed.signature is None
    assert "sparewatt node leases on" in (signed.refusal or "")


@pytest.mark.parametrize(
    ("wallet", "signs"), [(PROVIDER, True), (PROVIDER.upper().replace("X", "x"), True), (OTHER, False)]
)
def test_an_owner_may_allow_one_wallet_only(wallet: str, *, signs: bool) -> None:
    signed = sign_node_key(REQUEST, key=KEY, offers_leases=True, wallet=wallet)
    assert (signed.signature is not None) is signs
    assert (signed.refusal is None) is signs
