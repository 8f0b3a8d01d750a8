"""Closes eras of rewards when they are over: gathers what was counted, and stores the era with its batch.

Every gateway runs it; the store lets one of them close an era. What the chain says of providers and validators comes
from a source that the composition root gives, since this package knows no market.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.log import Logger
from sparewatt.ledger.era_draft import EraFacts, EraNode, ProviderStanding, draft_era, last_day_of
from sparewatt.protocol.api.rewards import RewardRule, ValidatorEraInputs
from sparewatt.store.database import Database, StoredNode
from sparewatt.store.eras import DAYS_MAX, EraCount, EraRow, NodeHistory, NodePayee, PaidWork
from sparewatt.store.node_tiers import NodeTier
from sparewatt.trust.rewards.rule import DAY_S, DEFAULT_RULE
from sparewatt.trust.tiers import WINDOW_DAYS, Tier

_log = Logger("sparewatt.ledger")
LAG_SHARE = 20
"""An era is closed a twentieth of its length after its end: jobs of its last minutes are in the books by then."""
LAG_S_MAX = 600


@dataclass(frozen=True, slots=True)
class ChainStanding:
    """What the chain says of nodes and validators. Empty on a network without one."""

    providers: Mapping[NodeId, ProviderStanding] = field(default_factory=dict)
    validators: Sequence[ValidatorEraInputs] = ()


class StandingSource(Protocol):
    async def standing(self, *, since: int, until: int) -> ChainStanding | None:
        """None while the chain is being read: the era waits."""
        ...


class NoChainStanding:
    """Of a network without a chain."""

    async def standing(self, *, since: int, until: int) -> ChainStanding:  # noqa: ARG002 (the protocol's)
        return ChainStanding()


class _OfNode(Protocol):
    @property
    def node_id(self) -> NodeId: ...


_Row = TypeVar("_Row", bound=_OfNode)


def due_span(last: EraRow | None, *, era_s: int, now_unix_s: float) -> tuple[int, int] | None:
    """From when to when the next era is; None before it can be closed. After a long time without a gateway, the last
    days are one era."""
    lag_s = min(LAG_S_MAX, era_s // LAG_SHARE)
    until = int(now_unix_s - lag_s) // era_s * era_s
    since = max(last.until if last else until - era_s, until - max(era_s, (DAYS_MAX - 2) * DAY_S))
    return (since, until) if since < until else None


@dataclass(slots=True, kw_only=True)
class EraService:
    database: Database
    chain: StandingSource
    clock: Clock
    era_s: int = DAY_S
    rule: RewardRule = DEFAULT_RULE

    async def close_due(self) -> EraRow | None:
        """The era that was closed; None if none is due, or another gateway did it."""
        last, now = await self.database.eras.last(), self.clock.unix_s()
        span = due_span(last, era_s=self.era_s, now_unix_s=now)
        if span is None:
            return None
        facts = await self._gather(last, *span, now_unix_s=now)
        if facts is None:
            return None
        row = await self.database.eras.close(facts.era, partial(draft_era, facts), now_unix_s=now)
        if row is not None:
            _log.info("era_closed", era=row.era, pool_micro=row.pool_micro, given_micro=row.given_micro)
        return row

    async def _gather(self, last: EraRow | None, since: int, until: int, *, now_unix_s: float) -> EraFacts | None:
        standing = await self.chain.standing(since=since, until=until)
        if standing is None:
            return None
        eras = self.database.eras
        work = _by_node(await eras.work(since=since, until=until))
        first = dt.datetime.fromtimestamp(since, tz=dt.UTC).date()
        counts = _by_node(await eras.counts(first=first, last=last_day_of(until)))
        payees = await eras.payees(sorted({*work, *counts}))
        nodes = await self._nodes(payees, standing=standing, work=work, counts=counts, until=until)
        addresses = {*(node.payee for node in nodes if node.payee), *(each.operator for each in standing.validators)}
        return EraFacts(
            era=last.era + 1 if last else 1,
            since=since,
            until=until,
            rule=self.rule,
            last=last,
            nodes=nodes,
            validators=standing.validators,
            accounts=await eras.accounts_at(sorted(addresses)),
            now_unix_s=now_unix_s,
        )

    async def _nodes(
        self,
        payees: Mapping[NodeId, NodePayee],
        *,
        standing: ChainStanding,
        work: Mapping[NodeId, Sequence[PaidWork]],
        counts: Mapping[NodeId, Sequence[EraCount]],
        until: int,
    ) -> list[EraNode]:
        stored = {node.id: node for node in await self.database.list_nodes()}
        histories = await self.database.eras.histories(since=until - WINDOW_DAYS * DAY_S)
        tiers = await self.database.node_tiers.all()
        return [
            _era_node(
                payee,
                stored.get(node_id),
                tiers.get(node_id),
                histories.get(node_id),
                provider=standing.providers.get(node_id, ProviderStanding()),
                # A node that changed hands in the era is judged by what it did for its owner of now.
                work=[each for each in work.get(node_id, ()) if each.owner_id == payee.account_id],
                counts=counts.get(node_id, ()),
            )
            for node_id, payee in sorted(payees.items())
        ]


def _era_node(
    payee: NodePayee,
    stored: StoredNode | None,
    tier: NodeTier | None,
    history: NodeHistory | None,
    *,
    provider: ProviderStanding,
    work: Sequence[PaidWork],
    counts: Sequence[EraCount],
) -> EraNode:
    return EraNode(
        node_id=payee.node_id,
        account_id=payee.account_id,
        payee=payee.payee,
        specs=stored.specs if stored is not None else None,
        tier=tier.tier if tier is not None else Tier.COMMUNITY,
        provider=provider,
        history=history,
        counts=counts,
        work=work,
    )


def _by_node(rows: Iterable[_Row]) -> dict[NodeId, list[_Row]]:
    found: defaultdict[NodeId, list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.node_id].append(row)
    return found
