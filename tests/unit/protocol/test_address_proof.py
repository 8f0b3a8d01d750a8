"""The signature by which an address becomes an account's own."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.protocol.address_proof import address_proof_digest, address_proof_text, is_address_proof
from sparewatt.protocol.signing import SigningKey, keccak256

KEY, OTHER = SigningKey(bytes(31) + b"\x01"), SigningKey(bytes(31) + b"\x02")
ANN = AccountId("acc_ann")


def test_a_wallets_signature_of_the_text_is_a_proof() -> None:
    text = address_proof_text(KEY.address, ANN, chain_id=7).encode()
    digest = keccak256(b"\x19Ethereum Signed Message:\n" + str(len(text)).encode() + text)
    assert is_address_proof(KEY.address, ANN, chain_id=7, signature=KEY.sign(digest))


@pytest.mark.parametrize(
    ("address", "account", "chain_id"),
    [(OTHER.address, ANN, 7), (KEY.address, AccountId("acc_ben"), 7), (KEY.address, ANN, 8)],
)
def test_it_counts_for_one_address_account_and_chain(address: str, account: AccountId, chain_id: int) -> None:
    signature = KEY.sign(address_proof_digest(KEY.address, ANN, chain_id=7))
    assert not is_address_proof(address, account, chain_id=chain_id, signature=signature)


@pytest.mark.parametrize("signature", [b"", bytes(65), b"\xff" * 65, bytes(64)])
def test_what_is_no_signature_is_no_proof(signature: bytes) -> None:
    assert not is_address_proof(KEY.address, ANN, chain_id=7, signature=signature)
