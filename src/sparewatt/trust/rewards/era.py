"""An era's rewards from its inputs: the pool, its lines, and who gets what. Pure: anyone gets the same from the same.

The pool is what the operator deposited, what earlier eras left, and a share of the era's fees; nothing is minted. A
part is the validators', if any of them voted; the rest is the nodes', in three lines: availability, a bonus for uptime
and one for quality. Each line is split by weights, exactly, by largest remainders. A line that nobody qualifies for,
and what is beyond the most that a node may get, stays in the next era's pool: pool = given + carried, to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.money import split_by_weight
from sparewatt.protocol.api.rewards import EraInputs, EraRewards, NodeEraInputs, NodeReward, ValidatorReward
from sparewatt.trust.rewards.rule import PPM
from sparewatt.trust.rewards.weights import NodeWeight, weigh_node, weigh_validator

NANO_PER_MICRO = 1_000


def pool_nano(inputs: EraInputs) -> int:
    fees = inputs.inference_fees_nano + inputs.lease_fees_nano
    return inputs.held_nano + fees * inputs.rule.share_ppm // PPM


def reward_era(inputs: EraInputs) -> EraRewards:
    """Raises KeyError for a tier that the rule does not have."""
    rule, nano = inputs.rule, pool_nano(inputs)
    pool = nano // NANO_PER_MICRO
    votes = {each.operator: weigh_validator(each) for each in inputs.validators}
    for_validators = pool * rule.validators_ppm // PPM if any(votes.values()) else 0
    for_nodes = pool - for_validators
    uptime, quality = for_nodes * rule.uptime_ppm // PPM, for_nodes * rule.quality_ppm // PPM
    span_s = inputs.until - inputs.since
    weights = {node.node: weigh_node(node, rule, span_s=span_s) for node in inputs.nodes}
    lines = (
        split_by_weight(for_nodes - uptime - quality, {name: each.weight for name, each in weights.items()}),
        split_by_weight(uptime, {name: each.uptime_weight for name, each in weights.items()}),
        split_by_weight(quality, {name: each.quality_weight for name, each in weights.items()}),
    )
    shares = split_by_weight(for_validators, votes)
    nodes = [_node_reward(node, weights[node.node], [line[node.node] for line in lines]) for node in inputs.nodes]
    given = sum(node.total_micro for node in nodes) + sum(shares.values())
    return EraRewards(
        era=inputs.era,
        pool_micro=pool,
        validators_micro=for_validators,
        given_micro=given,
        carried_nano=nano - given * NANO_PER_MICRO,
        nodes=nodes,
        validators=[ValidatorReward(operator=name, weight=votes[name], micro=micro) for name, micro in shares.items()],
    )


def payments_of(rewards: EraRewards) -> dict[str, int]:
    """What each address gets, in micro-USD; nobody with nothing."""
    paid: dict[str, int] = {}
    for node in rewards.nodes:
        if node.payee is not None:
            paid[node.payee] = paid.get(node.payee, 0) + node.total_micro
    for validator in rewards.validators:
        paid[validator.operator] = paid.get(validator.operator, 0) + validator.micro
    return {address: micro for address, micro in sorted(paid.items()) if micro}


def _node_reward(node: NodeEraInputs, weight: NodeWeight, shares: Sequence[int]) -> NodeReward:
    left, lines = weight.most_micro, list[int]()
    for share in shares:
        lines.append(min(share, left))
        left -= lines[-1]
    availability, uptime, quality = lines
    return NodeReward(
        node=node.node,
        payee=node.payee,
        claimed_units=weight.claimed_units,
        worked_units=weight.worked_units,
        idle_units=weight.idle_units,
        verified_units=weight.verified_units,
        tier_ppm=weight.tier_ppm,
        availability_ppm=weight.availability_ppm,
        ramp_ppm=weight.ramp_ppm,
        quality_ppm=weight.quality_ppm,
        weight=weight.weight,
        most_micro=weight.most_micro,
        availability_micro=availability,
        uptime_micro=uptime,
        quality_micro=quality,
        why=why_no_more(node, weight, is_capped=sum(lines) < sum(shares)),
    )


def why_no_more(node: NodeEraInputs, weight: NodeWeight, *, is_capped: bool) -> str:
    """The smallest factor, in words that say what would change it."""
    if node.payee is None:
        return "Its owner has no address on the chain that could be paid."
    if weight.availability_ppm < weight.floor_ppm:
        return (
            f"It was up for {weight.availability_ppm / 10_000:.1f} % of the era; below {weight.floor_ppm / 10_000:g} % "
            f"a node of the tier {node.tier} gets nothing."
        )
    if not weight.verified_units:
        return "Nothing verified its cards: no other account paid for its work, and it passed no check."
    if is_capped:
        return "It got the most that it may: the fees that its work for other accounts brought, or its idle floor."
    factors = {
        "verified": weight.verified_units * PPM // weight.claimed_units,
        "availability": weight.availability_ppm,
        "ramp": weight.ramp_ppm,
        "quality": weight.quality_ppm,
    }
    name = min(factors, key=lambda factor: (factors[factor], factor))
    share = f"{factors[name] / 10_000:.1f} %"
    return {
        "verified": f"{share} of the cards that it claims were verified by paid work of other accounts or by checks.",
        "availability": f"It was up for {share} of the era.",
        "ramp": f"It counts {share} so far: {node.days} days without a failed check.",
        "quality": f"Its quality was {share}: {node.failed} jobs and {node.checks_failed} checks failed.",
    }[name]
