"""Where a node's price per token comes from, in words: its price per hour, divided by the speed that was measured."""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.core.money import format_usd, per_mtok
from sparewatt.protocol.node import ModelReport, Speed


class Derivation(NamedTuple):
    prompt: str
    completion: str


def derivation_of(model: ModelReport, *, hourly_price_nano: int) -> Derivation:
    """For both prices. A price that is not what the hour would make of it was set by the owner."""
    speed = model.measured
    return Derivation(
        prompt=_said(model.prompt_price_nano, hourly_price_nano, _prefill(speed)),
        completion=_said(model.completion_price_nano, hourly_price_nano, _decode(speed)),
    )


def _prefill(speed: Speed | None) -> float | None:
    return speed.prefill_tps if speed else None


def _decode(speed: Speed | None) -> float | None:
    return speed.decode_tps if speed else None


def _said(price_nano: int, hourly_nano: int, tokens_per_s: float | None) -> str:
    if tokens_per_s is None:
        return "not measured yet"
    if price_nano != per_mtok(hourly_nano, tokens_per_s):
        return "set by the owner"
    return f"${format_usd(hourly_nano)}/h ÷ {_rounded(tokens_per_s)} tok/s measured = ${_cents(price_nano)} per 1M"


def _rounded(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _cents(nano: int) -> str:
    """Two decimals, or as many as show three digits of a small price."""
    usd = nano / 1e9
    return f"{usd:.2f}" if usd >= 1 else f"{usd:.3g}"
