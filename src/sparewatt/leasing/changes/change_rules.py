"""What a change of a running lease means: the terms that go to the provider, and what has to be added. Pure.

A contract's update names the whole time that is left from the moment of its acceptance. So a lease is extended by
proposing what is left and more; the seconds until the provider accepts come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.errors import InvalidField, MaxSpendReached, UnprocessableContent
from sparewatt.core.money import format_usd
from sparewatt.leasing.changes.content_change import ContentChange
from sparewatt.leasing.orders.order_fields import DURATION_S_MAX, NANO_PER_MICRO
from sparewatt.market.accrual import HOUR_S, PaymentStream, due_uusd
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.protocol.contracts.match import OrderTerms, Specification
from sparewatt.protocol.link.lease_offer import LeaseOffer

SPARE_S = 60
"""What an extension adds to the deposit beyond its cost: the meter runs while the provider is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """What a renter asks for; None and 0 leave it as it is."""

    added_s: int = 0
    left_s: int | None = None
    """How long it shall go on from now, instead of what is left."""
    rate_uusd: int | None = None
    max_spend_uusd: int | None = None
    content: ContentChange | None = None
    """What shall run instead."""

    @property
    def asked(self) -> str:
        """To tell a repeated request from another one with the same id."""
        terms = f"{self.added_s} {self.left_s} {self.rate_uusd} {self.max_spend_uusd}"
        return terms if self.content is None else f"{terms} {self.content.asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    rate_uusd: int
    duration_s: int
    """From now."""
    ends_at: int
    cost_uusd: int
    """What it may cost from now on."""
    top_up_uusd: int
    max_spend_uusd: int | None


def plan_change(
    change: LeaseChange, lease: LeaseRecord, stream: PaymentStream, terms: OrderTerms, *, at: int
) -> ChangePlan:
    """Raises UnprocessableContent if the lease does not run, InvalidField for terms that no contract takes."""
    require_running(lease)
    left_s = max(0, stream.end_at - at)
    rate = lease.rate_uusd if change.rate_uusd is None else change.rate_uusd
    if rate > terms.max_price_uusd:
        raise InvalidField(
            f"The order's highest price is ${usd(terms.max_price_uusd)} an hour, and a change cannot go beyond it.",
            param="hourly_usd",
        )
    duration_s = (left_s if change.left_s is None else change.left_s) + change.added_s
    if not 0 < duration_s <= DURATION_S_MAX:
        raise InvalidField(f"A lease goes on for at most {DURATION_S_MAX // 86_400} days.", param="duration")
    cost, before = -(-rate * duration_s // HOUR_S), -(-lease.rate_uusd * left_s // HOUR_S)
    missing = cost - (stream.deposit_uusd - due_uusd(stream, at=at))
    wanted = max(0, min(missing, cost - before))
    return ChangePlan(
        rate_uusd=rate,
        duration_s=duration_s,
        ends_at=at + duration_s,
        cost_uusd=cost,
        top_up_uusd=wanted + (max(1, rate * SPARE_S // HOUR_S) if wanted else 0),
        max_spend_uusd=change.max_spend_uusd,
    )


def require_running(lease: LeaseRecord) -> None:
    if lease.state is LeaseState.ACTIVE:
        return
    why = {
        LeaseState.PENDING: "It has not started yet. Try again when it runs.",
        LeaseState.PAUSED: "It is paused. Resume it first.",
        LeaseState.CLOSED: "It is closed.",
    }.get(lease.state, "It has no provider now.")
    raise UnprocessableContent(f"Only a lease that runs can be changed. {why}")


def require_acceptable(
    plan: ChangePlan, offer: LeaseOffer | None, specification: Specification, *, ordered_s: int
) -> None:
    """What the provider's own offer says against it, before anything is spent. Raises UnprocessableContent."""
    if offer is None:
        raise UnprocessableContent("The provider offers no leases now, so it would not accept a change.")
    if plan.duration_s > offer.longest_s:
        raise UnprocessableContent(
            f"The provider takes leases of at most {offer.longest_s // HOUR_S} h, counted from now. Ask for less."
        )
    price = offer.hourly_uusd(
        gpus=specification.gpus, cpu_milli=specification.cpu_milli, duration_s=max(plan.duration_s, ordered_s)
    )
    if price is None or price > plan.rate_uusd:
        asks = "no price for it any more" if price is None else f"${usd(price)} an hour for it now"
        raise UnprocessableContent(
            f"The provider has {asks}, and this is ${usd(plan.rate_uusd)}. 'sparewatt lease update ID --hourly USD' "
            "proposes another price, up to the order's highest."
        )


def checked_cap(*, put_in_uusd: int, adding_uusd: int, cap_uusd: int | None, raised_uusd: int | None) -> int | None:
    """The cap that holds from now on. `put_in_uusd`: all that the renter has put in, or asked to be put in.

    Raises MaxSpendReached.
    """
    total, cap = put_in_uusd + adding_uusd, cap_uusd if raised_uusd is None else raised_uusd
    if cap is not None and total > cap:
        raise MaxSpendReached(
            f"This lease may cost ${usd(cap)} at most, and with ${usd(adding_uusd)} more ${usd(total)} would be put "
            f"into it. Raise its cap if you want that: 'max_spend' (--max-spend {usd(total)}).",
            param="max_spend",
        )
    return cap


def usd(uusd: int) -> str:
    return format_usd(uusd * NANO_PER_MICRO)
