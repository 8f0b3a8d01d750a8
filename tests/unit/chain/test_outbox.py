"""A pending transaction that pays too little is replaced, whatever the contract would answer to it by now."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from hexbytes import HexBytes

from sparewatt.chain.client import ChainClient
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.errors import ChainReverted, ChainUnavailable
from sparewatt.evm.model import BlockHeader, ContractCall, GasFees, TransactionReceipt
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain import ChainStore, OutboxRow, OutboxState

KEY = SigningKey(bytes(31) + b"\x0e")
SIGNER = TransactionSigner([KEY])
CALL = ContractCall("0x" + "b" * 40, b"\x01\x02\x03\x04")
GAS_LIMIT, NONCE, CHAIN_ID = 91_234, 5, 31_337


def pending_row(*, gas_limit: int | None) -> OutboxRow:
    signed = SIGNER.sign(
        CALL, sender=KEY.address, nonce=NONCE, chain_id=CHAIN_ID, gas_limit=GAS_LIMIT, fees=GasFees(100, 10)
    )
    return OutboxRow(
        id=1,
        business_id="payout:1",
        sender=KEY.address,
        recipient=CALL.to,
        data=CALL.data,
        gas_limit=gas_limit,
        state=OutboxState.SENT,
        nonce=NONCE,
        tries=0,
        reason=None,
        block_number=None,
        block_hash=None,
        tx_hash=None,
        succeeded=None,
        lost_block=None,
        signed=(signed,),
    )


class CongestedNode(ChainClient):
    """A node whose base fee has risen above what is pending, and whose contracts revert every call."""

    def __init__(self, fees: GasFees | ChainUnavailable) -> None:
        self.offered = fees
        self.sent: list[bytes] = []

    async def next_nonce(self, address: str) -> int:
        return NONCE

    async def head(self) -> BlockHeader:
        return BlockHeader(9, bytes(32), bytes(32), 0, base_fee_wei=1_000)

    async def receipt(self, tx_hash: bytes) -> TransactionReceipt | None:
        return None

    async def has_transaction(self, tx_hash: bytes) -> bool:
        return True

    async def gas_limit(self, call: ContractCall, *, sender: str) -> int:
        if call.gas_limit is not None:
            return call.gas_limit
        raise ChainReverted("PAST_DEADLINE")

    async def fees(self) -> GasFees:
        if isinstance(self.offered, ChainUnavailable):
            raise self.offered
        return self.offered

    async def send(self, raw: bytes) -> bool:
        self.sent.append(raw)
        return True


class OneRowStore(ChainStore):
    def __init__(self, row: OutboxRow) -> None:
        self.row = row

    async def list_open_senders(self, senders: Sequence[str]) -> list[str]:
        return list(senders)

    async def list_in_flight(self, sender: str, *, limit: int) -> list[OutboxRow]:
        return [self.row]

    async def list_decided(self, sender: str, *, limit: int) -> list[OutboxRow]:
        return []

    async def sign_again(self, row: OutboxRow, signed: SignedTransaction) -> bool:
        self.row = replace(self.row, signed=(*self.row.signed, signed))
        return True

    async def note_sent(self, row: OutboxRow) -> None:
        pass

    async def finalize(self, *, depth: int) -> None:
        pass


def sender_of(node: CongestedNode, store: OneRowStore) -> OutboxSender:
    return OutboxSender(node, store, SIGNER, chain_id=CHAIN_ID, depth=3)


@pytest.mark.parametrize("gas_limit", [GAS_LIMIT, None], ids=["its gas limit is stored", "its gas limit is not stored"])
async def test_the_fee_of_a_call_that_would_revert_by_now_is_raised_at_its_signed_gas_limit(
    gas_limit: int | None,
) -> None:
    node, store = CongestedNode(GasFees(2_000, 20)), OneRowStore(pending_row(gas_limit=gas_limit))
    assert await sender_of(node, store).step()
    first, replacement = store.row.signed
    assert node.sent == [replacement.raw]
    assert (replacement.max_wei, replacement.tip_wei) == (2_000, 20)
    before, after = (TypedTransaction.from_bytes(HexBytes(each.raw)).as_dict() for each in (first, replacement))
    assert (after["gas"], after["nonce"]) == (before["gas"], before["nonce"]) == (GAS_LIMIT, NONCE)


async def test_a_raised_fee_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparewatt.chain")
    node, store = CongestedNode(GasFees(2_000, 20)), OneRowStore(pending_row(gas_limit=None))
    await sender_of(node, store).step()
    assert "transaction_fee_raised" in caplog.messages


async def test_a_chain_that_does_not_answer_leaves_the_row_to_the_next_round() -> None:
    node, store = CongestedNode(ChainUnavailable("away")), OneRowStore(pending_row(gas_limit=None))
    with pytest.raises(ChainUnavailable):
        await sender_of(node, store).step()
    assert len(store.row.signed) == 1
    assert node.sent == []
