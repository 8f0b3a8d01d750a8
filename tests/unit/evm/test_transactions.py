"""Signed transactions, held against eth_account: the same bytes for the same transaction."""

from __future__ import annotations

import random

import pytest
from eth_account import Account

from sparewatt.evm.model import ContractCall, GasFees, bytes_of
from sparewatt.evm.rlp import rlp_encode
from sparewatt.evm.transactions import contract_address, sign_transaction, signed_gas_limit
from sparewatt.protocol.signing import SigningKey

KEY = SigningKey(b"\x42" * 32)
TO = "0x" + "11" * 20


def their_bytes(call: ContractCall, key: SigningKey, **numbers: int) -> tuple[bytes, bytes]:
    transaction = {
        "type": 2,
        "chainId": numbers["chain_id"],
        "nonce": numbers["nonce"],
        "to": bytes_of(call.to),
        "data": call.data,
        "value": 0,
        "gas": numbers["gas_limit"],
        "maxFeePerGas": numbers["max_wei"],
        "maxPriorityFeePerGas": numbers["tip_wei"],
    }
    signed = Account.sign_transaction(transaction, key.secret_hex())
    return bytes(signed.hash), bytes(signed.raw_transaction)


@pytest.mark.parametrize("seed", range(60))
def test_a_transaction_has_the_bytes_that_eth_account_makes(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    key = SigningKey(rng.randbytes(32))
    call = ContractCall(rng.choice(["", f"0x{rng.randbytes(20).hex()}"]), rng.randbytes(rng.choice([0, 1, 4, 36, 500])))
    nonce, chain_id = rng.choice([0, 1, 127, 128, 1 << 40]), rng.choice([1, 31337, 1 << 31])
    gas_limit, max_wei = rng.randrange(21_000, 30_000_000), rng.choice([0, 7, 10**9, 10**13])
    tip_wei = rng.randint(0, max_wei)
    signed = sign_transaction(
        call, key, nonce=nonce, chain_id=chain_id, gas_limit=gas_limit, fees=GasFees(max_wei, tip_wei)
    )
    expected = their_bytes(
        call, key, nonce=nonce, chain_id=chain_id, gas_limit=gas_limit, max_wei=max_wei, tip_wei=tip_wei
    )
    assert (signed.tx_hash, signed.raw) == expected
    assert (signed.max_wei, signed.tip_wei) == (max_wei, tip_wei)
    assert signed_gas_limit(signed.raw) == gas_limit
    assert Account.recover_transaction(signed.raw).lower() == key.address


def test_a_negative_number_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="negative"):
        sign_transaction(ContractCall(TO, b""), KEY, nonce=-1, chain_id=1, gas_limit=21_000, fees=GasFees(1, 1))


@pytest.mark.parametrize(
    "raw", [b"", b"\x01", b"\x02\x80", b"\x02" + rlp_encode([b"a"] * 4), b"\x01" + rlp_encode([b"a"] * 9)]
)
def test_the_gas_limit_of_other_bytes_is_not_read(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"type 2|short|behind"):
        signed_gas_limit(raw)


def test_a_gas_limit_that_is_a_list_is_none() -> None:
    with pytest.raises(ValueError, match="type 2"):
        signed_gas_limit(b"\x02" + rlp_encode([b"a", b"a", b"a", b"a", [b"a"], b"a"]))


def test_a_contracts_address_follows_from_its_makers_and_a_count() -> None:
    maker = "0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0"  # the example everybody uses
    assert contract_address(maker, 0) == "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
    assert contract_address(maker, 1) == "0x343c43a37d37dff08ae8c4a11544c718abb4fcf8"
