"""From a price per hour to a price per token, by what was measured: one stream that keeps the node busy for an hour."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core import money
from sparewatt.core.money import Nano, parse_usd
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.link.node_report import PRICE_NANO_MAX, Speed


@dataclass(frozen=True, slots=True)
class NodeTokenPrice:
    """Nano-USD per million tokens."""

    prompt: Nano
    completion: Nano


def per_mtok(hourly: Nano, tokens_per_s: float) -> Nano:
    return Nano(min(PRICE_NANO_MAX, money.per_mtok(hourly, tokens_per_s)))


def price_of(settings: NodeSettings, measured: Speed | None) -> NodeTokenPrice:
    """What the owner set, else what the hour costs at the measured speed, else nothing (and no job, until measured)."""
    hourly = parse_usd(settings.hourly_usd)
    derived = (
        NodeTokenPrice(per_mtok(hourly, measured.prefill_tps), per_mtok(hourly, measured.decode_tps))
        if measured
        else NodeTokenPrice(Nano(0), Nano(0))
    )
    return NodeTokenPrice(
        prompt=parse_usd(settings.prompt_usd_per_mtok) if settings.prompt_usd_per_mtok else derived.prompt,
        completion=(
            parse_usd(settings.completion_usd_per_mtok) if settings.completion_usd_per_mtok else derived.completion
        ),
    )
