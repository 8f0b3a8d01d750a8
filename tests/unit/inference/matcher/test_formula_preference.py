"""What one request prefers: `sort` and `weights`."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import (
    BALANCED,
    ECONOMY,
    EMPHASIS,
    FAST,
    NEURALGRID,
    NO_PREFERENCE,
    PARTS,
    Preference,
    Ranking,
)
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import a_job, a_model, a_row, situation, some_specs, table_of


def a_node(number: int, *, usd_per_mtok: float = 1.0, decode_tps: float = 50.0, ttft_s: float = 0.1) -> NodeRow:
    price = int(usd_per_mtok * NANO_PER_USD)
    speed = Speed(prefill_tps=1000.0, decode_tps=decode_tps, ttft_s=ttft_s)
    model = a_model(prompt_price_nano=price, completion_price_nano=price, measured=speed)
    return a_row(number, specs=some_specs(model))


def decide(*rows: NodeRow, ranking: Ranking = BALANCED, preference: Preference = NO_PREFERENCE) -> Decision:
    return match(a_job(preference=preference), table_of(*rows), situation(), ranking=ranking, seed=1)


def parts_of(preference: Preference, ranking: Ranking = BALANCED) -> dict[str, float]:
    best = decide(a_node(1), preference=preference, ranking=ranking).best
    assert best is not None
    assert best.cost == pytest.approx(sum(best.parts))
    return dict(zip((*PARTS, "jitter"), best.parts, strict=True))


def test_without_a_preference_nothing_changes() -> None:
    assert parts_of(Preference()) == parts_of(NO_PREFERENCE)
    assert parts_of(Preference(weights=tuple((name, 1.0) for name in PARTS))) == parts_of(NO_PREFERENCE)


@pytest.mark.parametrize("ranking", [FAST, BALANCED, ECONOMY], ids=lambda ranking: ranking.name)
def test_by_price_is_the_economical_tier_whatever_the_tier(ranking: Ranking) -> None:
    assert parts_of(Preference(sort="price"), ranking) == parts_of(NO_PREFERENCE, ECONOMY)


@pytest.mark.parametrize(
    ("sort", "emphasised"),
    [("throughput", {"decode"}), ("latency", {"network", "queue", "cold_load", "memory", "prefill"})],
)
def test_by_speed_is_the_fast_tier_with_that_speed_counting_more(sort: Any, emphasised: set[str]) -> None:
    usual, found = parts_of(NO_PREFERENCE, FAST), parts_of(Preference(sort=sort))
    for name in set(PARTS):
        assert found[name] == pytest.approx(usual[name] * (EMPHASIS if name in emphasised else 1.0)), name


def test_each_sort_finds_its_own_node() -> None:
    cheap = a_node(1, usd_per_mtok=0.1, decode_tps=10.0, ttft_s=3.0)
    swift = a_node(2, usd_per_mtok=9.0, decode_tps=200.0, ttft_s=2.0)
    prompt = a_node(3, usd_per_mtok=9.0, decode_tps=60.0, ttft_s=0.0)
    for sort, best in {"price": cheap, "throughput": swift, "latency": prompt}.items():
        found = decide(cheap, swift, prompt, preference=Preference(sort=sort)).best  # type: ignore[arg-type]
        assert found is not None
        assert found.node_id == best.id, sort


def test_weights_multiply_single_parts_on_top_of_a_sort() -> None:
    usual = parts_of(NO_PREFERENCE)
    weighed = parts_of(Preference(weights=(("price", 3.0), ("decode", 0.0))))
    assert weighed["price"] == pytest.approx(3 * usual["price"])
    assert weighed["decode"] == 0.0
    assert weighed["flakiness"] == usual["flakiness"]
    both = parts_of(Preference(sort="throughput", weights=(("decode", 0.5),)))
    assert both["decode"] == pytest.approx(EMPHASIS * 0.5 * usual["decode"])


def test_what_is_predicted_and_asked_does_not_depend_on_what_is_preferred() -> None:
    usual = decide(a_node(1)).best
    weighed = decide(a_node(1), preference=Preference("latency", (("prefill", 50.0), ("price", 0.0)))).best
    assert usual is not None
    assert weighed is not None
    for name in ("predicted_ttft_s", "predicted_finish_s", "price_nano"):
        assert getattr(weighed, name) == getattr(usual, name)


def test_a_policy_that_scores_prefers_nothing() -> None:
    rows = [a_node(n) for n in range(1, 4)]
    preferring = decide(*rows, ranking=NEURALGRID, preference=Preference(sort="price"))
    assert preferring.ranked == decide(*rows, ranking=NEURALGRID).ranked


def test_an_explanation_says_what_was_preferred() -> None:
    preference = Preference(sort="latency", weights=(("price", 2.0),))
    assert msgspec.to_builtins(describe(decide(a_node(1), preference=preference), {}).preference) == {
        "sort": "latency",
        "weights": {"price": 2.0},
    }
    assert describe(decide(a_node(1)), {}).preference is None


@pytest.mark.parametrize("weight", [-0.1, 1000.1, math.nan, math.inf, -math.inf])
def test_a_weight_out_of_bounds_is_refused(weight: float) -> None:
    with pytest.raises(InvalidField, match="0 to 1000"):
        Preference(weights=(("price", weight),))
    assert Preference(weights=(("price", 0.0), ("decode", 100.0)))


def test_a_cost_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(InvalidField, match=r"no cost 'speed'.*network"):
        Preference(weights=(("speed", 1.0),))


def test_a_sort_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidField, match="price, throughput, latency"):
        Preference(sort="size")  # type: ignore[arg-type]
