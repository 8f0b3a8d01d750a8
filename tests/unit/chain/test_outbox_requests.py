"""The calls of requests in the outbox: their order, senders that fail, gaps, and fees that rise in two processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.outbox import TRANSFER_GAS, TRIES_MAX, OutboxSender
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.errors import ChainRefused, ChainReverted
from sparewatt.evm.model import BlockHeader, ContractCall, GasFees, TransactionReceipt
from sparewatt.evm.transactions import signed_gas_limit
from sparewatt.protocol.contracts.chain_events import SignedTransaction
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain import ChainStore, OutboxRow, OutboxState

ONE, OTHER = SigningKey(bytes(31) + b"\x0e"), SigningKey(bytes(31) + b"\x0f")
TO = "0x" + "b" * 40
CHAIN_ID = 31_337


def waiting(number: int, *, request_id: str | None = None, sender: SigningKey = ONE) -> OutboxRow:
    return OutboxRow(
        id=number,
        business_id=f"call:{number}",
        sender=sender.address,
        recipient=TO,
        data=number.to_bytes(4, "big"),
        gas_limit=None,
        state=OutboxState.DECIDED,
        nonce=None,
        tries=0,
        reason=None,
        block_number=None,
        block_hash=None,
        tx_hash=None,
        succeeded=None,
        lost_block=None,
        request_id=request_id,
    )


class Node(ChainClient):
    """Mines nothing. Estimates of calls in `refused` revert."""

    def __init__(self, *, refused: set[int] = frozenset(), base_fee_wei: int = 0) -> None:  # type: ignore[assignment]
        self.refused, self.base_fee_wei = refused, base_fee_wei
        self.sent: list[bytes] = []
        self.failing: str | None = None

    async def next_nonce(self, address: str) -> int:
        if address == self.failing:
            raise ChainRefused("The chain's node refused this.")
        return 0

    async def head(self) -> BlockHeader:
        return BlockHeader(9, bytes(32), bytes(32), 0, base_fee_wei=self.base_fee_wei)

    async def receipt(self, tx_hash: bytes) -> TransactionReceipt | None:
        return None

    async def has_transaction(self, tx_hash: bytes) -> bool:
        return True

    async def gas_limit(self, call: ContractCall, *, sender: str) -> int:
        if int.from_bytes(call.data, "big") in self.refused:
            raise ChainReverted("NOT_ALLOWED")
        return 50_000

    async def fees(self) -> GasFees:
        return GasFees(2 * self.base_fee_wei, 0)

    async def send(self, raw: bytes) -> bool:
        self.sent.append(raw)
        return True


class MemoryOutbox(ChainStore):
    def __init__(self, *rows: OutboxRow) -> None:
        self.by_id = {row.id: row for row in rows}
        self.next_nonces: dict[str, int] = {}
        self.filled: list[tuple[str, int]] = []
        self.is_raised_elsewhere = False

    async def list_open_senders(self, senders: Sequence[str]) -> list[str]:
        return [each for each in senders if any(row.sender == each for row in self.by_id.values())]

    async def list_in_flight(self, sender: str, *, limit: int) -> list[OutboxRow]:
        rows = [row for row in self.by_id.values() if row.sender == sender and row.signed]
        return sorted(rows, key=lambda row: row.nonce or 0)[:limit]

    async def list_decided(self, sender: str, *, limit: int) -> list[OutboxRow]:
        return [row for row in self.by_id.values() if row.sender == sender and row.state is OutboxState.DECIDED][:limit]

    async def sign(
        self, row: OutboxRow, *, nonce_min: int, gas_limit: int, sign: Callable[[int], SignedTransaction]
    ) -> SignedTransaction | None:
        nonce = self.next_nonces.get(row.sender, nonce_min)
        self.next_nonces[row.sender], signed = nonce + 1, sign(nonce)
        self.by_id[row.id] = replace(row, state=OutboxState.SIGNED, nonce=nonce, signed=(signed,))
        return signed

    async def sign_again(self, row: OutboxRow, signed: SignedTransaction) -> bool:
        if not self.is_raised_elsewhere:
            self.by_id[row.id] = replace(row, signed=(*row.signed, signed))
        return not self.is_raised_elsewhere

    async def fill_nonce(
        self, business_id: str, sender: str, *, nonce: int, gas_limit: int, signed: SignedTransaction
    ) -> bool:
        self.filled.append((business_id, signed_gas_limit(signed.raw)))
        return nonce != 1

    async def note_refused(self, row: OutboxRow, reason: str, *, tries_max: int) -> None:
        self.by_id[row.id] = replace(self.by_id[row.id], tries=row.tries + 1, reason=reason)

    async def note_sent(self, row: OutboxRow) -> None:
        pass

    async def finalize(self, *, depth: int) -> None:
        pass

    def signed_ids(self) -> list[int]:
        signed = [row for row in self.by_id.values() if row.nonce is not None]
        return [row.id for row in sorted(signed, key=lambda row: (row.sender, row.nonce))]


def sender_of(node: Node, store: MemoryOutbox, **changes: float) -> OutboxSender:
    return OutboxSender(node, store, TransactionSigner([ONE, OTHER]), CHAIN_ID, depth=3, **changes)  # type: ignore[arg-type]


async def test_a_call_gets_its_nonce_after_those_before_it_in_its_request() -> None:
    """The first call is refused so far: the second, which would be taken, must not run before it."""
    store = MemoryOutbox(waiting(1, request_id="a"), waiting(2, request_id="a"), waiting(3, request_id="b"))
    await sender_of(Node(refused={1}), store).step()
    assert store.signed_ids() == [3]
    assert [store.by_id[number].tries for number in (1, 2, 3)] == [1, 0, 0]


async def test_a_call_that_reverts_so_far_waits_for_the_calls_before_it() -> None:
    store = MemoryOutbox(waiting(1, request_id="a"), waiting(2, request_id="a"))
    sender = sender_of(Node(refused={2}), store)
    for _ in range(TRIES_MAX + 1):
        await sender.step()
    assert store.signed_ids() == [1]
    assert store.by_id[2].tries == 0  # the first is not mined: what the contract says now is no answer


async def test_a_sender_that_the_node_refuses_does_not_stop_the_others() -> None:
    store = MemoryOutbox(waiting(1), waiting(2, sender=OTHER))
    node = Node()
    node.failing = min(ONE.address, OTHER.address)  # the first in turn
    assert await sender_of(node, store).step()
    assert len(store.signed_ids()) == 1


def stuck(*, nonce: int = 0, age_s: float = 100.0, max_wei: int = 0) -> OutboxRow:
    version = SignedTransaction(nonce.to_bytes(32, "big"), b"raw", max_wei=max_wei, tip_wei=0, age_s=age_s)
    return replace(waiting(90 + nonce), state=OutboxState.SENT, nonce=nonce, signed=(version,), gas_limit=1)


@pytest.mark.parametrize(("age_s", "signed"), [(10.0, [90, 1]), (50.0, [90])])
async def test_a_key_that_is_stuck_signs_nothing_more(age_s: float, signed: list[int]) -> None:
    store = MemoryOutbox(stuck(age_s=age_s), waiting(1))
    store.next_nonces = {ONE.address: 1}
    await sender_of(Node(), store, stuck_s=45.0).step()
    assert store.signed_ids() == signed


async def test_missing_nonces_of_a_stuck_key_are_filled_and_sent_unless_somebody_did() -> None:
    store, node = MemoryOutbox(stuck(nonce=3, age_s=50.0)), Node()
    await sender_of(node, store).step()
    assert store.filled == [(f"gap:{ONE.address}:{nonce}", TRANSFER_GAS) for nonce in range(3)]
    assert len(node.sent) == 2


async def test_a_gap_that_may_still_close_is_left_alone() -> None:
    store = MemoryOutbox(stuck(nonce=3, age_s=10.0))
    await sender_of(Node(), store).step()
    assert store.filled == []


async def test_nothing_is_signed_while_gas_costs_more_than_allowed() -> None:
    store, node = MemoryOutbox(waiting(1)), Node(base_fee_wei=101)
    await sender_of(node, store, cap_wei=100).step()
    assert (store.signed_ids(), node.sent) == ([], [])
    await sender_of(node, store, cap_wei=101).step()
    assert store.signed_ids() == [1]


async def test_a_fee_that_another_process_raised_meanwhile_is_not_raised_twice() -> None:
    signed = TransactionSigner([ONE]).sign(
        ContractCall(TO, b""), sender=ONE.address, nonce=0, chain_id=CHAIN_ID, gas_limit=9, fees=GasFees(10, 0)
    )
    store, node = MemoryOutbox(replace(stuck(), signed=(signed,))), Node(base_fee_wei=1_000)
    store.is_raised_elsewhere = True
    await sender_of(node, store).step()
    assert node.sent == []
    store.is_raised_elsewhere = False
    await sender_of(node, store).step()
    assert len(node.sent) == 1
