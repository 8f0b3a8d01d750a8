"""Signed transactions of type 2 (EIP-1559), and the addresses of the contracts that transactions create. Pure."""

from __future__ import annotations

from sparewatt.evm.model import ContractCall, GasFees, bytes_of, hex_of
from sparewatt.evm.rlp import RlpItem, rlp_decode, rlp_encode, rlp_integer
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.protocol.signing import SigningKey, keccak256

TYPE_EIP1559 = b"\x02"


def sign_transaction(
    call: ContractCall, key: SigningKey, *, nonce: int, chain_id: int, gas_limit: int, fees: GasFees
) -> SignedTransaction:
    """Carries no ether. An empty `call.to` creates a contract out of the data. Raises ValueError for a number < 0."""
    numbers = (chain_id, nonce, fees.tip_wei, fees.max_wei, gas_limit)
    if min(numbers) < 0:
        raise ValueError("no number of a transaction is negative")
    no_value, no_access_list = b"", ()
    fields: list[RlpItem] = [*map(rlp_integer, numbers), bytes_of(call.to), no_value, call.data, no_access_list]
    signature = key.sign(keccak256(TYPE_EIP1559 + rlp_encode(fields)))
    y_parity = signature[64] - 27
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    raw = TYPE_EIP1559 + rlp_encode([*fields, *map(rlp_integer, (y_parity, r, s))])
    return SignedTransaction(keccak256(raw), raw, fees.max_wei, fees.tip_wei)


def signed_gas_limit(raw: bytes) -> int:
    """The gas limit in a signed transaction of type 2. Raises ValueError for other bytes."""
    match raw[:1], rlp_decode(raw[1:]):
        case b"\x02", [_, _, _, _, bytes(gas_limit), *_]:
            return int.from_bytes(gas_limit, "big")
    raise ValueError("this is no transaction of type 2")


def contract_address(deployer: str, nonce: int) -> str:
    """The address of the contract that this transaction creates (Ethereum's CREATE rule)."""
    return hex_of(keccak256(rlp_encode([bytes_of(deployer), rlp_integer(nonce)]))[12:])
