"""Price caps: what a request that names no price may cost per token, by model, and what a dear node's owner is told.

The cap bounds the hold of a request and rules out dearer nodes (the filter `usual_price`). Only what connected and
measured nodes ask counts: an unmeasured node has no price yet. The rule itself is `metering/usual_price.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.money import Nano, format_usd
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.rules import NOBODY
from sparewatt.inference.metering.usual_price import BAND_TIMES, CAP_FLOOR, CAP_TIMES, Asks, PriceBounds, usual_price
from sparewatt.ledger.model import TokenPrice
from sparewatt.protocol.link.node_report import ModelReport

PRICE_FRESH_S = 1.0
NODES_PER_FRESH_S = 1_000
"""Prices change seldom, and reading those of a thousand nodes takes a millisecond: for more, a cap is kept longer."""
MODELS_CACHED_MAX = 10_000
NO_PRICE = TokenPrice(Nano(0), Nano(0))


class UsualPrices(NamedTuple):
    """Of one model, in both directions. None: nobody who is connected and measured asks for a price."""

    prompt: int | None
    completion: int | None
    cap: TokenPrice
    fresh_until_s: float


class PriceCaps:
    def __init__(
        self,
        table: NodeTable,
        delivered: Callable[[ModelId], Mapping[AccountId, int]],
        *,
        ceiling: Nano,
        clock: Clock,
    ) -> None:
        """`delivered`: the tokens of a model by owner. `ceiling`: the most per million tokens, whatever nodes ask."""
        self._table = table
        self._delivered = delivered
        self._prompt = PriceBounds(CAP_FLOOR.prompt, ceiling)
        self._completion = PriceBounds(CAP_FLOOR.completion, ceiling)
        self._clock = clock
        self._cached: dict[ModelId, UsualPrices] = {}

    def of(self, model: ModelId) -> TokenPrice:
        """The cap; nothing for a model that no node has."""
        return self.usual(model).cap if self._table.has_model(model) else NO_PRICE

    def usual(self, model: ModelId) -> UsualPrices:
        now_s, cached = self._clock.now_s(), self._cached.get(model)
        if cached is not None and now_s < cached.fresh_until_s:
            return cached
        if len(self._cached) >= MODELS_CACHED_MAX:
            self._cached.clear()
        found = self._cached[model] = self._read(model, now_s)
        return found

    def _read(self, model: ModelId, now_s: float) -> UsualPrices:
        (prompts, completions), delivered = self._asks(model), self._delivered(model)
        prompt = usual_price(prompts, delivered, self._prompt)
        completion = usual_price(completions, delivered, self._completion)
        cap = TokenPrice(Nano(self._prompt.cap(prompt)), Nano(self._completion.cap(completion)))
        fresh_s = PRICE_FRESH_S * max(1.0, sum(map(len, prompts.values())) / NODES_PER_FRESH_S)
        return UsualPrices(prompt, completion, cap, now_s + fresh_s)

    def forget_absent_models(self) -> None:
        """Drop what is cached of models that no node has any more."""
        self._cached = {model: found for model, found in self._cached.items() if self._table.has_model(model)}

    def _asks(self, model: ModelId) -> tuple[Asks, Asks]:
        prompts: dict[AccountId, list[int]] = {}
        completions: dict[AccountId, list[int]] = {}
        columns = self._table.columns_of(model)
        for node_id in columns.nodes if columns is not None else ():
            row = self._table.get(node_id)
            if row is not None and row.connected and row.positions[model].figures.is_measured:
                report, owner = row.models[model], row.owner or NOBODY
                prompts.setdefault(owner, []).append(report.prompt_price_nano)
                completions.setdefault(owner, []).append(report.completion_price_nano)
        return prompts, completions

    def notice(self, report: ModelReport) -> str | None:
        """For the owner of a node that asks more than requests without a `max_price` pay; None for all others."""
        is_never_dear = report.prompt_price_nano <= self._prompt.least and (
            report.completion_price_nano <= self._completion.least
        )
        if report.measured is None or is_never_dear:
            return None
        found = self.usual(ModelId(report.id))
        directions = (
            ("read", report.prompt_price_nano, found.prompt, self._prompt),
            ("written", report.completion_price_nano, found.completion, self._completion),
        )
        notices = (_notice(done, asked, usual, bounds) for done, asked, usual, bounds in directions)
        return next((notice for notice in notices if notice is not None), None)


def _notice(done: str, asked: int, usual: int | None, bounds: PriceBounds) -> str | None:
    cap = bounds.cap(usual)
    if asked <= cap:
        return None
    text = (
        f"Its price of ${format_usd(asked)} per million tokens {done} is above ${format_usd(cap)}, the most that a "
        "request without max_price pays for this model: it gets only requests that name such a price."
    )
    if usual is None:
        return text
    text += f" The usual price is ${format_usd(usual)}; up to {CAP_TIMES} times that, a node gets all requests."
    is_beyond = asked > bounds.band(usual)
    return f"{text} A price beyond {BAND_TIMES} times that has no say in what is usual." if is_beyond else text
