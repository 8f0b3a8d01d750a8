"""An order as the chain has it: its specification, and its policy with the network's times. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.orders.order_fields import LeaseOrder
from sparewatt.market.order_filters import OrderFilters, order_filters
from sparewatt.protocol.contracts.lease_content import content_hash_of, write_content
from sparewatt.protocol.contracts.match import OrderTerms, Specification
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.typed_message import struct_hash

SECOND_SCORE = 1
"""The winner is paid what the second would have had to ask: bidding one's true price is then best for a bidder."""
FURTHER_ATTEMPTS = 2
"""Auctions that follow by themselves if one ends without a provider."""
RECLAIM_S = 600
"""The notice that a provider must give before it takes its machine back."""
LOCAL_CHAINS = frozenset({31337, 1337})
"""Chain ids of development networks, by which contracts know them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTimes:
    """The times of an order that a renter does not choose, by the names of `OrderTerms`."""

    commit_ms: int
    reveal_ms: int
    start_s: int
    standin_s: int
    down_s: int
    empty_grace_s: int
    life_s: int
    """How long an order without a provider stays open for new auctions."""


LOCAL_TIMES = OrderTimes(
    commit_ms=800, reveal_ms=400, start_s=30, standin_s=10, down_s=10, empty_grace_s=600, life_s=3_600
)
PUBLIC_TIMES = OrderTimes(
    commit_ms=4_000,
    reveal_ms=3_000,
    start_s=300,
    standin_s=120,
    down_s=120,
    empty_grace_s=86_400,
    life_s=3_600,
)


def times_of(chain_id: int) -> OrderTimes:
    return LOCAL_TIMES if chain_id in LOCAL_CHAINS else PUBLIC_TIMES


@dataclass(frozen=True, slots=True)
class WrittenSpecification:
    """A specification, with the content document that it has the hash of."""

    specification: Specification
    content: str

    @property
    def spec_hash(self) -> str:
        return f"0x{struct_hash(self.specification).hex()}"


def specification_of(order: LeaseOrder) -> WrittenSpecification:
    """Raises InvalidField for a document that is too large."""
    content = write_content(order.content)
    specification = Specification(
        content_hash=content_hash_of(content),
        gpus=order.gpus,
        cpu_milli=order.cpu_milli,
        memory_mib=order.memory_mib,
        disk_mib=order.disk_mib,
        egress=int(order.has_egress),
        secrets=len(order.content.secrets),
    )
    require_in_range(specification)
    return WrittenSpecification(specification, content)


def filters_of(order: LeaseOrder) -> OrderFilters:
    """Raises UnsupportedParameter for a field of the policy that no order can hold, by its name."""
    return order_filters(order.policy)


def terms_of(order: LeaseOrder, *, max_price_uusd: int, times: OrderTimes) -> OrderTerms:
    """Raises BadRequest."""
    filters = asdict(filters_of(order)) | {"max_price_uusd": max_price_uusd}
    chosen = {name: value for name, value in asdict(times).items() if name != "life_s"}
    terms = OrderTerms(**filters, **chosen, payment_rule=SECOND_SCORE, reclaim_s=RECLAIM_S, duration_s=order.duration_s)
    try:
        require_in_range(terms)
    except InvalidField as error:
        raise InvalidField(f"The order cannot be written: {error.message}", param=error.param) from None
    return terms


def attempts_of(order: LeaseOrder) -> int:
    """A new auction has new candidates, to whom only the renter can seal the secrets."""
    return 0 if order.content.secrets else FURTHER_ATTEMPTS
