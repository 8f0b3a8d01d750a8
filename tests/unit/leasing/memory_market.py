"""A network's database as far as providers need it, in memory, with a chain that does what it is asked at once."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from sparewatt.accounts.custody import Custody
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.leasing.node_keys import NodeKeyRequests
from sparewatt.leasing.provider_service import ProviderService
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import AccountRow
from sparewatt.store.chain import ChainIndexRow, ChainStore
from sparewatt.store.chain_requests import (
    OPEN_REQUESTS_MAX,
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    NewChainRequest,
    RequestUse,
)
from sparewatt.store.credit_holds import CreditHoldRow, CreditHoldStore
from sparewatt.store.database import Database, NodeOwner
from sparewatt.store.providers import (
    BondAmounts,
    ProviderRow,
    ProviderState,
    ProviderStatus,
    ProviderStore,
    SealedProviderKey,
)
from sparewatt.store.request_params import ChainRequestKind
from sparewatt.testing.clocks import InstantClock
from tests.unit.gateway.small_gateway import ListDatabase, NoPeople
from tests.unit.protocol.reports import SPECS

REGISTRY = "0x" + "e" * 40
OWNER, OTHER = AccountId("acc_lender"), AccountId("acc_other")
KEY = SigningKey.generate(rng=seeded(5))
NODE = NodeId(KEY.address)
OFFERED = msgspec.structs.replace(SPECS, leases=True)


class MemoryProviders(ProviderStore):
    def __init__(self) -> None:
        self.rows: dict[NodeId, ProviderRow] = {}
        self.keys: dict[str, SealedProviderKey] = {}
        self.known: dict[str, ProviderState] = {}

    async def ensure(self, node_id: NodeId, *, account_id: AccountId, address: str, sealed: bytes) -> None:
        if node_id not in self.rows:
            self.rows[node_id] = ProviderRow(address, node_id, account_id, is_held=True)
            self.keys[address] = SealedProviderKey(account_id, node_id, sealed)

    async def find_key(self, address: str) -> SealedProviderKey | None:
        return self.keys.get(address)

    async def find_by_node(self, node_id: NodeId) -> ProviderRow | None:
        return self.rows.get(node_id)

    async def find_by_address(self, address: str) -> ProviderRow | None:
        return next((row for row in self.rows.values() if row.address == address), None)

    async def list_of(self, account_id: AccountId) -> list[ProviderRow]:
        return [row for row in self.rows.values() if row.account_id == account_id]

    async def states(self, addresses: Sequence[str]) -> Mapping[str, ProviderState]:
        return {address: self.known.get(address, ProviderState()) for address in addresses}


class MemoryRequests(ChainRequestStore):
    """The chain does each request as soon as it is stored, or refuses it with `refusal`."""

    def __init__(self, providers: MemoryProviders) -> None:
        self.rows: dict[str, ChainRequestRow] = {}
        self.refusal: str | None = None
        self.is_stuck = self.is_full = False
        self.trouble: str | None = None
        self._providers = providers

    async def insert(self, new: NewChainRequest, *_: Any, **__: Any) -> bool:
        if new.id in self.rows or self.is_full:
            return False
        plain = ChainRequestRow(new.id, new.kind, new.account_id, new.address, new.micro, new.params)
        if self.is_stuck:
            self.rows[new.id] = plain
        elif self.refusal is not None:
            self.rows[new.id] = replace(plain, state=ChainRequestState.FAILED, reason=self.refusal)
        else:
            self._carry_out(new)
            self.rows[new.id] = replace(plain, state=ChainRequestState.DONE, tx="0xtx")
        return True

    async def problem(self) -> str | None:
        return self.trouble

    async def find(self, request_id: str) -> ChainRequestRow | None:
        return self.rows.get(request_id)

    async def use_of(self, account_id: AccountId, kind: ChainRequestKind, *, seconds: float) -> RequestUse:
        recent = [row for row in self.rows.values() if (row.account_id, row.kind) == (account_id, kind)]
        return RequestUse(OPEN_REQUESTS_MAX, [seconds] * len(recent))

    async def count_finished(self, address: str, kind: ChainRequestKind) -> int:
        ended = {ChainRequestState.DONE, ChainRequestState.FAILED}
        return sum((row.address, row.kind) == (address, kind) and row.state in ended for row in self.rows.values())

    def _carry_out(self, new: NewChainRequest) -> None:
        provider = new.address if new.kind is ChainRequestKind.REGISTER else new.params.provider
        state = self._providers.known.get(provider, ProviderState())
        bond = state.bond
        match new.kind:
            case ChainRequestKind.REGISTER:
                state = replace(state, status=ProviderStatus.ACTIVE)
            case ChainRequestKind.STATUS:
                state = replace(state, status=ProviderStatus(new.params.status))
            case ChainRequestKind.BOND:
                state = replace(state, bond=replace(bond, free=bond.free + new.micro))
            case _:
                moved = BondAmounts(bond.free - new.micro, bond.locked, bond.unbonding + new.micro)
                state = replace(state, bond=moved)
        self._providers.known[provider] = state


class MemoryHolds(CreditHoldStore):
    def __init__(self, requests: MemoryRequests) -> None:
        self._requests = requests
        self.free_nano = 0
        self.held: dict[str, tuple[int, bool]] = {}

    async def hold(self, hold: CreditHoldRow, *, with_promo: bool, nano: int) -> CreditHoldRow | None:
        if nano > self.free_nano:
            return None
        self.free_nano -= nano
        self.held[hold.id] = (nano, with_promo)
        return replace(hold, paid_nano=Nano(nano))

    async def release_unasked(self, hold_id: str, account_id: AccountId) -> bool:
        del account_id
        if hold_id in self._requests.rows:
            return False
        nano, _ = self.held.pop(hold_id, (0, False))
        self.free_nano += nano
        return nano > 0


class MemoryChain(ChainStore):
    def __init__(self) -> None:
        self.is_up = True

    async def index(self) -> ChainIndexRow | None:
        contracts = {"provider_registry": REGISTRY}
        return ChainIndexRow(31337, bytes(32), contracts, 0, 0, bytes(32), 0, 1) if self.is_up else None


class MemoryAccounts(NoPeople):
    address: str | None = "0x" + "d" * 40

    async def find_account(self, id_or_email: str) -> AccountRow | None:
        born = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        return AccountRow(AccountId(id_or_email), "n", "owner", None, self.address, born, None, None)


class MarketDatabase(ListDatabase):
    def __init__(self) -> None:
        super().__init__()
        self.providers = self.held_providers = MemoryProviders()
        self.chain_requests = self.sent = MemoryRequests(self.held_providers)
        self.credit_holds = self.holds = MemoryHolds(self.sent)
        self.chain = self.index_of = MemoryChain()
        self.accounts = self.people = MemoryAccounts()
        self.node_owners: dict[NodeId, AccountId] = {NODE: OWNER}

    async def find_node_owner(self, node_id: NodeId) -> NodeOwner | None:
        owner = self.node_owners.get(node_id)
        return None if owner is None else NodeOwner(owner, closed=False)


@dataclass
class Market:
    database: MarketDatabase = field(default_factory=MarketDatabase)
    specs: NodeSpecs | None = OFFERED
    claimed: list[AccountId] = field(default_factory=list)
    asked: list[NodeKeyRequest] = field(default_factory=list)
    clock: InstantClock = field(default_factory=InstantClock)
    idle_nano: int = 0
    """What gateways have reserved of the owner's credits and do not need."""

    async def free_idle_slices(self, _: AccountId) -> None:
        self.database.holds.free_nano += self.idle_nano
        self.idle_nano = 0

    def service(self, database: Database | None = None, *, is_test_money: bool = True) -> ProviderService:
        def send(node_id: NodeId, request: NodeKeyRequest) -> bool:
            self.asked.append(request)
            signed = sign_node_key(request, key=KEY, offers_leases=True, wallet=None)
            asyncio.get_running_loop().call_soon(keys.receive, node_id, signed)
            return True

        async def claim(account_id: AccountId) -> None:
            self.claimed.append(account_id)

        keys = NodeKeyRequests(send=send)
        return ProviderService(
            database=database or self.database,
            requests=ChainRequestClient(self.database.chain_requests, self.clock),
            node_keys=keys,
            custody=Custody(bytes(32), rng=seeded(3)),
            claim=claim,
            specs_of=lambda _: self.specs,
            is_test_money=is_test_money,
            free_idle_slices=self.free_idle_slices,
        )
