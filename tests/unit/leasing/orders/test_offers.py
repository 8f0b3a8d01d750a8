from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.leasing.orders import offers
from sparewatt.leasing.orders.offers import OrderMarket, find_able
from sparewatt.leasing.orders.provider_checks import (
    BOND,
    NO_PRICE,
    NO_RUNTIME,
    NOT_OFFERED,
    OFFLINE,
    OfferingProvider,
)
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_MODEL_ID, OTHER_GPU
from sparewatt.protocol.link.lease_offer import LeaseDiscount
from tests.unit.leasing.orders.samples import address, order, priced, provider


def able(market: OrderMarket) -> list[str]:
    return [each.view.provider for each in market.able]


def steps(market: OrderMarket) -> dict[str, int]:
    return {step.filter: step.dropped for step in market.funnel}


def test_those_that_fit_are_listed_the_cheapest_first() -> None:
    market = find_able(order(), [priced(1, 500_000), priced(2, 300_000), priced(3, 500_000)])
    assert able(market) == [address(2), address(1), address(3)]
    assert [each.hourly_uusd for each in market.able] == [300_000, 500_000, 500_000]
    assert market.relaxations == ()


FAILING: list[tuple[str, OfferingProvider, dict[str, Any]]] = [
    (OFFLINE, replace(provider(), node_name=None, offer=None), {}),
    (NOT_OFFERED, replace(provider(), offer=None), {}),
    (NO_RUNTIME, provider(offer={"runtime": False}), {}),
    (NO_PRICE, provider(offer={"prices": ()}), {}),
    (NO_PRICE, provider(offer={"cpu_hourly_uusd": None}), {"resources": {"gpus": 0}}),
    ("region", provider(country=COUNTRY_ID["US"]), {"policy": {"region": ["EU"]}}),
    ("region", provider(country=0), {"policy": {"region": ["EU"]}}),
    ("gpu", provider(gpu_model=OTHER_GPU), {"policy": {"gpu": ["rtx-4090"]}}),
    ("gpu_class", provider(), {"policy": {"gpu_class": ">=a100"}}),
    ("vram_gb", provider(vram_gb=0), {"policy": {"vram_gb": ">=8"}}),
    ("gpu_count", provider(), {"resources": {"gpus": 2}}),
    ("tier", provider(tier=1), {"policy": {"tier": ["datacenter"]}}),
    ("max_hourly", provider(), {"policy": {"max_hourly": "0.39"}}),
    ("only", provider(), {"policy": {"only": [address(9)]}}),
    ("ignore", provider(), {"policy": {"ignore": [address(1)]}}),
    ("gpus", provider(offer={"gpus": 0}), {}),
    ("cpus", provider(offer={"cpu_milli": 999}), {}),
    ("memory_gb", provider(), {"resources": {"memory_gb": 40}}),
    ("disk_gb", provider(), {"disk_gb": 200}),
    ("egress", provider(offer={"egress": 0}), {}),
    ("duration", provider(), {"duration": "2d"}),
    ("notice", provider(offer={"reclaim_s": 0}), {}),
    (BOND, replace(provider(), free_bond_uusd=399_999), {}),
]


@pytest.mark.parametrize(("name", "view", "fields"), FAILING, ids=[f"{each[0]}-{n}" for n, each in enumerate(FAILING)])
def test_whoever_does_not_fit_is_counted_where_it_failed(
    name: str, view: OfferingProvider, fields: dict[str, Any]
) -> None:
    market = find_able(order(**fields), [view])
    assert market.able == ()
    assert steps(market)[name] == 1
    assert sum(steps(market).values()) == 1
    assert market.funnel[-1].left == 0


def test_an_order_without_gpus_takes_any_machine_at_its_price_per_processor() -> None:
    plain = provider(2, gpu_model=0, gpu_units=0, vram_gb=0, offer={"gpus": 0})
    market = find_able(order(resources={"gpus": 0, "cpus": 4}), [provider(1), plain])
    assert able(market) == [address(1), address(2)]
    assert {each.hourly_uusd for each in market.able} == {200_000}


def test_a_long_lease_is_offered_at_its_discount() -> None:
    view = provider(offer={"discounts": (LeaseDiscount(7_200, 250_000),)})
    assert [find_able(order(duration=each), [view]).able[0].hourly_uusd for each in ("1h", "2h")] == [400_000, 300_000]


def test_what_only_validators_know_rules_nobody_out_here() -> None:
    asked = order(policy={"uptime": ">=0.99", "reputation": ">=0.5", "compliance": ["gdpr"]})
    assert len(find_able(asked, [provider()]).able) == 1


@pytest.mark.parametrize(
    ("fields", "helps"),
    [
        ({"policy": {"max_hourly": "0.2"}}, "max_hourly 0.2→0.4 adds 1 node"),
        ({"resources": {"cpus": 16}}, "cpus 16→8 adds 1 node"),
        ({"resources": {"memory_gb": 64}}, "memory_gb 64→33.55 adds 1 node"),
        ({"duration": "7d"}, "duration 168h→24h adds 1 node"),
    ],
)
def test_the_nearest_change_that_would_help_is_named(fields: dict[str, Any], helps: str) -> None:
    assert helps in find_able(order(**fields), [provider()]).relaxations


def test_machines_without_a_gpu_are_named_if_nothing_nearer_helps() -> None:
    plain = [provider(number, gpu_model=0, gpu_units=0, vram_gb=0, offer={"gpus": 0}) for number in (1, 2)]
    assert find_able(order(), plain).relaxations == ("gpus 1→0, a machine without a GPU, adds 2 nodes",)
    named = find_able(order(policy={"gpu": ["h100"]}), plain).relaxations
    assert named == ("gpus 1→0 without gpu adds 2 nodes",)
    dear = find_able(order(policy={"max_hourly": "0.2"}), [provider(), plain[1]]).relaxations
    assert dear == ("max_hourly 0.2→0.4 adds 1 node",)


def test_if_no_change_of_one_field_helps_the_fewest_together_are_named() -> None:
    two = find_able(order(disk_gb=900, policy={"max_hourly": "0.2"}), [provider()])
    assert two.relaxations == ("max_hourly 0.2→0.4, disk_gb 900→104.9 together add 1 node",)
    few = find_able(order(disk_gb=900, resources={"gpus": 4}), [provider(gpu_units=2, offer={"gpus": 2})])
    assert few.relaxations == ("gpus 4→2, disk_gb 900→104.9 together add 1 node",)
    plain = provider(2, gpu_model=0, gpu_units=0, vram_gb=0, offer={"gpus": 0}, country=COUNTRY_ID["US"])
    far = find_able(order(resources={"cpus": 16}, policy={"gpu": ["h100"], "region": ["EU"]}), [plain])
    assert far.relaxations == ("gpus 1→0 without gpu, region EU→EU,US, cpus 16→8 together add 1 node",)


def test_nothing_is_named_that_would_not_help() -> None:
    assert find_able(order(), []).relaxations == ()
    assert find_able(order(policy={"gpu": ["h100"]}), [replace(provider(), offer=None)]).relaxations == ()
    poor = replace(provider(offer={"cpu_hourly_uusd": None}), free_bond_uusd=399_999)
    assert find_able(order(disk_gb=900, policy={"region": ["US"]}), [poor]).relaxations == ()
    hasty = provider(offer={"reclaim_s": 0})
    assert find_able(order(disk_gb=900, policy={"region": ["US"]}), [hasty]).relaxations == ()


def test_a_highest_price_beyond_all_bonds_leaves_nobody_and_says_which_would_help() -> None:
    """Validators ask a bidder for an hour of the highest price, whatever its own is."""
    market = find_able(order(policy={"max_hourly": "500"}), [provider(1), provider(2)])
    assert (able(market), steps(market)[BOND]) == ([], 2)
    assert market.relaxations == ("max_hourly 500→10, so that bonds are enough, adds 2 nodes",)
    assert len(find_able(order(policy={"max_hourly": "10"}), [provider(1), provider(2)]).able) == 2


def test_registered_providers_that_cannot_bid_hide_nobody_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "PROVIDERS_COMPARED_MAX", 3)
    idle = [replace(provider(number), offer=None) for number in range(1, 6)]
    bondless = [replace(provider(number), free_bond_uusd=number) for number in range(6, 10)]
    assert able(find_able(order(), [*idle, *bondless, provider(10)])) == [address(10)]


def test_a_provider_that_names_a_gpu_of_no_table_is_shown_without() -> None:
    market = find_able(order(), [provider(gpu_model=OTHER_GPU), provider(2, gpu_model=GPU_MODEL_ID["a100"])])
    assert len(market.able) == 2
