"""Who could serve an order, the cheapest first, and where the others failed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.leasing.orders.order_changes import nearest_changes
from sparewatt.leasing.orders.order_fields import LeaseOrder
from sparewatt.leasing.orders.provider_checks import (
    BOND,
    CAPACITY,
    NO_PRICE,
    NO_RUNTIME,
    NOT_OFFERED,
    OFFLINE,
    OfferingProvider,
    OrderCheck,
)
from sparewatt.policy.model import Policy
from sparewatt.policy.relaxation import count_dropped
from sparewatt.protocol.api.nodes import PolicyFilterStep

PROVIDERS_COMPARED_MAX = 2_000
"""Comparing them takes a tenth of a second, in which other answers wait."""


@dataclass(frozen=True, slots=True)
class AbleProvider:
    view: OfferingProvider
    hourly_uusd: int
    room: int
    """How many leases of this kind it has room for now."""


@dataclass(frozen=True, slots=True)
class OrderMarket:
    """What an order meets."""

    able: tuple[AbleProvider, ...]
    """The cheapest first."""
    funnel: tuple[PolicyFilterStep, ...]
    relaxations: tuple[str, ...]


def find_able(order: LeaseOrder, providers: Sequence[OfferingProvider]) -> OrderMarket:
    """Who passes everything that a gateway can check, and where the others failed, in the order of the checks."""
    check, compared = OrderCheck.of(order), _compared(providers)
    failures = [check.first_failure(view) for view in compared]
    able = [
        AbleProvider(view, price, check.room_in(view.offer))
        for view, failure in zip(compared, failures, strict=True)
        if failure is None and view.offer is not None and (price := check.price(view)) is not None
    ]
    able.sort(key=lambda each: (each.hourly_uusd, each.view.provider))
    return OrderMarket(
        tuple(able),
        tuple(_funnel(check.policy, Counter(failures), total=len(compared))),
        () if able else tuple(nearest_changes(order, compared)),
    )


def _compared(providers: Sequence[OfferingProvider]) -> Sequence[OfferingProvider]:
    """Of a larger market, those that offer with the largest bonds: registering is cheap, and must not hide them."""
    if len(providers) <= PROVIDERS_COMPARED_MAX:
        return providers
    ranked = sorted(providers, key=lambda view: (view.offer is None, -view.free_bond_uusd))
    return ranked[:PROVIDERS_COMPARED_MAX]


def _funnel(policy: Policy, failed: Counter[str | None], *, total: int) -> list[PolicyFilterStep]:
    """Steps that every order has are shown only where they dropped somebody; those of the policy always."""
    steps, left = [], total
    by_policy = [step.field for step in count_dropped(policy, Counter())]
    for name in (OFFLINE, NOT_OFFERED, NO_RUNTIME, *by_policy, NO_PRICE, *(check.name for check in CAPACITY), BOND):
        left -= failed[name]
        if failed[name] or (name in by_policy and name != "gpu_count"):
            steps.append(PolicyFilterStep(filter=name, dropped=failed[name], left=left))
    return steps
