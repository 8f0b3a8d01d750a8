"""One provider against one order: what the registry has of it, and what its node offers now. Pure.

Validators decide by the table of the epoch, which also has uptime, reputation and attestations; a gateway does not have
it. GPU, place, price and capacity are the providers' own words, the bond is read from the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sparewatt.leasing.orders.order_fields import BYTES_PER_GB, BYTES_PER_MIB, NANO_PER_MICRO, LeaseOrder
from sparewatt.leasing.orders.terms import RECLAIM_S
from sparewatt.market.chain_records import RegisteredClaims
from sparewatt.policy.check import NodeFacts
from sparewatt.policy.gpus import gpu_class_of
from sparewatt.policy.market_ids import COUNTRY_ID, GPU_MODEL_ID, TIER_ID
from sparewatt.policy.model import Policy
from sparewatt.policy.relaxation import check_node
from sparewatt.protocol.link.lease_offer import LeaseOffer

UNCHECKED = ("uptime", "reputation", "compliance", "attested_by")
"""Fields of a policy that only the validators' table can answer."""
COUNTRY_NAME = {number: name for name, number in COUNTRY_ID.items()}
GPU_NAME = {number: name for name, number in GPU_MODEL_ID.items()}
TIER_NAME = {number: name for name, number in TIER_ID.items()}
OFFLINE, NOT_OFFERED, NO_RUNTIME = "connected", "offers leases", "starts containers"
NO_PRICE, BOND = "has a price", "bond"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingProvider:
    """An active provider, as far as a gateway can see it."""

    provider: str
    claims: RegisteredClaims
    free_bond_uusd: int
    node_name: str | None
    """None if its node is not connected to this network."""
    offer: LeaseOffer | None
    """None if its node is not connected, or its owner leases nothing now."""


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """A number of the offer that must be no less than the order's."""

    name: str
    needed: Callable[[LeaseOrder], int]
    has: Callable[[LeaseOffer], int]
    per_unit: float
    """For people: how much of it is 1 of the unit that order files use."""
    unit: str = ""
    is_used_up: bool = False
    """Whether a lease takes it from the next one."""

    def text(self, amount: int) -> str:
        return f"{amount / self.per_unit:.4g}{self.unit}"

    def change(self, order: LeaseOrder, amount: int) -> str:
        return f"{self.name} {self.text(self.needed(order))}→{self.text(amount)}"


_MIB_PER_GB = BYTES_PER_GB / BYTES_PER_MIB
CAPACITY = (
    CapacityCheck("gpus", lambda order: order.gpus, lambda offer: offer.gpus, 1, is_used_up=True),
    CapacityCheck("cpus", lambda order: order.cpu_milli, lambda offer: offer.cpu_milli, 1_000, is_used_up=True),
    CapacityCheck(
        "memory_gb", lambda order: order.memory_mib, lambda offer: offer.memory_mib, _MIB_PER_GB, is_used_up=True
    ),
    CapacityCheck("disk_gb", lambda order: order.disk_mib, lambda offer: offer.disk_mib, _MIB_PER_GB, is_used_up=True),
    CapacityCheck("egress", lambda order: int(order.has_egress), lambda offer: offer.egress, 1),
    CapacityCheck("duration", lambda order: order.duration_s, lambda offer: offer.longest_s, 3_600, "h"),
    CapacityCheck("notice", lambda _: RECLAIM_S, lambda offer: offer.reclaim_s, 1),
)


@dataclass(frozen=True, slots=True)
class OrderCheck:
    order: LeaseOrder
    policy: Policy
    """The order's, without what is not known here."""

    @classmethod
    def of(cls, order: LeaseOrder) -> OrderCheck:
        return cls(order, replace(order.policy, **dict.fromkeys(UNCHECKED)))

    def first_failure(self, view: OfferingProvider) -> str | None:
        """The first condition that rules it out; None if it could serve the order."""
        if view.node_name is None:
            return OFFLINE
        if view.offer is None:
            return NOT_OFFERED
        if not view.offer.runtime:
            return NO_RUNTIME
        price = self.price(view)
        known = self.policy if price is not None else replace(self.policy, max_hourly=None)
        by_policy = check_node(known, [self.facts(view)])
        if by_policy is not None or price is None:
            return by_policy or NO_PRICE
        lacking = self.lacking(view.offer)
        if lacking:
            return lacking[0].name
        return None if view.free_bond_uusd >= self.bond_needed(price) else BOND

    def price(self, view: OfferingProvider) -> int | None:
        if view.offer is None:
            return None
        order = self.order
        return view.offer.hourly_uusd(gpus=order.gpus, cpu_milli=order.cpu_milli, duration_s=order.duration_s)

    def bond_needed(self, price_uusd: int) -> int:
        """An hour of the highest price, as validators ask for; of its own, where the order names none."""
        highest = self.policy.max_hourly
        return price_uusd if highest is None else max(price_uusd, highest // NANO_PER_MICRO)

    def lacking(self, offer: LeaseOffer) -> list[CapacityCheck]:
        return [check for check in CAPACITY if check.has(offer) < check.needed(self.order)]

    def room_in(self, offer: LeaseOffer) -> int:
        """How many leases of this kind its free part of the machine holds."""
        used = [check for check in CAPACITY if check.is_used_up and check.needed(self.order)]
        return min((check.has(offer) // check.needed(self.order) for check in used), default=0)

    def facts(self, view: OfferingProvider) -> NodeFacts:
        claims, price = view.claims, self.price(view)
        gpu = GPU_NAME.get(claims.gpu_model)
        return NodeFacts(
            node_id=view.provider,
            names=frozenset({view.provider}),
            place=COUNTRY_NAME.get(claims.country),
            zone=claims.zone,
            gpu=gpu,
            gpu_class=None if gpu is None else gpu_class_of(gpu),
            vram_gb=claims.vram_gb or None,
            gpu_count=claims.gpu_units,
            tier=TIER_NAME.get(claims.tier),
            hourly_nano=None if price is None else price * NANO_PER_MICRO,
        )
