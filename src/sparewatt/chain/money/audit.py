"""Compares the books with the chain when a gateway asks for it: contracts' views at the final block, and the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.settlement_contract import SETTLEMENT, TOKEN, call_view, credit_pool, settlement_pool
from sparewatt.core.ids import AccountId
from sparewatt.evm.contract_abi import Contracts
from sparewatt.ledger.chain_audit import (
    DIFFERENCES_MAX,
    balance_differences,
    pocket_differences,
    pool_differences,
    uncovered_nano,
)
from sparewatt.protocol.api.ledger import ChainAudit
from sparewatt.store.database import Database
from sparewatt.store.payouts import CREDIT_POOL_ID, REWARD_POOL_ID
from sparewatt.store.pockets import OwnedPocketRow, Pocket, PocketKey

PAYING_CONTRACTS = ("escrow", "stake_registry", "dispute_book")
"""They keep what they owe to an address until it is withdrawn."""


@dataclass(frozen=True, slots=True)
class ChainAuditor:
    client: ChainClient
    database: Database
    contracts: Contracts
    depth: int

    async def step(self) -> None:
        """Runs when all final events are posted, so that the books are at the final block."""
        audit = self.database.chain_audit
        row, index = await audit.read(), await self.database.chain.index()
        if row.answered >= row.asked or index is None:
            return
        report = await self.compare(final_block=index.final_block(depth=self.depth))
        await audit.answer(row.asked, msgspec.json.encode(report).decode())

    async def compare(self, *, final_block: int) -> ChainAudit:
        audit, pockets = self.database.chain_audit, self.database.pockets
        rows, held = await pockets.owned(), await pockets.held_addresses()
        settlement = self.contracts[SETTLEMENT]
        pool = await credit_pool(self.client, settlement, at_block=final_block)
        rewards = await settlement_pool(self.client, settlement, REWARD_POOL_ID, at_block=final_block)
        flows = await audit.pool_flows(up_to_block=final_block, pool_id=CREDIT_POOL_ID)
        reward_flows = await audit.pool_flows(up_to_block=final_block, pool_id=REWARD_POOL_ID)
        differences = [
            *pocket_differences(rows, await self._on_chain(rows, held.items(), final_block)),
            *balance_differences(rows, await audit.pocket_balances()),
            *pool_differences(flows, funded=pool.funded, paid=pool.paid),
            *pool_differences(reward_flows, funded=rewards.funded, paid=rewards.paid, name="rewards"),
        ]
        uncovered = uncovered_nano(await audit.books_owe(), pool_micro=pool.funded - pool.paid)
        shortfall = await audit.shortfall()
        return ChainAudit(
            in_order=not differences and uncovered <= 0 and not shortfall,
            block=final_block,
            addresses=len(held),
            differences=differences[:DIFFERENCES_MAX],
            pool_micro=pool.funded - pool.paid,
            uncovered_nano=max(0, uncovered),
            shortfall_nano=-shortfall,
        )

    async def _on_chain(
        self, rows: Iterable[OwnedPocketRow], held: Iterable[tuple[str, AccountId]], block: int
    ) -> dict[PocketKey, tuple[AccountId, int]]:
        """What the contracts say of every held address, and of every lease that is booked."""
        found: dict[PocketKey, tuple[AccountId, int]] = {}
        for address, account in held:
            if TOKEN in self.contracts:
                found[Pocket.WALLET, address] = account, await self._view(TOKEN, "balanceOf", address, block)
            found[Pocket.BOND, address] = account, await self._bond(address, block)
            for contract in PAYING_CONTRACTS:
                owed = await self._view(contract, "owed", address, block)
                found[Pocket.OWED, f"{contract}:{address}"] = account, owed
        for row in rows:
            if row.pocket is Pocket.ESCROW:
                deposit = await self._view("escrow", "deposit_of", bytes.fromhex(row.id[2:]), block)
                found[row.pocket, row.id] = row.account_id, deposit
        return found

    async def _bond(self, address: str, block: int) -> int:
        contract = self.contracts["stake_registry"]
        free, locked, unbonding, _ = await call_view(self.client, contract, "bond_of", address, at_block=block)
        return int(free) + int(locked) + int(unbonding)

    async def _view(self, contract: str, function: str, argument: object, block: int) -> int:
        return int(await call_view(self.client, self.contracts[contract], function, argument, at_block=block))
