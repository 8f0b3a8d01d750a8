"""What a provider claims of its machine in the registry, from what the node reports. Pure.

All of it is the node's word: validators measure what they can, auditors attest the rest.
"""

from __future__ import annotations

import msgspec

from sparewatt.policy.market_ids import NONE, OTHER_GPU, TIER_ID, country_id_of, gpu_model_id_of
from sparewatt.policy.zones import zone_of_region
from sparewatt.protocol.link.node_report import NodeSpecs

NANO_PER_MICRO = 1_000


class ProviderClaims(msgspec.Struct, frozen=True):
    """In the order of the contract's `Claims`. Ids are those of the market's tables; 0 stands for unknown or none."""

    country: int
    zone: int
    tier: int
    gpu_model: int
    gpu_units: int
    """Whole GPUs that one lease can have; 0 for a machine that offers processors only."""
    price_hint_uusd: int
    """Per hour, all-in."""


def claims_of(specs: NodeSpecs) -> ProviderClaims:
    """A GPU model is claimed if and only if there are GPUs: the registry refuses anything else."""
    gpu_model = (gpu_model_id_of(specs.gpu) or OTHER_GPU) if specs.gpu_count else NONE
    return ProviderClaims(
        country=country_id_of(specs.region),
        zone=zone_of_region(specs.region),
        tier=TIER_ID["community"],
        gpu_model=gpu_model,
        gpu_units=specs.gpu_count,
        price_hint_uusd=specs.hourly_price_nano // NANO_PER_MICRO,
    )
