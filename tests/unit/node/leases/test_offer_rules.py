"""What an owner's rules offer, and on which orders they bid."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.market.coverage import covers
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import (
    BidPlan,
    LeaseRules,
    MachineFacts,
    OrderedLease,
    check_rules,
    decide,
    standing_offer,
)
from sparewatt.protocol.contracts.match import OrderTerms, Specification
from sparewatt.protocol.contracts.reasons import DeclineReason
from sparewatt.protocol.link.lease_offer import LeaseDiscount, LeasePrice
from sparewatt.protocol.link.node_report import validated
from tests.unit.node.leases.lease_world import MACHINE, RENTER, policy, specification

NONE = LeaseCapacity()
CPU_ONLY = MachineFacts(LeaseCapacity(0, 8_000, 16_000, 50_000), hourly_uusd=80_000)


def answer(
    rules: LeaseRules | None = None,
    *,
    terms: OrderTerms | None = None,
    spec: Specification | None = None,
    machine: MachineFacts = MACHINE,
    reserved: LeaseCapacity = NONE,
    is_paused: bool = False,
    image: str = "docker.io/library/nginx:1",
    broken: int = 0,
) -> BidPlan | DeclineReason:
    return decide(
        OrderedLease(RENTER, terms or policy(), spec or specification(), image, 4, broken),
        rules=rules or LeaseRules(),
        machine=machine,
        reserved=reserved,
        is_paused=is_paused,
    )


def test_without_prices_the_hour_is_divided_over_the_gpus() -> None:
    offer = standing_offer(LeaseRules(), MACHINE, reserved=NONE)
    assert offer.prices == (LeasePrice(1, 250_000),)
    assert offer.cpu_hourly_uusd is None, "the processors feed the GPUs"
    assert offer.runtime is False
    assert validated(offer) == offer


def test_a_machine_without_gpus_offers_processors() -> None:
    offer = standing_offer(LeaseRules(), CPU_ONLY, reserved=NONE)
    assert (offer.prices, offer.cpu_hourly_uusd) == ((), 10_000)
    assert (offer.gpus, offer.cpu_milli, offer.memory_mib) == (0, 8_000, 12_000)


def test_a_free_machine_still_has_a_price() -> None:
    free = MachineFacts(CPU_ONLY.measured, hourly_uusd=0)
    assert standing_offer(LeaseRules(), free, reserved=NONE).cpu_hourly_uusd == 1


def test_an_offer_shows_what_is_left() -> None:
    offer = standing_offer(LeaseRules(gpus=1), MACHINE, reserved=LeaseCapacity(1, 3_000, 48_000, 1))
    assert (offer.gpus, offer.cpu_milli, offer.memory_mib, offer.disk_mib) == (0, 5_000, 0, 299_999)


def test_a_bid_has_the_offers_price_and_promises_what_is_ordered() -> None:
    plan = answer()
    assert isinstance(plan, BidPlan)
    assert plan.price_uusd == 250_000
    assert covers(specification(), plan.terms, policy())
    promised = (plan.terms.gpus, plan.terms.gpu_model, plan.terms.vram_gb, plan.terms.memory_mib)
    assert promised == (1, 44, 24, 4_096)
    assert (plan.terms.reclaim_s, plan.terms.egress, plan.terms.disk_kind) == (3_600, 1, 0)


def test_a_lease_without_gpus_promises_no_card() -> None:
    plan = answer(spec=specification(gpus=0), machine=CPU_ONLY, terms=policy(gpu_units=0))
    assert isinstance(plan, BidPlan)
    assert (plan.price_uusd, plan.terms.gpu_model, plan.terms.vram_gb) == (20_000, 0, 0)


def test_a_longer_lease_is_cheaper_where_the_owner_says_so() -> None:
    rules = LeaseRules(prices=(LeasePrice(1, 400_000),), discounts=(LeaseDiscount(86_400, 200_000),))
    short, long = answer(rules), answer(rules, terms=policy(duration_s=86_400))
    assert isinstance(short, BidPlan)
    assert isinstance(long, BidPlan)
    assert (short.price_uusd, long.price_uusd) == (400_000, 320_000)


BIG = LeaseCapacity(2, 8_000, 48_000, 300_000)
REFUSALS: list[tuple[DeclineReason, dict[str, Any]]] = [
    (DeclineReason.IMAGE, {"rules": LeaseRules(refused_images=("*/NGINX*",))}),
    (DeclineReason.TENANT, {"rules": LeaseRules(refused_tenants=(RENTER,))}),
    (DeclineReason.TENANT, {"rules": LeaseRules(tenant_broken_ppm=500_000), "broken": 4}),
    (DeclineReason.DURATION, {"rules": LeaseRules(longest_s=3_599)}),
    (DeclineReason.OTHER, {"rules": LeaseRules(reclaim_s=599)}),
    (DeclineReason.OTHER, {"rules": LeaseRules(egress=False)}),
    (DeclineReason.OTHER, {"rules": LeaseRules(gpus=0)}),
    (DeclineReason.OTHER, {"rules": LeaseRules(memory_mib=4_095)}),
    (DeclineReason.OTHER, {"spec": specification(gpus=3)}),
    (DeclineReason.OTHER, {"spec": specification(gpus=0)}),  # no price for processors alone
    (DeclineReason.OTHER, {"rules": LeaseRules(prices=(LeasePrice(2, 1),))}),
    (DeclineReason.PRICE, {"terms": policy(max_price_uusd=249_999)}),
    (DeclineReason.PAUSED, {"is_paused": True}),
    (DeclineReason.BUSY, {"reserved": LeaseCapacity(gpus=2)}),
    (DeclineReason.BUSY, {"reserved": BIG}),
    (DeclineReason.BUSY, {"rules": LeaseRules(disk_mib=20_479), "reserved": LeaseCapacity(disk_mib=10_240)}),
]


@pytest.mark.parametrize(("reason", "given"), REFUSALS)
def test_each_rule_declines_with_its_reason(reason: DeclineReason, given: dict[str, Any]) -> None:
    assert answer(**given) is reason


@pytest.mark.parametrize(
    "given",
    [
        {"rules": LeaseRules(refused_images=("*/apache*",), refused_tenants=("0x" + "1" * 40,))},
        {"rules": LeaseRules(longest_s=3_600, reclaim_s=600, memory_mib=4_096, gpus=1, cpu_milli=2_000)},
        {"terms": policy(max_price_uusd=250_000)},
        {"rules": LeaseRules(tenant_broken_ppm=500_000), "broken": 3},
        {"broken": 4},
        {"rules": LeaseRules(egress=False), "spec": specification(egress=0)},
        {"reserved": LeaseCapacity(1, 6_000, 43_904, 289_760)},
        {"rules": LeaseRules(disk_mib=20_480), "reserved": LeaseCapacity(disk_mib=10_240)},
    ],
)
def test_what_just_keeps_the_rules_is_bid_on(given: dict[str, Any]) -> None:
    assert isinstance(answer(**given), BidPlan)


def test_a_refusal_for_ever_goes_before_one_for_now() -> None:
    assert answer(LeaseRules(longest_s=60), reserved=BIG, is_paused=True) is DeclineReason.DURATION


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (LeaseRules(gpus=3), "gpus"),
        (LeaseRules(memory_mib=64_001), "memory"),
        (LeaseRules(prices=(LeasePrice(1, 5), LeasePrice(3, 6))), "prices"),
        (LeaseRules(prices=(LeasePrice(1, 5), LeasePrice(1, 6))), "price"),
        (LeaseRules(discounts=(LeaseDiscount(60, 5), LeaseDiscount(60, 6))), "discount"),
    ],
)
def test_rules_of_no_sense_are_refused(wrong: LeaseRules, param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_rules(wrong, MACHINE.measured)
    assert refused.value.param == param


def test_a_refusal_says_what_the_machine_has_in_the_owners_units() -> None:
    with pytest.raises(InvalidField, match="has 8 processors"):
        check_rules(LeaseRules(cpu_milli=64_000), CPU_ONLY.measured)
    with pytest.raises(InvalidField, match=r"has 16\.7 GB of memory"):
        check_rules(LeaseRules(memory_mib=16_001), CPU_ONLY.measured)
    with pytest.raises(InvalidField, match=r"no GPU, and '--cpu-price'.*'--price 1=none' forgets it"):
        check_rules(LeaseRules(prices=(LeasePrice(1, 5),)), CPU_ONLY.measured)


def test_all_of_the_machine_may_be_lent() -> None:
    gpus, cpu_milli, memory_mib, disk_mib = MACHINE.measured
    check_rules(LeaseRules(gpus=gpus, cpu_milli=cpu_milli, memory_mib=memory_mib, disk_mib=disk_mib), MACHINE.measured)
