"""The operator's transactions: nonces without gaps, replacements that pay more, and reasons that are told."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.evm.client import EvmClient
from sparewatt.evm.model import ContractCall, GasFees, TransactionReceipt
from sparewatt.evm.rlp import rlp_decode
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.testing.clocks import InstantClock
from sparewatt.validator.transaction_sender import REPLACEMENTS_MAX, UNDER_WAY_MAX, TransactionSender

KEY = SigningKey(b"\1" * 32)
CALL = ContractCall("0x" + "22" * 20, b"\1\2\3\4")


@dataclass
class SmallChain:
    """A node's pool, mined by hand or at once."""

    mined: dict[bytes, TransactionReceipt] = field(default_factory=dict)
    pool: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Nonce and fee, by hash."""
    nonce: int = 7
    mines: bool = True
    takes: bool = True
    least_fee: int = 0
    reverts: str | None = None
    fails_in_block: bool = False

    async def gas_limit(self, call: ContractCall, *, sender: str) -> int:
        assert sender == KEY.address
        if self.reverts is not None and not self.fails_in_block:
            raise ChainReverted(self.reverts)
        return 100_000 if call.gas_limit is None else call.gas_limit

    async def next_nonce(self, address: str) -> int:
        assert address == KEY.address
        return self.nonce

    async def fees(self) -> GasFees:
        return GasFees(100, 10)

    async def send(self, raw: bytes) -> bool:
        if not self.takes:
            return False
        fields = cast("list[bytes]", rlp_decode(raw[1:]))
        nonce, fee = int.from_bytes(fields[1], "big"), int.from_bytes(fields[3], "big")
        self.pool[keccak256(raw)] = (nonce, fee)
        if self.mines:
            self.mine()
        return True

    def mine(self) -> None:
        for tx_hash, (nonce, fee) in sorted(self.pool.items(), key=lambda item: item[1]):
            if nonce == self.nonce and fee >= self.least_fee:
                self.mined[tx_hash] = TransactionReceipt(tx_hash, 1, b"", not self.fails_in_block, 21_000)
                self.nonce += 1

    async def has_transaction(self, tx_hash: bytes) -> bool:
        return tx_hash in self.pool

    async def receipt(self, tx_hash: bytes) -> TransactionReceipt | None:
        return self.mined.get(tx_hash)

    async def call(self, call: ContractCall, *, sender: str) -> bytes:
        if self.reverts is not None:
            raise ChainReverted(self.reverts)
        return b""


def a_sender(chain: SmallChain) -> TransactionSender:
    client: Any = chain
    return TransactionSender(cast(EvmClient, client), KEY, 31337, InstantClock())


async def test_transactions_follow_each_other_without_gaps() -> None:
    chain = SmallChain()
    sender = a_sender(chain)
    assert [(await sender.send(CALL)).succeeded for _ in range(3)] == [True] * 3
    assert sorted(nonce for nonce, _ in chain.pool.values()) == [7, 8, 9]


async def test_several_at_once_get_nonces_of_their_own() -> None:
    """On a chain that mines later, the count in blocks stays the same for all of them."""
    chain = SmallChain(mines=False)
    sender = a_sender(chain)
    sends = [asyncio.create_task(sender.send(CALL)) for _ in range(4)]
    for _ in range(200):
        if len(chain.pool) == 4:
            break
        await asyncio.sleep(0)
    chain.mine()
    assert [receipt.succeeded for receipt in await asyncio.gather(*sends)] == [True] * 4
    assert sorted({nonce for nonce, _ in chain.pool.values()}) == [7, 8, 9, 10]


async def test_what_would_revert_is_not_sent() -> None:
    chain = SmallChain(reverts="ALREADY_MATCHED")
    with pytest.raises(ChainReverted) as caught:
        await a_sender(chain).send(CALL)
    assert (caught.value.reason, chain.pool) == ("ALREADY_MATCHED", {})


async def test_what_reverts_in_its_block_says_why() -> None:
    chain = SmallChain(fails_in_block=True, reverts="NOT_OPEN")
    with pytest.raises(ChainReverted) as caught:
        await a_sender(chain).send(CALL)
    assert caught.value.reason == "NOT_OPEN"
    chain.reverts = None
    with pytest.raises(ChainReverted, match="no reason given"):
        await a_sender(chain).send(CALL)


async def test_a_transaction_that_pays_too_little_is_replaced_under_its_nonce() -> None:
    chain = SmallChain(least_fee=150)
    receipt = await a_sender(chain).send(CALL)
    assert receipt.succeeded
    assert {nonce for nonce, _ in chain.pool.values()} == {7}
    fees = sorted(fee for _, fee in chain.pool.values())
    assert len(fees) == 3
    assert all(later * 10 >= earlier * 11 for earlier, later in itertools.pairwise(fees))


async def test_replacements_end() -> None:
    chain = SmallChain(mines=False)
    sender = a_sender(chain)
    with pytest.raises(ChainUnavailable):
        await sender.send(CALL)
    assert len(chain.pool) == 1 + REPLACEMENTS_MAX
    assert sender._under_way == set(), "its nonce is free again"


async def test_a_node_that_takes_nothing_is_told_with_a_likely_cause() -> None:
    with pytest.raises(ChainRefused, match="enough for gas"):
        await a_sender(SmallChain(takes=False)).send(CALL)


async def test_a_node_that_has_it_already_is_no_refusal() -> None:
    """The answer to the first submission was lost; the node refuses the second as known."""

    class Known(SmallChain):
        async def send(self, raw: bytes) -> bool:
            await super().send(raw)
            return False

    assert (await a_sender(Known()).send(CALL)).succeeded


async def test_a_chain_that_does_not_mine_gets_no_endless_queue() -> None:
    chain = SmallChain(mines=False)
    sender = a_sender(chain)
    sender._under_way = set(range(UNDER_WAY_MAX))
    with pytest.raises(ChainUnavailable, match="Too many"):
        await sender.send(CALL)
    assert chain.pool == {}
