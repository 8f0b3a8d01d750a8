"""Where a node's price per token comes from, in words: its price per hour, divided by the speed that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from sparewatt.core.money import per_mtok
from sparewatt.protocol.link.node_report import ModelReport


class PriceDerivation(NamedTuple):
    prompt: str
    completion: str


def derivation_of(model: ModelReport, *, hourly_price_nano: int) -> PriceDerivation:
    """For both prices. A price that is not what the hour would make of it was set by the owner."""
    speed, hourly = model.measured, hourly_price_nano
    return PriceDerivation(
        prompt=_said(model.prompt_price_nano, hourly, speed.prefill_tps if speed else None),
        completion=_said(model.completion_price_nano, hourly, speed.decode_tps if speed else None),
    )


def is_paid_by_the_hour(models: Sequence[ModelReport], *, hourly_price_nano: int) -> bool:
    """Whether a node's price per hour means anything: not where its owner has set all prices per token."""
    return not models or not all(_is_set(model, hourly_price_nano) for model in models)


def _is_set(model: ModelReport, hourly_nano: int) -> bool:
    """Both of its prices. An hour makes none before the speed is measured."""
    prices, speed = (model.prompt_price_nano, model.completion_price_nano), model.measured
    if speed is None:
        return any(prices)
    hour = (per_mtok(hourly_nano, speed.prefill_tps), per_mtok(hourly_nano, speed.decode_tps))
    return all(price != derived for price, derived in zip(prices, hour, strict=True))


def _said(price_nano: int, hourly_nano: int, tokens_per_s: float | None) -> str:
    if tokens_per_s is None:
        return "not measured yet"
    if price_nano != per_mtok(hourly_nano, tokens_per_s):
        return "set by the owner"
    return f"{_usd(hourly_nano)}/h ÷ {_rounded(tokens_per_s)} tok/s measured = {_usd(price_nano)} per 1M"


def _rounded(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _usd(nano: int) -> str:
    """Two decimals, or as many as show three digits of a small price."""
    usd = Decimal(nano).scaleb(-9)
    whole, _, decimals = f"{round(usd, max(2, 2 - usd.adjusted()) if usd else 2):f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"
