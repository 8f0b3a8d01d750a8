"""/v1/providers: an owner's nodes as providers of leases. Nobody acts for a node of another account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.money.credits import amount_of, reference_of, usable_reference
from sparewatt.api.money.statements import AccountFinder, amounts, select_account
from sparewatt.core.errors import NotFound, NotOwner
from sparewatt.core.ids import NodeId
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.leasing.provider_service import ProviderChange, ProviderService, ProviderView
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.api.providers import (
    BondBody,
    Provider,
    ProviderChanged,
    ProviderList,
    ProviderRequest,
    ProviderStatusName,
    RegisterBody,
    StatusBody,
    UnbondBody,
    WalletBody,
    WalletTransactionReply,
)
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.providers import BondAmounts, ProviderStatus

STATUS_NAMES: dict[ProviderStatus, ProviderStatusName] = dict(
    zip(ProviderStatus, get_args(ProviderStatusName), strict=True)
)


@dataclass(slots=True, kw_only=True)
class ProviderEndpoints:
    providers: ProviderService
    accounts: AccountFinder
    nodes: NodeTable
    rng: Rng
    """Makes ids for requests without one."""

    @endpoint("GET /v1/providers", access="node", query=("account",))
    async def list_providers(self, request: web.Request, principal: Principal) -> ProviderList:
        """List your nodes that are providers of leases; operators may name another account."""
        found = await self.providers.list_of(await select_account(request, principal, self.accounts))
        return ProviderList(data=[self._describe(provider) for provider in found])

    @endpoint("GET /v1/providers/{provider}", access="node")
    async def show_provider(self, request: web.Request, principal: Principal) -> Provider:
        """Show a provider of yours, by its address or its node's; operators see all."""
        account_id = None if principal.is_operator else principal.account_id
        return self._describe(await self.providers.find(account_id, self._wanted(request)))

    @endpoint("POST /v1/providers", access="node", body=RegisterBody, status=201, other_statuses=(200,))
    async def register_provider(self, request: web.Request, principal: Principal) -> Reply[ProviderChanged]:
        """Register a node of yours as a provider, under an address whose key the network keeps for you."""
        body = await read_json(request, RegisterBody)
        return self._reply(await self.providers.register(principal.account_id, find_node(self.nodes, body.node).id))

    @endpoint("POST /v1/providers/wallet", access="node", body=WalletBody)
    async def make_wallet_transaction(self, request: web.Request, principal: Principal) -> WalletTransactionReply:
        """Make the transaction by which your own wallet registers a node of yours. Nothing is sent or stored."""
        body = await read_json(request, WalletBody)
        node_id = find_node(self.nodes, body.node).id
        made = await self.providers.wallet_transaction(principal.account_id, node_id, wallet=body.wallet)
        return WalletTransactionReply(
            chain_id=made.chain_id, sender=body.wallet.lower(), to=made.to, data=f"0x{made.data.hex()}"
        )

    @endpoint("POST /v1/providers/{provider}/bond", access="admin", body=BondBody, status=201, other_statuses=(200,))
    async def add_bond(self, request: web.Request, principal: Principal) -> Reply[ProviderChanged]:
        """Add to a provider's bond, out of your credits or of your earnings."""
        body = await read_json(request, BondBody)
        nano, reference = amount_of(body), reference_of(body, rng=self.rng)
        wanted, account_id = await self._wanted_by_owner(request, principal), principal.account_id
        return self._reply(await self.providers.bond(account_id, wanted, nano, reference=reference, source=body.source))

    @endpoint(
        "POST /v1/providers/{provider}/unbond", access="admin", body=UnbondBody, status=201, other_statuses=(200,)
    )
    async def take_bond(self, request: web.Request, principal: Principal) -> Reply[ProviderChanged]:
        """Take free bond out. It stays at risk for the network's unbonding time, then becomes credits."""
        body = await read_json(request, UnbondBody)
        nano, reference = amount_of(body), reference_of(body, rng=self.rng)
        wanted, account_id = await self._wanted_by_owner(request, principal), principal.account_id
        return self._reply(await self.providers.unbond(account_id, wanted, nano, reference=reference))

    @endpoint("POST /v1/providers/{provider}/status", access="node", body=StatusBody, status=201, other_statuses=(200,))
    async def set_status(self, request: web.Request, principal: Principal) -> Reply[ProviderChanged]:
        """Take leases, pause for maintenance, or leave the market."""
        body = await read_json(request, StatusBody)
        reference = usable_reference(body.id, rng=self.rng)
        wanted, status = await self._wanted_by_owner(request, principal), ProviderStatus[body.status.upper()]
        return self._reply(await self.providers.set_status(principal.account_id, wanted, status, reference=reference))

    def _wanted(self, request: web.Request) -> str:
        """The address that the path names, of a provider or a node; or a node's, by its name."""
        text = request.match_info["provider"]
        try:
            return text if text.startswith("0x") else find_node(self.nodes, text).id
        except NotFound:
            return text

    async def _wanted_by_owner(self, request: web.Request, principal: Principal) -> str:
        """Raises NotOwner for an operator, who sees every provider but acts for its own only."""
        wanted = self._wanted(request)
        if principal.is_operator:
            owner = (await self.providers.find(None, wanted)).row.account_id
            if owner != principal.account_id:
                raise NotOwner(
                    f"The provider {wanted[:60]!r} belongs to {owner}: only a key of that account acts for it. "
                    "'sparewatt providers show' shows it to operators."
                )
        return wanted

    def _reply(self, change: ProviderChange) -> Reply[ProviderChanged]:
        """201, or 200 for what changed nothing."""
        changed = ProviderChanged(
            changed=change.is_new,
            request=None if change.request is None else _request_of(change.request),
            provider=self._describe(change.provider),
        )
        return Reply(changed, status=201 if change.is_new else 200)

    def _describe(self, provider: ProviderView) -> Provider:
        row, state = provider.row, provider.state
        node = self.nodes.get(NodeId(row.node_id))
        return Provider(
            id=row.address,
            node=row.node_id,
            name=node.specs.name if node is not None else row.node_id,
            held=row.is_held,
            status=STATUS_NAMES[state.status],
            offers_leases=node is not None and node.connected and node.specs.leases,
            unbonded_at=state.unbonded_unix_s,
            **_bond_amounts(state.bond),
        )


def _request_of(row: ChainRequestRow) -> ProviderRequest:
    return ProviderRequest(id=row.id, kind=row.kind.value, state=row.state.value, tx=row.tx)


def _bond_amounts(bond: BondAmounts) -> dict[str, Any]:
    micro = {"bond": bond.total, "free": bond.free, "locked": bond.locked, "unbonding": bond.unbonding}
    return amounts(**{name: amount * NANO_PER_MICRO for name, amount in micro.items()})
