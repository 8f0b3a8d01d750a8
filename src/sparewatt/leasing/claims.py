"""What a provider claims of its machine in the registry, from what the node reports. Pure.

All of it is the node's word: validators measure what they can, auditors attest the rest.
"""

from __future__ import annotations

import msgspec

from sparewatt.protocol.link.node_report import NodeSpecs

GPU_UNITS_MAX = (1 << 16) - 1
OTHER_GPU = 255
"""The id of a GPU that the market's table does not have."""
NANO_PER_MICRO = 1_000


class ProviderClaims(msgspec.Struct, frozen=True):
    """In the order of the contract's `Claims`. Ids are those of the market's tables; 0 stands for unknown or none."""

    country: int = 0
    zone: int = 0
    tier: int = 0
    gpu_model: int = 0
    gpu_units: int = 0
    price_hint_uusd: int = 0
    """Per hour, all-in."""


def claims_of(specs: NodeSpecs) -> ProviderClaims:
    return ProviderClaims(
        gpu_model=OTHER_GPU if specs.gpu_count else 0,
        gpu_units=min(specs.gpu_count, GPU_UNITS_MAX),
        price_hint_uusd=specs.hourly_price_nano // NANO_PER_MICRO,
    )
