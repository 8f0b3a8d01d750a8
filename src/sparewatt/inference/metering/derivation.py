"""Where a node's price per token comes from, in words: its price per hour, divided by its speed at a stated load.

The speed is the one that the node quotes by (`ModelReport.price_basis`). It may be an hour older than the curve that it
reports, and so differ from it; if it differs by more than `BASIS_FACTOR_MAX`, it is no measurement but a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from sparewatt.core.money import per_mtok
from sparewatt.protocol.link.node_report import ModelReport, PriceBasis
from sparewatt.protocol.link.reference_load import REFERENCE_TOKENS, reference_basis, reference_price

BASIS_FACTOR_MAX = 2.0
SET_BY_OWNER = "set by the owner"


class PriceDerivation(NamedTuple):
    prompt: str
    completion: str


class _Part(NamedTuple):
    """One of the two prices, and how the hour would make it."""

    price_nano: int
    hour_nano: int | None
    """None if the speed that the node quotes by is none that it measured."""
    tokens_per_s: float
    how: str


def derivation_of(model: ModelReport, *, hourly_price_nano: int) -> PriceDerivation:
    """For both prices. A price that is not what the hour would make of it was set by the owner."""
    parts = _parts(model, hourly_price_nano)
    if parts is None:
        return PriceDerivation("not measured yet", "not measured yet")
    return PriceDerivation(*(_said(part, hourly_price_nano) for part in parts))


def is_paid_by_the_hour(models: Sequence[ModelReport], *, hourly_price_nano: int) -> bool:
    """Whether a node's price per hour means anything: not where its owner has set all prices per token."""
    return not models or not all(_is_set(model, hourly_price_nano) for model in models)


def _is_set(model: ModelReport, hourly_nano: int) -> bool:
    """Both of its prices. An hour makes none before the speed is measured."""
    parts = _parts(model, hourly_nano)
    if parts is None:
        return any((model.prompt_price_nano, model.completion_price_nano))
    return all(part.price_nano != part.hour_nano for part in parts)


def _parts(model: ModelReport, hourly_nano: int) -> tuple[_Part, _Part] | None:
    """None before the model is measured. A node without a basis divides by the speeds alone, unrounded."""
    speed, basis, prompt, completion = (
        model.measured,
        model.price_basis,
        model.prompt_price_nano,
        model.completion_price_nano,
    )
    if speed is None:
        return None
    if basis is None:
        reads, writes = speed.prefill_tps, speed.decode_tps
        return (
            _Part(prompt, per_mtok(hourly_nano, reads), reads, "measured"),
            _Part(completion, per_mtok(hourly_nano, writes), writes, "measured"),
        )
    own = reference_basis(speed, slots=basis.jobs) if basis.source == "measured" else basis
    reads_how, writes_how = _how(basis)
    return (
        _Part(prompt, _hour_nano(hourly_nano, basis.prompt_tps, own.prompt_tps), basis.prompt_tps, reads_how),
        _Part(
            completion,
            _hour_nano(hourly_nano, basis.completion_tps, own.completion_tps),
            basis.completion_tps,
            writes_how,
        ),
    )


def _hour_nano(hourly_nano: int, quoted_tps: float, own_tps: float) -> int | None:
    if not 1 / BASIS_FACTOR_MAX <= quoted_tps / own_tps <= BASIS_FACTOR_MAX:
        return None
    return reference_price(hourly_nano, quoted_tps)


def _how(basis: PriceBasis) -> tuple[str, str]:
    if basis.source == "expected":
        expected = "expected of such hardware, until it is idle enough to measure"
        return expected, expected
    at_once = f" with {basis.jobs} at once" if basis.jobs > 1 else ""
    return f"measured with {REFERENCE_TOKENS:,} tokens", f"measured{at_once}"


def _said(part: _Part, hourly_nano: int) -> str:
    if part.price_nano != part.hour_nano:
        return SET_BY_OWNER
    return f"{_usd(hourly_nano)}/h ÷ {_rounded(part.tokens_per_s)} tok/s {part.how} = {_usd(part.price_nano)} per 1M"


def _rounded(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _usd(nano: int) -> str:
    """Two decimals, or as many as show three digits of a small price."""
    usd = Decimal(nano).scaleb(-9)
    whole, _, decimals = f"{round(usd, max(2, 2 - usd.adjusted()) if usd else 2):f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"
