"""An era drafted from what gateways counted: its inputs, its rewards, the tiers after it, and its batch. Pure.

Everything that depends on the moment of closing (what the books hold) comes in by argument, so the same draft can be
made inside of the transaction that stores it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId, NodeId
from sparewatt.core.money import Nano
from sparewatt.ledger.payouts import NANO_PER_MICRO, payout_tree
from sparewatt.ledger.rules import era_payment_postings, era_pool_postings
from sparewatt.policy.gpus import gpu_class_of
from sparewatt.protocol.api.rewards import EraInputs, EraRewards, NodeEraInputs, RewardRule, ValidatorEraInputs
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.store.eras import EraCount, EraDraft, EraMoney, EraNodeRow, EraRow, NodeHistory, PaidWork
from sparewatt.store.ledger import Transfer
from sparewatt.store.payouts import PayoutBatchDraft, PayoutBatchRow, PayoutLeafRow
from sparewatt.trust.node_record import completion_units
from sparewatt.trust.rewards.era import payments_of, reward_era
from sparewatt.trust.rewards.rule import PAYERS_COUNTED, PPM, inputs_hash, write_inputs
from sparewatt.trust.tiers import Tier, TierFacts, decide_tier

NOBODY = AccountId("")
"""The account of an address that no account of the network has, a validator's say."""


@dataclass(frozen=True, slots=True)
class ProviderStanding:
    """What the chain says of the provider that a node is."""

    bond_micro: int = 0
    attested_until: int = 0


@dataclass(frozen=True, slots=True)
class EraNode:
    """A node at the end of an era: what it says of itself, whose it is, and what was counted."""

    node_id: NodeId
    account_id: AccountId
    payee: str | None
    specs: NodeSpecs | None
    tier: Tier
    provider: ProviderStanding
    history: NodeHistory | None
    counts: Sequence[EraCount]
    work: Sequence[PaidWork]


@dataclass(frozen=True, slots=True, kw_only=True)
class EraFacts:
    """All that is known before the books are looked at."""

    era: int
    since: int
    until: int
    rule: RewardRule
    last: EraRow | None
    nodes: Sequence[EraNode]
    validators: Sequence[ValidatorEraInputs]
    accounts: Mapping[str, AccountId]
    """By address, of those that may be paid."""
    now_unix_s: float


def draft_era(facts: EraFacts, money: EraMoney, epoch: int, leaves: Sequence[PayoutLeafRow]) -> EraDraft:
    inputs = era_inputs(facts, money)
    rewards = reward_era(inputs)
    batch = reward_batch(facts, rewards, epoch=epoch, leaves=leaves)
    row = EraRow(
        era=facts.era,
        since=facts.since,
        until=facts.until,
        inputs=write_inputs(inputs),
        inputs_hash=inputs_hash(inputs),
        pool_micro=rewards.pool_micro,
        given_micro=rewards.given_micro,
        carried_nano=rewards.carried_nano,
        epoch=epoch if batch is not None else None,
        fees_left_nano=money.fees_nano - _from_fees(inputs),
        lease_fees_micro=money.lease_fees_micro,
    )
    return EraDraft(
        row=row,
        nodes=_node_rows(facts, inputs, rewards),
        marks=_marks(facts),
        tiers={node.node_id: decide_tier(tier_facts(node, facts), current=node.tier).tier for node in facts.nodes},
        batch=batch,
        transfers=_pool_transfers(facts, inputs),
    )


def era_inputs(facts: EraFacts, money: EraMoney) -> EraInputs:
    fees = money.fees_nano - (facts.last.fees_left_nano if facts.last else 0)
    lease_fees = money.lease_fees_micro - (facts.last.lease_fees_micro if facts.last else 0)
    return EraInputs(
        era=facts.era,
        since=facts.since,
        until=facts.until,
        rule=facts.rule,
        held_nano=max(0, money.held_nano),
        inference_fees_nano=max(0, fees),
        lease_fees_nano=max(0, lease_fees) * NANO_PER_MICRO,  # a chain that was started over has none of before
        nodes=[node_inputs(node, facts) for node in sorted(facts.nodes, key=lambda each: each.node_id)],
        validators=sorted(facts.validators, key=lambda each: each.operator),
    )


def node_inputs(node: EraNode, facts: EraFacts) -> NodeEraInputs:
    payers = sorted(((work.paid_nano // NANO_PER_MICRO, work.done) for work in node.work), reverse=True)
    payers = payers[:PAYERS_COUNTED]
    specs, checks_failed = node.specs, sum(count.checks_failed for count in node.counts)
    return NodeEraInputs(
        node=node.node_id,
        payee=node.payee,
        gpu_class=(gpu_class_of(specs.gpu) or "") if specs is not None and specs.gpu_count else "",
        gpu_units=specs.gpu_count if specs is not None else 0,
        tier=node.tier.value,
        up_s=round(sum(count.up_s for count in node.counts)),
        known_s=round(sum(count.known_s for count in node.counts)),
        days=0 if checks_failed else _days(node, facts, good=True),
        done=sum(work.done for work in node.work),
        failed=sum(count.failed for count in node.counts),
        checks_passed=sum(count.checks_passed for count in node.counts),
        checks_failed=checks_failed,
        payers_micro=[micro for micro, _ in payers],
        payers_done=[done for _, done in payers],
        fees_micro=sum(work.fee_nano for work in node.work) // NANO_PER_MICRO,
    )


def tier_facts(node: EraNode, facts: EraFacts) -> TierFacts:
    """Of the last thirty days, this era included."""
    past, now = node.history, node_inputs(node, facts)
    up_s, known_s = now.up_s + (past.up_s if past else 0), now.known_s + (past.known_s if past else 0)
    return TierFacts(
        days=_days(node, facts, good=False),
        uptime_ppm=min(PPM, up_s * PPM // known_s) if known_s > 0 else 0,
        done=now.done + (past.done if past else 0),
        failed=now.failed + (past.failed if past else 0),
        checks_passed=now.checks_passed + (past.checks_passed if past else 0),
        checks_failed=now.checks_failed + (past.checks_failed if past else 0),
        bond_micro=node.provider.bond_micro,
        attested=node.provider.attested_until >= facts.until,
    )


def _days(node: EraNode, facts: EraFacts, *, good: bool) -> int:
    """With the day in which the era ended, if the node was up and no earlier era of the day has counted it."""
    past = node.history
    known = 0 if past is None else past.good_days if good else past.days
    is_up = round(sum(count.up_s for count in node.counts)) > 0
    is_new = past is None or past.last_day is None or past.last_day < last_day_of(facts.until)
    return known + (is_up and (is_new or not known))


def last_day_of(until: int) -> dt.date:
    return dt.datetime.fromtimestamp(until - 1, tz=dt.UTC).date()


def reward_batch(
    facts: EraFacts, rewards: EraRewards, *, epoch: int, leaves: Sequence[PayoutLeafRow]
) -> PayoutBatchDraft | None:
    """None if nobody gets anything."""
    payments = payments_of(rewards)
    if not payments:
        return None
    last = {leaf.address: leaf for leaf in leaves}
    changed = [_paid_leaf(last.get(address), address, micro, facts.accounts) for address, micro in payments.items()]
    whole = merged_leaves(leaves, changed)
    batch = PayoutBatchRow(
        epoch=epoch,
        unix_s=facts.now_unix_s,
        root=payout_tree(whole).root,
        leaves=len(whole),
        promised_micro=sum(leaf.earned_micro for leaf in whole),
        added_micro=sum(payments.values()),
    )
    return PayoutBatchDraft(batch, changed, [_payment(facts, leaf) for leaf in changed])


def merged_leaves(leaves: Iterable[PayoutLeafRow], changed: Iterable[PayoutLeafRow]) -> list[PayoutLeafRow]:
    """In the order of the tree."""
    rows = {leaf.address: leaf for leaf in leaves} | {leaf.address: leaf for leaf in changed}
    return [rows[address] for address in sorted(rows)]


def _paid_leaf(
    before: PayoutLeafRow | None, address: str, micro: int, accounts: Mapping[str, AccountId]
) -> PayoutLeafRow:
    leaf = before or PayoutLeafRow(address, NOBODY, 0, 0)
    account = accounts.get(address, leaf.account_id)
    return replace(leaf, account_id=account, earned_micro=leaf.earned_micro + micro, added_micro=micro)


def _payment(facts: EraFacts, leaf: PayoutLeafRow) -> Transfer:
    nano, account = Nano(leaf.added_micro * NANO_PER_MICRO), leaf.account_id or NETWORK_ACCOUNT
    cause = f"reward:{facts.era}:{leaf.address}"
    return Transfer(cause, "reward", account, nano, tuple(era_payment_postings(nano)), facts.now_unix_s)


def _from_fees(inputs: EraInputs) -> int:
    """What the pool takes of the inference fees: with what it takes of leases, the share of both together."""
    whole = (inputs.inference_fees_nano + inputs.lease_fees_nano) * inputs.rule.share_ppm // PPM
    return whole - inputs.lease_fees_nano * inputs.rule.share_ppm // PPM


def _pool_transfers(facts: EraFacts, inputs: EraInputs) -> list[Transfer]:
    """Inference fees are in the books; those of leases are the operator's, on the chain, to fund the pool with."""
    from_fees = _from_fees(inputs)
    from_leases = inputs.lease_fees_nano * inputs.rule.share_ppm // PPM
    nano = Nano(from_fees + from_leases)
    if not nano:
        return []
    lines = tuple(line for line in era_pool_postings(from_fees=from_fees, from_leases=from_leases) if line[1])
    return [Transfer(f"era:{facts.era}", "era", NETWORK_ACCOUNT, nano, lines, facts.now_unix_s)]


def _node_rows(facts: EraFacts, inputs: EraInputs, rewards: EraRewards) -> list[EraNodeRow]:
    owners = {node.node_id: node.account_id for node in facts.nodes}
    return [
        EraNodeRow(
            *(NodeId(counted.node), owners[NodeId(counted.node)], counted.up_s, counted.known_s, counted.done),
            *(counted.failed, counted.checks_passed, counted.checks_failed),
            *completion_units(counted),
            *(paid.availability_micro, paid.uptime_micro, paid.quality_micro),
        )
        for counted, paid in zip(inputs.nodes, rewards.nodes, strict=True)
    ]


def _marks(facts: EraFacts) -> list[EraCount]:
    """Of the day in which the era ends, unless that ends with it."""
    day = last_day_of(facts.until)
    if last_day_of(facts.until + 1) != day:
        return []
    return [count for node in facts.nodes for count in node.counts if count.day == day]
