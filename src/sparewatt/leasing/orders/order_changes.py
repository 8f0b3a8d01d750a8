"""What would admit somebody, if nobody can serve an order: a change of one field, else the fewest together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sparewatt.core.plural import pluralize
from sparewatt.leasing.orders.order_fields import NANO_PER_MICRO, LeaseOrder
from sparewatt.leasing.orders.provider_checks import BOND, CAPACITY, OfferingProvider, OrderCheck
from sparewatt.policy.check import FACT_OF, compile_policy
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.formatter import describe_change, explain_relaxation
from sparewatt.policy.model import Range
from sparewatt.policy.relaxation import Relaxation, check_node, relaxations
from sparewatt.protocol.link.lease_offer import LeaseOffer

CHANGES_MAX = 5
DESCRIBED_MAX = 100
"""Of the nearest providers: putting a change into words takes longer than comparing."""
TOGETHER_MAX = 6
"""Changes in one sentence: an order that is further away from every offer is another order."""
_GPU_FIELDS = ("gpu", "gpu_class", "vram_gb")


def nearest_changes(order: LeaseOrder, providers: Sequence[OfferingProvider]) -> list[str]:
    """Of those that offer leases now, those that admit most first."""
    check = OrderCheck.of(order)
    offering = [view for view in providers if view.offer is not None]
    found = _of_one_field(check, offering) or _without_gpus(order, offering) or _together(check, offering)
    return found[:CHANGES_MAX]


def _of_one_field(check: OrderCheck, offering: Sequence[OfferingProvider]) -> list[str]:
    priced = [view for view in offering if check.price(view) is not None]
    fitting = [[check.facts(view)] for view in priced if view.offer and not check.lacking(view.offer)]
    found = [explain_relaxation(each) for each in relaxations(check.policy, fitting)]
    passing = [view.offer for view in priced if view.offer and check_node(check.policy, [check.facts(view)]) is None]
    for each in CAPACITY:
        near = [each.has(offer) for offer in passing if check.lacking(offer) == [each]]
        if near and each.name != "notice":
            found.append(f"{each.change(check.order, max(near))} adds {pluralize(len(near), 'node')}")
    return found + _lower_bond(check, priced)


def _lower_bond(check: OrderCheck, priced: Sequence[OfferingProvider]) -> list[str]:
    """A bid needs an hour of the highest price as bond: a lower one lets those bid whose bond covers their own."""
    highest = check.policy.max_hourly
    poor = [
        view.free_bond_uusd for view in priced if check.first_failure(view) == BOND and _covers_its_own(check, view)
    ]
    if highest is None or not poor:
        return []
    lower = max(poor)
    text = describe_change(Relaxation(("max_hourly",), highest, lower * NANO_PER_MICRO, 1))
    return [f"{text}, so that bonds are enough, adds {pluralize(poor.count(lower), 'node')}"]


def _covers_its_own(check: OrderCheck, view: OfferingProvider) -> bool:
    price = check.price(view)
    return price is not None and price <= view.free_bond_uusd


def _without_gpus(order: LeaseOrder, offering: Sequence[OfferingProvider]) -> list[str]:
    """A machine without a GPU is another thing: it is named only if nothing nearer helps."""
    if not order.gpus or any(getattr(order.policy, name) is not None for name in _GPU_FIELDS):
        return []
    check = OrderCheck.of(_no_gpus(order))
    able = sum(check.first_failure(view) is None for view in offering)
    return [f"gpus {order.gpus}→0, a machine without a GPU, adds {pluralize(able, 'node')}"] if able else []


def _no_gpus(order: LeaseOrder) -> LeaseOrder:
    policy = replace(order.policy, gpu_count=Range(low=0), **dict.fromkeys(_GPU_FIELDS))
    return replace(order, gpus=0, policy=policy)


def _together(check: OrderCheck, offering: Sequence[OfferingProvider]) -> list[str]:
    """What separates the order from the nearest offers, or else from those of machines without a GPU."""
    order, first = check.order, ""
    nearest = _nearest(check, offering)
    if order.gpus and not nearest:
        check, first = OrderCheck.of(_no_gpus(order)), f"gpus {order.gpus}→0{_named_gpu_fields(order)}"
        nearest = _nearest(check, offering)
    found = Counter(_changes(check, view, view.offer) for view in nearest[:DESCRIBED_MAX] if view.offer is not None)
    least = "at least " if len(nearest) > DESCRIBED_MAX else ""
    ranked = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    texts = [((first, *changes) if first else changes, count) for changes, count in ranked]
    return [
        f"{', '.join(changes)} {'adds' if len(changes) == 1 else 'together add'} {least}{pluralize(count, 'node')}"
        for changes, count in texts
        if len(changes) <= TOGETHER_MAX
    ]


def _nearest(check: OrderCheck, offering: Sequence[OfferingProvider]) -> list[OfferingProvider]:
    """Those of which the fewest conditions of the order are not met, and all could be changed."""
    compiled = compile_policy(check.policy)
    found: list[tuple[int, OfferingProvider]] = []
    for view in offering:
        if view.offer is None or not _covers_its_own(check, view) or (check.order.gpus and not view.offer.gpus):
            continue
        lacking = check.lacking(view.offer)
        if all(each.name != "notice" for each in lacking):
            found.append((len(lacking) + len(compiled.mismatched_fields(check.facts(view))), view))
    fewest = min((number for number, _ in found), default=0)
    return [view for number, view in found if number == fewest]


def _named_gpu_fields(order: LeaseOrder) -> str:
    named = [name for name in _GPU_FIELDS if getattr(order.policy, name) is not None]
    return f" without {' and '.join(named)}" if named else ""


def _changes(check: OrderCheck, view: OfferingProvider, offer: LeaseOffer) -> tuple[str, ...]:
    """All that has to change for this provider."""
    facts, lacking = check.facts(view), check.lacking(offer)
    changes = []
    for name in compile_policy(check.policy).mismatched_fields(facts):
        if name == "gpu_count" and any(each.name == "gpus" for each in lacking):
            continue  # the same condition
        value = getattr(check.policy, name)
        nearest = FIELDS[name].nearest(value, [FACT_OF[name](facts)])
        changes.append(describe_change(Relaxation((name,), value, nearest, 1)))
    return (*changes, *(each.change(check.order, each.has(offer)) for each in lacking))
