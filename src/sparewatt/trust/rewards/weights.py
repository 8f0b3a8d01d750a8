"""What one node or validator weighs in an era. Pure, whole numbers only.

A node's claim is its cards. What counts of it is what others have verified: paid work of other accounts, of which one
payer verifies a quarter of the claim at most, or checks that it passed, which verify a tenth of the claim at most. Of
both the larger counts, so the floor for idle nodes tapers off, one for one, as a node earns; and a machine that is
parked, with nothing paid and nothing checked, weighs nothing, whatever it claims to be.

Nobody gets more than the fees that its own work brought, or what its idle floor is worth. So a second account by which
an owner pays for his own work never pays off, however much is in the pool: it pays those fees.

Each factor is rounded down on its own, so a weight never falls when a node was up longer or its quality is higher.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.protocol.api.rewards import NodeEraInputs, RewardRule, ValidatorEraInputs
from sparewatt.trust.rewards.rule import DAY_S, PAYERS_COUNTED, PPM, UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWeight:
    """The factors of a node's weight, and what it weighs in each line."""

    claimed_units: int
    worked_units: int
    idle_units: int
    tier_ppm: int
    floor_ppm: int
    availability_ppm: int
    ramp_ppm: int
    quality_ppm: int
    weight: int
    """Of the line for availability; the bonuses are parts of it."""
    uptime_weight: int
    quality_weight: int
    most_micro: int

    @property
    def verified_units(self) -> int:
        return max(self.worked_units, self.idle_units)


def weigh_node(node: NodeEraInputs, rule: RewardRule, *, span_s: int) -> NodeWeight:
    """`span_s`: how long the era was."""
    claimed = claimed_units(node, rule)
    worked, idle = worked_units(node, rule, span_s=span_s), idle_units(node, rule)
    tier = rule.tiers[node.tier]
    up, ramp, quality = availability_ppm(node), ramp_ppm(node, rule), quality_ppm(node, rule)
    is_counted = node.payee is not None and up >= tier.floor_ppm
    weight = max(worked, idle) if is_counted else 0
    for factor in (tier.weight_ppm, up, ramp, quality):
        weight = weight * factor // PPM
    return NodeWeight(
        claimed_units=claimed,
        worked_units=worked,
        idle_units=idle,
        tier_ppm=tier.weight_ppm,
        floor_ppm=tier.floor_ppm,
        availability_ppm=up,
        ramp_ppm=ramp,
        quality_ppm=quality,
        weight=weight,
        uptime_weight=weight * _above(up, rule.uptime_from_ppm) // PPM,
        quality_weight=weight * _above(quality, rule.quality_from_ppm) // PPM,
        most_micro=max(node.fees_micro * rule.cap_ppm // PPM, idle * _unit_micro(rule, span_s) // UNIT),
    )


def weigh_validator(validator: ValidatorEraInputs) -> int:
    """Stake by the share of votes that were given in time; nothing for one that is jailed, or had none to give."""
    if validator.jailed or validator.due <= 0:
        return 0
    return validator.stake_micro * min(validator.votes, validator.due) // validator.due


def claimed_units(node: NodeEraInputs, rule: RewardRule) -> int:
    """A class that the rule does not know counts as none."""
    return max(1, node.gpu_units) * rule.classes.get(node.gpu_class, rule.classes[""])


def worked_units(node: NodeEraInputs, rule: RewardRule, *, span_s: int) -> int:
    """By what distinct accounts paid, each up to its bound: volume of one account is no second opinion."""
    claimed = claimed_units(node, rule)
    most = claimed * rule.payer_ppm // PPM
    needed_micro = _unit_micro(rule, span_s)
    largest = sorted(node.payers_micro, reverse=True)[:PAYERS_COUNTED]
    return min(claimed, sum(min(most, paid * UNIT // needed_micro) for paid in largest))


def idle_units(node: NodeEraInputs, rule: RewardRule) -> int:
    return min(claimed_units(node, rule) * rule.idle_ppm // PPM, node.checks_passed * rule.check_units)


def availability_ppm(node: NodeEraInputs) -> int:
    return min(PPM, node.up_s * PPM // node.known_s) if node.known_s > 0 else 0


def ramp_ppm(node: NodeEraInputs, rule: RewardRule) -> int:
    return min(PPM, node.days * PPM // rule.ramp_days)


def quality_ppm(node: NodeEraInputs, rule: RewardRule) -> int:
    """Jobs that were finished, by checks that were passed. Each begins with one success: a first failure is not all."""
    finished = PPM * (node.done + 1) // (node.done + node.failed + 1)
    passed = node.checks_passed + 1
    return finished * passed // (passed + rule.check_failure_weight * node.checks_failed)


def _unit_micro(rule: RewardRule, span_s: int) -> int:
    return max(1, rule.unit_micro * span_s // DAY_S)


def _above(have_ppm: int, from_ppm: int) -> int:
    """How far above a mark, as a share of what is above it."""
    return max(0, have_ppm - from_ppm) * PPM // (PPM - from_ppm)
