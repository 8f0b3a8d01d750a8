"""The numbers of the reward rule, each with its reason, and the hash by which an era's inputs are known."""

from __future__ import annotations

import msgspec
from msgspec import structs

from sparewatt.policy.gpus import GPU_CLASS_WEIGHT
from sparewatt.protocol.api.rewards import EraInputs, RewardRule, TierReward
from sparewatt.protocol.canonical_json import canonical_json
from sparewatt.protocol.signing import keccak256

PPM = 10**6
UNIT = 10**6
"""One GPU with 24 GB."""
DAY_S = 86_400
PAYERS_COUNTED = 64
"""Payers of one node in one era; four of them verify a whole claim."""

DEFAULT_RULE = RewardRule(
    version=1,
    share_ppm=500_000,
    validators_ppm=100_000,
    uptime_ppm=150_000,
    quality_ppm=150_000,
    # A card with 24 GB that works a few hours a day earns a dollar.
    unit_micro=1_000_000,
    payer_ppm=250_000,
    check_units=UNIT // 100,
    idle_ppm=100_000,
    # An owner's second account that sends jobs to the owner's nodes pays the fee in full. What it draws back is never
    # more than that, however much the operator deposits.
    cap_ppm=1_000_000,
    ramp_days=14,
    check_failure_weight=20,
    uptime_from_ppm=990_000,
    quality_from_ppm=950_000,
    tiers={
        "community": TierReward(weight_ppm=1_000_000, floor_ppm=500_000),
        "verified": TierReward(weight_ppm=1_250_000, floor_ppm=900_000),
        "datacenter": TierReward(weight_ppm=1_500_000, floor_ppm=970_000),
    },
    classes=dict(GPU_CLASS_WEIGHT),
)


def with_share(rule: RewardRule, *, percent: float) -> RewardRule:
    """An operator's share of the fees."""
    return structs.replace(rule, share_ppm=round(percent * PPM / 100))


def write_inputs(inputs: EraInputs) -> str:
    """One text for one document (RFC 8785)."""
    return canonical_json(msgspec.to_builtins(inputs))


def read_inputs(text: str | bytes) -> EraInputs:
    """Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=EraInputs)


def inputs_hash(inputs: EraInputs) -> bytes:
    return keccak256(write_inputs(inputs).encode())
