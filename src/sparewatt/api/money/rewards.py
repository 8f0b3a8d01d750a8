"""/v1/rewards: eras with their inputs, for everybody; what an account got; deposits into the pool; where rewards go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.money.credits import amount_of, reference_of
from sparewatt.api.money.statements import AccountFinder, read_page, select_account
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, NotFound, NotOwner
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import format_usd
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.edge.middleware import context_of
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger import chart
from sparewatt.ledger.credits import CreditService
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.api.credits import AmountBody
from sparewatt.protocol.api.rewards import (
    AccountReward,
    AccountRewardList,
    Era,
    EraList,
    EraReply,
    RewardFunding,
    RewardTarget,
    RewardTargetBody,
)
from sparewatt.store.eras import AccountRewardRow, EraRow, EraStore
from sparewatt.store.ledger import LedgerStore
from sparewatt.store.payouts import PayoutBatchRow, PayoutStore
from sparewatt.store.providers import ProviderStore
from sparewatt.trust.rewards.era import reward_era
from sparewatt.trust.rewards.rule import read_inputs

_ERA = re.compile(r"[1-9]\d{0,17}")


@dataclass(slots=True, kw_only=True)
class RewardEndpoints:
    accounts: AccountFinder
    eras: EraStore
    payouts: PayoutStore
    """Of the pool of rewards."""
    books: LedgerStore
    credits: CreditService
    providers: ProviderStore
    nodes: NodeTable
    owners: Mapping[NodeId, AccountId]
    era_s: int
    public_limiter: PublicRateLimiter
    clock: Clock
    rng: Rng

    @endpoint("GET /v1/rewards", access="node", query=("limit", "after", "account"))
    async def list_rewards(self, request: web.Request, principal: Principal) -> AccountRewardList:
        """List what the nodes of your account got, by era; operators may name another account."""
        page = read_page(request, now_unix_s=self.clock.unix_s())
        account = await select_account(request, principal, self.accounts)
        rows = await self.eras.rewards_of(account, before=_era_or_none(page.after), limit=page.limit)
        waiting, posted, claimed = await self.payouts.payout_totals(account)
        return AccountRewardList(
            data=[_account_reward(row) for row in rows],
            next=page.next(rows, lambda row: row.era),
            waiting_micro=waiting,
            waiting_usd=_usd(waiting),
            posted_micro=posted,
            posted_usd=_usd(posted),
            claimed_micro=claimed,
            claimed_usd=_usd(claimed),
        )

    @endpoint("GET /v1/rewards/eras", access="public", query=("limit", "after"))
    async def list_eras(self, request: web.Request) -> EraList:
        """List the eras, newest first, and what the pool holds."""
        self.public_limiter.admit(address=context_of(request).address)
        page = read_page(request, now_unix_s=self.clock.unix_s())
        rows = await self.eras.list(before=_era_or_none(page.after), limit=page.limit)
        held = await self._held()
        return EraList(
            data=[_era(row, await self._batch(row)) for row in rows],
            next=page.next(rows, lambda row: row.era),
            held_nano=held,
            held_usd=format_usd(held),
            era_s=self.era_s,
        )

    @endpoint("GET /v1/rewards/eras/{era}", access="public")
    async def show_era(self, request: web.Request) -> EraReply:
        """Show an era: its inputs, and what every node and validator got, with each factor."""
        self.public_limiter.admit(address=context_of(request).address)
        number = request.match_info["era"]
        row = await self.eras.find(int(number)) if _ERA.fullmatch(number) else None
        if row is None:
            raise NotFound(f"There is no era {number[:40]!r}. 'sparewatt rewards eras' shows those that have ended.")
        inputs = read_inputs(row.inputs)
        listed = msgspec.structs.asdict(_era(row, await self._batch(row)))
        return EraReply(**listed, inputs=inputs, rewards=reward_era(inputs))

    @endpoint("POST /v1/rewards/fund", access="operator", body=AmountBody, status=201, other_statuses=(200,))
    async def fund_rewards(self, request: web.Request, _: Principal) -> Reply[RewardFunding]:
        """Put money into the pool of rewards, for the next eras. Operators only."""
        body = await read_json(request, AmountBody)
        reference = reference_of(body, rng=self.rng)
        posted = await self.credits.fund_rewards(amount_of(body), reference=reference)
        held = await self._held()
        funding = RewardFunding(id=reference, posted=posted, held_nano=held, held_usd=format_usd(held))
        return Reply(funding, status=201 if posted else 200)

    @endpoint("POST /v1/nodes/{node_id}/reward-target", access="node", body=RewardTargetBody)
    async def set_target(self, request: web.Request, principal: Principal) -> RewardTarget:
        """Choose where a node's rewards go: to your account's address, or into its provider's bond."""
        body = await read_json(request, RewardTargetBody)
        row = find_node(self.nodes, request.match_info["node_id"])
        if not principal.is_operator and self.owners.get(row.id) != principal.account_id:
            raise NotOwner("This node belongs to another account. Only its owner decides where its rewards go.")
        provider = await self.providers.find_by_node(row.id)
        if body.to == "bond" and (provider is None or not provider.is_held):
            raise InvalidField(
                "The network holds no provider's key for this node, so there is no bond to pay into. "
                "'sparewatt providers register NODE' makes one.",
                param="to",
            )
        await self.eras.set_to_bond(row.id, to_bond=body.to == "bond")
        return RewardTarget(node=row.id, to=body.to)

    async def _held(self) -> int:
        return (await self.books.balances([chart.REWARDS]))[chart.REWARDS]

    async def _batch(self, row: EraRow) -> PayoutBatchRow | None:
        return None if row.epoch is None else await self.payouts.find_batch(row.epoch)


def _era_or_none(text: str) -> int | None:
    if not text:
        return None
    if not _ERA.fullmatch(text):
        raise InvalidField("'after' is the number of an era.", param="after")
    return int(text)


def _era(row: EraRow, batch: PayoutBatchRow | None) -> Era:
    is_posted = batch is not None and batch.posted_unix_s is not None
    return Era(
        era=row.era,
        since=row.since,
        until=row.until,
        pool_micro=row.pool_micro,
        pool_usd=_usd(row.pool_micro),
        given_micro=row.given_micro,
        given_usd=_usd(row.given_micro),
        carried_nano=row.carried_nano,
        inputs_hash="0x" + row.inputs_hash.hex(),
        epoch=row.epoch,
        root=None if batch is None else "0x" + batch.root.hex(),
        state="empty" if batch is None else "claimable" if batch.is_ripe else "posted" if is_posted else "ready",
    )


def _account_reward(row: AccountRewardRow) -> AccountReward:
    total = row.availability_micro + row.uptime_micro + row.quality_micro
    return AccountReward(
        era=row.era,
        until=row.until,
        node=row.node_id,
        availability_micro=row.availability_micro,
        uptime_micro=row.uptime_micro,
        quality_micro=row.quality_micro,
        total_micro=total,
        total_usd=_usd(total),
    )


def _usd(micro: int) -> str:
    return format_usd(micro * NANO_PER_MICRO)
