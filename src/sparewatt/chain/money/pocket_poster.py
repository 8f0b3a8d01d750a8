"""Posts final events of the token, the pools, escrow and the registries to the ledger, each once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sparewatt.chain.client import ChainClient
from sparewatt.chain.follower import business_id
from sparewatt.chain.money.settlement_contract import call_view
from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contracts
from sparewatt.ledger.pockets import ChainParties, addresses_of, entry_of, is_too_large, keys_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.pockets import PocketEntry, PocketStore, PocketView

_log = Logger("sparewatt.chain")
ESCROW = "escrow"


async def chain_parties(client: ChainClient, contracts: Contracts) -> ChainParties:
    """Raises ContractsMissing without an escrow contract."""
    treasury = str(await call_view(client, contracts[ESCROW], "treasury")).lower()
    return ChainParties(frozenset(contracts.addresses.values()), treasury)


@dataclass(slots=True)
class PocketPoster:
    client: ChainClient
    contracts: Contracts
    store: PocketStore
    chain_tag: str
    """Of this chain: on another one, a transaction may have the same hash."""
    clock: Clock
    _parties: ChainParties | None = None

    async def handle(self, event: ChainEvent) -> None:
        """What is too large for the books, or concerns nobody of ours, is left out."""
        parties = await self._known_parties()
        event_id = f"{self.chain_tag}:{business_id(event)}"
        if is_too_large(event):
            _log.warning("event_not_posted", event_id=event_id, why="too large")
            return
        keys, addresses = keys_of(event, parties), addresses_of(event, parties)
        if event.event == "Transfer" and not await self.store.owners(addresses):
            return
        await self.store.book(
            event_id,
            keys=keys,
            addresses=addresses,
            tx_hash=event.tx_hash,
            position=(event.block_number, event.log_index),
            unix_s=self.clock.unix_s(),
            decide=partial(self._decide, event, event_id, parties),
        )

    def _decide(self, event: ChainEvent, event_id: str, parties: ChainParties, view: PocketView) -> PocketEntry:
        entry = entry_of(event, event_id, view, parties, unix_s=self.clock.unix_s())
        if event.event == "Deposited" and not entry.transfers:
            _log.warning("deposit_not_posted", event_id=event_id, why="nobody's address")
        return entry

    async def _known_parties(self) -> ChainParties:
        if self._parties is None:
            self._parties = await chain_parties(self.client, self.contracts)
        return self._parties
