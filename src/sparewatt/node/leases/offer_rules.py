"""The owner's rules for leases: what the machine offers, and whether a bid is made on an order. Pure decisions.

A bid is the price of the standing offer: in a second-score auction nothing else pays better, and a higher bid than the
offer would deceive whoever compared offers. Declines name a reason that the renter sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import MIB
from sparewatt.node.leases.capacity import LeaseCapacity, capacity_of, offered_capacity
from sparewatt.node.leases.machine.owner_command import COMMAND_CHARS_MAX, words_of
from sparewatt.protocol.contracts.match import BidTerms, OrderTerms, Specification
from sparewatt.protocol.contracts.reasons import DeclineReason
from sparewatt.protocol.link.lease_offer import (
    DISCOUNTS_MAX,
    GPU_COUNTS_MAX,
    LEASE_PRICE_UUSD_MAX,
    PPM,
    LeaseDiscount,
    LeaseOffer,
    LeasePrice,
    LeasePriceUusd,
    LeaseSeconds,
)
from sparewatt.protocol.link.node_report import Address
from sparewatt.trust.renter_record import is_declined

DAY_S, HOUR_S = 86_400, 3_600
BYTES_PER_GB = 10**9
REFUSED_IMAGES_MAX, REFUSED_TENANTS_MAX = 64, 256

ImagePattern = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+\Z")]
OwnerCommand = Annotated[str, Meta(min_length=1, max_length=COMMAND_CHARS_MAX)]
_Limit = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]


class LeaseRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """None, or nothing, stands for what follows from the machine and the node's price per hour."""

    prices: Annotated[tuple[LeasePrice, ...], Meta(max_length=GPU_COUNTS_MAX)] = ()
    cpu_hourly_uusd: LeasePriceUusd | None = None
    """Per processor, of leases without GPUs. A machine with GPUs leases its processors alone only with this."""
    discounts: Annotated[tuple[LeaseDiscount, ...], Meta(max_length=DISCOUNTS_MAX)] = ()
    longest_s: LeaseSeconds = 7 * DAY_S
    refused_images: Annotated[tuple[ImagePattern, ...], Meta(max_length=REFUSED_IMAGES_MAX)] = ()
    """With `*` and `?`, as `*/xmrig*`."""
    refused_tenants: Annotated[tuple[Address, ...], Meta(max_length=REFUSED_TENANTS_MAX)] = ()
    tenant_broken_ppm: Annotated[int, Meta(ge=0, le=PPM)] | None = None
    """The largest share of a renter's orders that it may have withdrawn, or closed before they had started."""
    gpus: _Limit | None = None
    cpu_milli: _Limit | None = None
    memory_mib: _Limit | None = None
    disk_mib: _Limit | None = None
    egress: bool = True
    """Whether programs of leases may reach public addresses."""
    reclaim_s: LeaseSeconds = HOUR_S
    """The notice before the owner takes the machine back."""
    free_command: OwnerCommand | None = None
    """Stops what sits on the GPUs, before a lease gets them. Without a shell."""
    restore_command: OwnerCommand | None = None
    """Brings it back after the lease."""
    follow_pay: bool = False
    """Offer leases at no less than what inference earned per hour."""

    def limits(self) -> tuple[int | None, ...]:
        return self.gpus, self.cpu_milli, self.memory_mib, self.disk_mib


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the rules need to know of the machine, beside its capacity."""

    measured: LeaseCapacity
    hourly_uusd: int
    """What the owner asks for an hour of the whole machine."""
    gpu_model: int = 0
    """An id of the market's table; 0: no GPU."""
    vram_gb: int = 0
    """Of the smallest GPU."""
    earned_uusd: int = 0
    """What inference earned per hour with the whole machine; 0: nothing, or it is not known."""


@dataclass(frozen=True, slots=True)
class BidPlan:
    """What to bid: the price per hour for the whole lease, and what is promised for it."""

    price_uusd: int
    terms: BidTerms


@dataclass(frozen=True, slots=True)
class OrderedLease:
    """An order whose parts are known to belong to its id."""

    renter: str
    terms: OrderTerms
    specification: Specification
    image: str
    renter_orders: int = 0
    """As the gateway says: a false count can only cost its renter a bid, or this node a careless renter."""
    renter_broken: int = 0


def _gb(mib: int) -> str:
    """Rounded down, so that what is shown may be asked for."""
    return f"{mib * MIB // (BYTES_PER_GB // 10) / 10:.1f} GB"


_MEASURES: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("gpus", lambda gpus: f"{gpus} GPUs"),
    ("cpus", lambda milli: f"{milli / 1_000:g} processors"),
    ("memory", lambda mib: f"{_gb(mib)} of memory"),
    ("disk", lambda mib: f"{_gb(mib)} of free disk"),
)
"""What `LeaseRules.limits` bound, in words."""


def check_rules(rules: LeaseRules, measured: LeaseCapacity) -> None:
    """Raises InvalidField for what the machine does not have, or what contradicts itself."""
    for (name, text), wanted, there in zip(_MEASURES, rules.limits(), measured, strict=True):
        if wanted is not None and wanted > there:
            raise InvalidField(f"This machine has {text(there)}: leases cannot have more.", param=name)
    most = max((price.gpus for price in rules.prices), default=0)
    if most > measured.gpus:
        has = f"{measured.gpus} GPUs" if measured.gpus else "no GPU, and '--cpu-price' prices its processors"
        raise InvalidField(
            f"A price for {most} GPUs means nothing here: this machine has {has}. '--price {most}=none' forgets it.",
            param="prices",
        )
    check_distinct(rules)
    check_commands(rules)


def check_commands(rules: LeaseRules) -> None:
    """Raises InvalidField: what is stopped has to come back."""
    commands = (rules.free_command, rules.restore_command)
    if (commands[0] is None) is not (commands[1] is None):
        raise InvalidField("--free-command and --restore-command go together.", param="free_command")
    for command in commands:
        if command is not None:
            words_of(command)


def check_distinct(rules: LeaseRules) -> None:
    """Raises InvalidField for two prices, or discounts, of one kind of lease."""
    _require_distinct("price", (price.gpus for price in rules.prices))
    _require_distinct("discount", (discount.least_s for discount in rules.discounts))


def _require_distinct(name: str, keys: Iterable[int]) -> None:
    listed = list(keys)
    if len(set(listed)) != len(listed):
        raise InvalidField(f"Two of the {name}s are for the same number.", param=name)


def standing_offer(rules: LeaseRules, machine: MachineFacts, *, reserved: LeaseCapacity) -> LeaseOffer:
    """Without prices of the owner's own, the node's price per hour is divided over its GPUs, or its processors."""
    whole = offered_capacity(machine.measured, wanted=rules.limits())
    free = whole.less(reserved)
    gpus, cpu_milli = machine.measured.gpus, machine.measured.cpu_milli
    prices, cpu_price = rules.prices, rules.cpu_hourly_uusd
    if gpus and not prices:
        prices = (LeasePrice(1, max(1, -(-machine.hourly_uusd // gpus))),)
    if not gpus and cpu_price is None:
        cpu_price = max(1, -(-machine.hourly_uusd * 1_000 // cpu_milli))
    discounts = rules.discounts
    if rules.follow_pay and machine.earned_uusd:
        prices, cpu_price, discounts = _not_below_pay(prices, cpu_price, discounts, machine)
    return LeaseOffer(
        prices=prices if whole.gpus else (),
        cpu_hourly_uusd=cpu_price,
        discounts=discounts,
        longest_s=rules.longest_s,
        **free._asdict(),
        egress=int(rules.egress),
        reclaim_s=rules.reclaim_s,
    )


def _not_below_pay(
    prices: tuple[LeasePrice, ...],
    cpu_price: int | None,
    discounts: tuple[LeaseDiscount, ...],
    machine: MachineFacts,
) -> tuple[tuple[LeasePrice, ...], int | None, tuple[LeaseDiscount, ...]]:
    """No lease costs less than its share of what inference earned; a discount that would make it so is left out."""
    gpus, cpu_milli = machine.measured.gpus, machine.measured.cpu_milli
    raised: list[LeasePrice] = []
    for price in prices:
        least = -(-machine.earned_uusd * price.gpus // gpus)
        raised.append(LeasePrice(price.gpus, min(LEASE_PRICE_UUSD_MAX, max(price.hourly_uusd, least))))
        discounts = _discounts_above(discounts, raised[-1].hourly_uusd, least)
    if cpu_price is not None and not gpus:  # processors beside GPUs are not what inference works with
        least = -(-machine.earned_uusd * 1_000 // cpu_milli)
        cpu_price = min(LEASE_PRICE_UUSD_MAX, max(cpu_price, least))
        discounts = _discounts_above(discounts, cpu_price, least)
    return tuple(raised), cpu_price, discounts


def _discounts_above(discounts: tuple[LeaseDiscount, ...], full: int, least: int) -> tuple[LeaseDiscount, ...]:
    return tuple(each for each in discounts if full * (PPM - each.off_ppm) >= least * PPM)


def decide(
    order: OrderedLease,
    *,
    rules: LeaseRules,
    machine: MachineFacts,
    reserved: LeaseCapacity,
    is_paused: bool,
    can_start: bool = True,
) -> BidPlan | DeclineReason:
    """The first rule against the order is the reason. Capacity is the last: a refusal for ever goes before one for
    now."""
    offer = standing_offer(rules, machine, reserved=reserved)
    specification, policy = order.specification, order.terms
    wanted = capacity_of(specification)
    price_uusd = offer.hourly_uusd(gpus=wanted.gpus, cpu_milli=wanted.cpu_milli, duration_s=policy.duration_s)
    whole = offered_capacity(machine.measured, wanted=rules.limits())
    rules_against: tuple[tuple[bool, DeclineReason], ...] = (
        (is_refused_image(order.image, rules.refused_images), DeclineReason.IMAGE),
        (_is_refused_tenant(order, rules), DeclineReason.TENANT),
        (policy.duration_s > rules.longest_s, DeclineReason.DURATION),
        (policy.reclaim_s > rules.reclaim_s or specification.egress > offer.egress, DeclineReason.OTHER),
        (price_uusd is None or not whole.covers(wanted) or not can_start, DeclineReason.OTHER),
        ((price_uusd or 0) > policy.max_price_uusd, DeclineReason.PRICE),
        (is_paused, DeclineReason.PAUSED),
        (not whole.less(reserved).covers(wanted), DeclineReason.BUSY),
    )
    reason = next((reason for applies, reason in rules_against if applies), None)
    if reason is not None or price_uusd is None:
        return reason or DeclineReason.OTHER
    return BidPlan(price_uusd, _promise(specification, machine, offer))


def _is_refused_tenant(order: OrderedLease, rules: LeaseRules) -> bool:
    is_careless = is_declined(
        orders=order.renter_orders, broken=order.renter_broken, broken_ppm_max=rules.tenant_broken_ppm
    )
    return is_careless or order.renter.lower() in rules.refused_tenants


def is_refused_image(image: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(image.lower(), pattern.lower()) for pattern in patterns)


def _promise(specification: Specification, machine: MachineFacts, offer: LeaseOffer) -> BidTerms:
    """Exactly what is ordered: what is promised beyond it could not be sold to anyone else."""
    has_gpus = specification.gpus > 0
    return BidTerms(
        gpus=specification.gpus,
        gpu_model=machine.gpu_model if has_gpus else 0,
        vram_gb=machine.vram_gb if has_gpus else 0,
        cpu_milli=specification.cpu_milli,
        memory_mib=specification.memory_mib,
        disk_mib=specification.disk_mib,
        disk_kind=offer.disk_kind,
        egress=specification.egress,
        down_mbps=offer.down_mbps,
        up_mbps=offer.up_mbps,
        reclaim_s=offer.reclaim_s,
    )
