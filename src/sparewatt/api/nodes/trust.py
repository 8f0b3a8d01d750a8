"""GET /v1/nodes/{node_id}/trust: tier, record and last reward of a node, and why. GET /v1/tiers: the table of terms.

Other accounts get the tier and rounded scores, as in `track_record`. The inputs by day, the terms with what is missing,
and the sentences are for its owner and for operators.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, cast

import msgspec
from aiohttp import web
from msgspec import UNSET, structs

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.ledger.era_draft import ProviderStanding
from sparewatt.protocol.api.rewards import NodeReward, RewardRule
from sparewatt.protocol.api.trust import (
    FacetReport,
    NodeTierReport,
    NodeTrust,
    RecordDayReport,
    TierTable,
    TierTableRow,
    TierTerm,
    TierTermRow,
)
from sparewatt.store.eras import EraStore, NodeHistory
from sparewatt.store.node_tiers import NodeTier, NodeTierStore
from sparewatt.store.node_timings import NodeTimingStore, StoredTiming
from sparewatt.telemetry.feed.public import may_know_all
from sparewatt.trust.explain import RULES, trust_sentences
from sparewatt.trust.lease_record import EndedTerm, lease_facet
from sparewatt.trust.node_record import HALF_LIFE_DAYS, WINDOW_DAYS, RecordDay, RecordFacet, TimedSpeed, record_of
from sparewatt.trust.rewards.era import reward_era
from sparewatt.trust.rewards.rule import read_inputs
from sparewatt.trust.tiers import TIER_TABLE, TermCheck, Tier, TierDecision, TierFacts, TierTerms, decide_tier
from sparewatt.trust.tiers import WINDOW_DAYS as TIER_DAYS

DAY_S = 86_400
PPM = 10**6
ROUNDED_PPM = PPM // 10


class NodeChainRecords(Protocol):
    """What the chain says of a node as a provider. Implemented by `MarketStanding`."""

    def provider_of(self, node_id: NodeId) -> ProviderStanding: ...

    def terms_of(self, node_id: NodeId) -> Sequence[EndedTerm]: ...


@dataclass(slots=True, kw_only=True)
class TrustEndpoints:
    table: NodeTable
    eras: EraStore
    tiers: NodeTierStore
    timings: NodeTimingStore
    chain: NodeChainRecords
    rule: RewardRule
    clock: Clock

    @endpoint("GET /v1/nodes/{node_id}/trust", access="inference")
    async def show_trust(self, request: web.Request, principal: Principal) -> NodeTrust:
        """Show a node's tier, its record by facets and its last reward; to its owner, why."""
        row = find_node(self.table, request.match_info["node_id"])
        now = int(self.clock.unix_s())
        today = now // DAY_S
        days = await self.eras.record_days(row.id, since=now - WINDOW_DAYS * DAY_S)
        speeds = timed_speeds(row, await self.timings.of([row.id]))
        record = record_of(days, speeds, today=today)
        tier = (await self.tiers.all()).get(row.id)
        facts = tier_facts_of(
            await self.eras.history_of(row.id, since=now - TIER_DAYS * DAY_S), self.chain.provider_of(row.id), now=now
        )
        decision = decide_tier(facts, current=tier.tier if tier else Tier.COMMUNITY)
        in_full = may_know_all(row, principal)
        facets = [*record.facets, lease_facet(self.chain.terms_of(row.id), unix_s=now)]
        shown = NodeTrust(
            node=row.id,
            name=row.specs.name,
            tier=tier_report(tier, decision, in_full=in_full),
            reputation_ppm=_shown(record.reputation_ppm, in_full=in_full),
            half_life_days=HALF_LIFE_DAYS,
            facets=[facet_report(facet, in_full=in_full) for facet in facets],
        )
        if not in_full:
            return shown
        era, reward = await self._last_reward(row.id)
        return structs.replace(
            shown,
            days=[_day_report(day) for day in days],
            era=era if era is not None else UNSET,
            reward=reward if reward is not None else UNSET,
            sentences=trust_sentences(days, speeds, decision, today=today),
        )

    @endpoint("GET /v1/tiers", access="public")
    async def show_tiers(self, _: web.Request) -> TierTable:
        """Show what promotes a node to each tier and what keeps it there, and how many have it."""
        tiers = await self.tiers.all()
        known = Counter(tiers[row.id].tier if row.id in tiers else Tier.COMMUNITY for row in self.table)
        return TierTable(data=[self._tier_row(tier, known[tier]) for tier in Tier], window_days=TIER_DAYS)

    def _tier_row(self, tier: Tier, nodes: int) -> TierTableRow:
        terms, reward = TIER_TABLE.get(tier), self.rule.tiers[tier.value]
        return TierTableRow(
            tier=tier.value,
            nodes=nodes,
            weight_ppm=reward.weight_ppm,
            floor_ppm=reward.floor_ppm,
            promote=_terms(terms.promote) if terms else None,
            keep=_terms(terms.keep) if terms else None,
        )

    async def _last_reward(self, node_id: NodeId) -> tuple[int | None, NodeReward | None]:
        era = await self.eras.last_era_of(node_id)
        row = await self.eras.find(era) if era is not None else None
        if row is None:
            return era, None
        rewards = reward_era(read_inputs(row.inputs)).nodes
        return era, next((reward for reward in rewards if reward.node == node_id), None)


def timed_speeds(row: NodeRow, timings: Sequence[StoredTiming]) -> list[TimedSpeed]:
    """Of the models that the node has, what it says of itself and what gateways timed."""
    known = {timing.model: timing for timing in timings}
    speeds = []
    for model in row.specs.models:
        says, timed = model.measured or model.claimed, known.get(model.id)
        if says is not None and timed is not None and says.decode_tps > 0:
            claimed, found = round(says.decode_tps * 1_000), round(1_000 / timed.step_s)
            speeds.append(TimedSpeed(model.id, claimed, found, timed.writes))
    return speeds


def tier_facts_of(past: NodeHistory | None, provider: ProviderStanding, *, now: int) -> TierFacts:
    """By the eras that have ended."""
    if past is None:
        return TierFacts(bond_micro=provider.bond_micro, attested=provider.attested_until >= now)
    return TierFacts(
        days=past.days,
        uptime_ppm=min(PPM, past.up_s * PPM // past.known_s) if past.known_s > 0 else 0,
        done=past.done,
        failed=past.failed,
        checks_passed=past.checks_passed,
        checks_failed=past.checks_failed,
        bond_micro=provider.bond_micro,
        attested=provider.attested_until >= now,
    )


def tier_report(tier: NodeTier | None, decision: TierDecision, *, in_full: bool) -> NodeTierReport:
    """The tier is the one of the last era; the decision says what the next one will find."""
    report = NodeTierReport(
        tier=(tier.tier if tier else Tier.COMMUNITY).value,
        since=tier.since_unix_s if tier else None,
        next_tier=decision.next_tier.value if decision.next_tier else None,
    )
    if not in_full:
        return report
    return structs.replace(
        report, keeps=[_term(check) for check in decision.kept], wants=[_term(check) for check in decision.wanted]
    )


def facet_report(facet: RecordFacet, *, in_full: bool) -> FacetReport:
    report = msgspec.convert(
        {
            "name": facet.name,
            "score_ppm": _shown(facet.score_ppm, in_full=in_full),
            "lower_ppm": _shown(facet.lower_ppm, in_full=in_full),
            "rule": RULES[facet.name],
        },
        FacetReport,
    )
    return structs.replace(report, good=facet.good, bad=facet.bad) if in_full else report


def _shown(ppm: int, *, in_full: bool) -> int:
    return ppm if in_full else round(ppm / ROUNDED_PPM) * ROUNDED_PPM


def _term(check: TermCheck) -> TierTerm:
    return msgspec.convert(
        {"name": check.name, "have": check.have, "need": check.need, "met": check.is_met, "text": check.text}, TierTerm
    )


def _terms(terms: TierTerms) -> TierTermRow:
    return msgspec.convert(asdict(terms), TierTermRow)


def _day_report(day: RecordDay) -> RecordDayReport:
    counts = {name: cast("int", value) for name, value in asdict(day).items() if name != "day"}
    date = dt.date(1970, 1, 1) + dt.timedelta(days=day.day)
    return RecordDayReport(day=date.isoformat(), **counts)
