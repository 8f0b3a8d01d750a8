"""The text by which an address says that it belongs to an account, signed as wallets sign texts (EIP-191)."""

from __future__ import annotations

from sparewatt.core.ids import AccountId
from sparewatt.protocol.signing import BadSignature, keccak256, recover_address


def address_proof_text(address: str, account_id: AccountId, *, chain_id: int) -> str:
    """It names all three, so that no signature counts for another account or chain."""
    return f"Sparewatt: {address} is the address of account {account_id} on chain {chain_id}."


def address_proof_digest(address: str, account_id: AccountId, *, chain_id: int) -> bytes:
    text = address_proof_text(address, account_id, chain_id=chain_id).encode()
    return keccak256(b"\x19Ethereum Signed Message:\n" + str(len(text)).encode() + text)


def is_address_proof(address: str, account_id: AccountId, *, chain_id: int, signature: bytes) -> bool:
    try:
        return recover_address(address_proof_digest(address, account_id, chain_id=chain_id), signature) == address
    except BadSignature:
        return False
