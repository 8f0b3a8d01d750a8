"""Providers of leases: a node that its owner registers, bonds, pauses, or takes out of the market.

The network keeps one key for each such node, so an owner needs no wallet. An act is a chain request: it is stored, and
the chain's process carries it out whether or not anyone waits. What a provider is comes from the chain's events alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from sparewatt.accounts.custody import Custody
from sparewatt.core.errors import (
    ChainUnavailable,
    ContractsOutdated,
    IdReused,
    InvalidField,
    LeasesOff,
    NoChain,
    NotOwner,
    ProviderNotFound,
    RateLimited,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import Nano, format_usd
from sparewatt.evm.contract_abi import Contract, shipped_abis
from sparewatt.leasing.claims import claims_of
from sparewatt.leasing.node_keys import NodeKeyRequests
from sparewatt.ledger.chain_request_client import ChainRequestClient, is_finished
from sparewatt.ledger.request_holds import FreeIdleSlices, hold_for_request
from sparewatt.protocol.api.providers import BondSource
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.database import Database
from sparewatt.store.providers import ProviderRow, ProviderState, ProviderStatus
from sparewatt.store.request_params import ChainRequestKind, ProviderParams, RegisterParams, StatusParams

REGISTRY = "provider_registry"
NANO_PER_MICRO = 1_000
_TAKEN_PART = frozenset(
    {ProviderStatus.REGISTERED, ProviderStatus.ACTIVE, ProviderStatus.MAINTENANCE, ProviderStatus.SUSPENDED}
)
_HIS_OWN = "Its key is in your wallet, not with this network: send this from there."


@dataclass(frozen=True, slots=True)
class ProviderView:
    row: ProviderRow
    state: ProviderState


@dataclass(frozen=True, slots=True)
class ProviderChange:
    provider: ProviderView
    """Afterwards."""
    request: ChainRequestRow | None
    """None if there was nothing to do."""
    is_new: bool


@dataclass(frozen=True, slots=True)
class WalletTransaction:
    """What an owner's wallet sends to register a provider by itself."""

    chain_id: int
    to: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderService:
    database: Database
    requests: ChainRequestClient
    node_keys: NodeKeyRequests
    custody: Custody
    claim: Callable[[AccountId], Awaitable[object]]
    """Brings all that an account has earned, and can claim, to its address."""
    specs_of: Callable[[NodeId], NodeSpecs | None]
    """What a node reports; None for one that is not known here."""
    is_test_money: bool
    """Whether free credits count as money on the chain."""
    free_idle_slices: FreeIdleSlices | None
    """None on a network that charges nothing."""
    has_chain: bool = True

    # reads

    async def list_of(self, account_id: AccountId) -> Sequence[ProviderView]:
        """Raises NoChain: an empty list would say that registering helps."""
        self._require_any_chain()
        rows = await self.database.providers.list_of(account_id)
        states = await self.database.providers.states([row.address for row in rows])
        return [ProviderView(row, states[row.address]) for row in rows]

    async def find(self, account_id: AccountId | None, wanted: str) -> ProviderView:
        """By its own address or its node's; with an account, only one of that account. Raises ProviderNotFound."""
        self._require_any_chain()
        providers, address = self.database.providers, wanted.lower()
        row = await providers.find_by_address(address) or await providers.find_by_node(NodeId(address))
        if row is None or account_id not in (None, row.account_id):
            raise ProviderNotFound(f"You have no provider {wanted[:60]!r}. 'sparewatt providers list' shows yours.")
        return await self._read(row)

    async def _read(self, row: ProviderRow) -> ProviderView:
        return ProviderView(row, (await self.database.providers.states([row.address]))[row.address])

    # registering

    async def register(self, account_id: AccountId, node_id: NodeId) -> ProviderChange:
        """Register the node under an address that is made for it, and activate it. A second time changes nothing."""
        index = await self._require_chain()
        specs = await self._check_node(account_id, node_id)
        provider = await self._ensure(account_id, node_id)
        if provider.state.status in _TAKEN_PART or not provider.row.is_held:
            return ProviderChange(provider, None, is_new=False)
        row = provider.row
        signature = await self.node_keys.ask(node_id, _key_request(index, row.address))
        claims = claims_of(specs)
        number = await self.database.chain_requests.count_finished(row.address, ChainRequestKind.REGISTER)
        request = NewChainRequest(
            f"register:{row.address}:{number}",  # the same for two clicks at once, another after the first has ended
            ChainRequestKind.REGISTER,
            account_id,
            row.address,
            params=RegisterParams(
                node_id=node_id,
                country=claims.country,
                zone=claims.zone,
                tier=claims.tier,
                gpu_model=claims.gpu_model,
                vram_gb=claims.vram_gb,
                gpu_units=claims.gpu_units,
                price_hint_uusd=claims.price_hint_uusd,
                metadata_hash="0x" + bytes(32).hex(),
                node_key=node_id,
                node_key_signature="0x" + signature.hex(),
            ),
        )
        return await self._do(request, row)

    async def wallet_transaction(self, account_id: AccountId, node_id: NodeId, *, wallet: str) -> WalletTransaction:
        """The transaction by which the owner's own wallet registers the node; nothing is stored."""
        index = await self._require_chain()
        specs = await self._check_node(account_id, node_id)
        found = await self.database.providers.find_by_node(node_id)
        if found is not None and (await self._read(found)).state.status is not ProviderStatus.UNREGISTERED:
            raise UnprocessableContent(
                f"This node serves the provider {found.address}, and a node serves one for ever."
            )
        signature = await self.node_keys.ask(node_id, _key_request(index, wallet.lower()))
        registry = Contract(REGISTRY, index.contracts[REGISTRY], shipped_abis()[REGISTRY].abi)
        claims = (*msgspec.structs.astuple(claims_of(specs)), bytes(32))
        call = registry.encode_call("register", claims, node_id, signature)
        return WalletTransaction(index.chain_id, call.to, call.data)

    async def _check_node(self, account_id: AccountId, node_id: NodeId) -> NodeSpecs:
        """What the account's own node reports. Raises NotOwner or LeasesOff."""
        owner, specs = await self.database.find_node_owner(node_id), self.specs_of(node_id)
        if owner is None or owner.account_id != account_id:
            raise NotOwner(f"The node {node_id} is not yours: only its owner registers it.")
        if specs is None or not specs.leases:
            raise LeasesOff(
                f"The node {node_id} offers no leases. Turn them on at the machine: 'sparewatt node leases on'."
            )
        return specs

    async def _ensure(self, account_id: AccountId, node_id: NodeId) -> ProviderView:
        """The node's provider, whose key is made if it has none."""
        providers = self.database.providers
        if await providers.find_by_node(node_id) is None:
            key = self.custody.make(account_id, node_id)
            await providers.ensure(node_id, account_id=account_id, address=key.address, sealed=key.sealed)
        return await self.find(account_id, node_id)

    # bonds and status

    async def bond(
        self, account_id: AccountId, wanted: str, nano: Nano, *, reference: str, source: BondSource = "credits"
    ) -> ProviderChange:
        """Add to its bond, out of the account's credits or of what it earned. Raises InsufficientCredits.

        Where money is no test money, credits become tokens with a payout root, which takes the network's time: the
        request goes on then after the reply.
        """
        row, micro = await self._require_registered(account_id, wanted), _micro(nano)
        account = await self.database.accounts.find_account(account_id)
        if account is None or account.chain_address is None:
            raise InvalidField("This account has no address on the chain.")
        request_id, params = f"bond:{account_id}:{reference}", ProviderParams(provider=row.address)
        request = NewChainRequest(request_id, ChainRequestKind.BOND, account_id, account.chain_address, micro, params)
        if await self.database.chain_requests.find(request_id) is None:
            await self._provide(request, nano, source)
        return await self._do(request, row, waits=self.is_test_money or source != "credits")

    async def _provide(self, request: NewChainRequest, nano: Nano, source: BondSource) -> None:
        """Hold the credits, which become tokens at the account's address; or claim what was earned to that address."""
        if source == "earnings":
            await self.claim(request.account_id)
            return
        await hold_for_request(
            self.database.credit_holds,
            request,
            nano,
            with_promo=self.is_test_money,
            free_idle_slices=self.free_idle_slices,
        )

    async def unbond(self, account_id: AccountId, wanted: str, nano: Nano, *, reference: str) -> ProviderChange:
        """Take free bond out. It waits for the network's time, then comes back into the account's credits."""
        row, micro = await self._require_registered(account_id, wanted, held=True), _micro(nano)
        request_id = f"unbond:{account_id}:{reference}"
        free = (await self._read(row)).state.bond.free
        if micro > free and await self.database.chain_requests.find(request_id) is None:
            has = format_usd(free * NANO_PER_MICRO)
            raise UnprocessableContent(f"Its free bond is ${has}: no more can be taken out. What is locked stays.")
        params = ProviderParams(provider=row.address)
        request = NewChainRequest(request_id, ChainRequestKind.UNBOND, account_id, row.address, micro, params)
        return await self._do(request, row)

    async def set_status(
        self, account_id: AccountId, wanted: str, status: ProviderStatus, *, reference: str
    ) -> ProviderChange:
        row = await self._require_registered(account_id, wanted, held=True)
        request_id = f"status:{account_id}:{reference}"
        provider = await self._read(row)
        if provider.state.status is status and await self.database.chain_requests.find(request_id) is None:
            return ProviderChange(provider, None, is_new=False)
        params = StatusParams(provider=row.address, status=status.value)
        request = NewChainRequest(request_id, ChainRequestKind.STATUS, account_id, row.address, params=params)
        return await self._do(request, row)

    async def _require_registered(self, account_id: AccountId, wanted: str, *, held: bool = False) -> ProviderRow:
        """`held`: also that the network has its key."""
        await self._require_chain()
        provider = await self.find(account_id, wanted)
        if provider.state.status is ProviderStatus.UNREGISTERED:
            raise UnprocessableContent("This provider is not registered yet: 'sparewatt providers register NODE'.")
        if held and not provider.row.is_held:
            raise UnprocessableContent(_HIS_OWN)
        return provider.row

    # chain requests

    def _require_any_chain(self) -> None:
        if not self.has_chain:
            raise NoChain("A provider of leases")

    async def _require_chain(self) -> ChainIndexRow:
        self._require_any_chain()
        index = await self.database.chain.index()
        if index is None or REGISTRY not in index.contracts:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")
        return index

    async def _do(self, new: NewChainRequest, row: ProviderRow, *, waits: bool = True) -> ProviderChange:
        """Submit the request and wait for it. Raises IdReused, or UnprocessableContent if the chain refused it."""
        try:
            is_new, stored = await self.requests.submit(new)
        except (RateLimited, ContractsOutdated):
            await self.database.credit_holds.release_unasked(new.id, new.account_id)
            raise
        is_same = new.kind is ChainRequestKind.REGISTER or (stored.micro, stored.params) == (new.micro, new.params)
        if not is_same:
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        hint = "It goes on by itself; 'sparewatt providers show' tells how far it is."
        done = await self.requests.wait(new.id, hint=hint, until=is_settled) if waits else stored
        if done.state is ChainRequestState.FAILED:
            raise UnprocessableContent(f"Nothing was done: {done.reason}")
        return ProviderChange(await self._read(row), done, is_new=is_new)


def is_settled(row: ChainRequestRow) -> bool:
    """Whether the chain has decided. An unbonding has then begun, and its end is known."""
    return is_finished(row) or (row.kind is ChainRequestKind.UNBOND and (row.step > 1 or "ready_at" in row.result))


def _key_request(index: ChainIndexRow, provider: str) -> NodeKeyRequest:
    return NodeKeyRequest(index.chain_id, index.contracts[REGISTRY].lower(), provider)


def _micro(nano: Nano) -> int:
    if nano % NANO_PER_MICRO:
        raise InvalidField("Money on the chain has six decimals: round the amount.", param="usd")
    return nano // NANO_PER_MICRO
