"""`/v1/earnings/leases`: what an owner's machines earn by leases, and until when they are booked."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.protocol.api.market import LeaseStateName


class LeaseIncome(msgspec.Struct, frozen=True, kw_only=True):
    """One lease of one of your providers. Times are Unix seconds of the chain."""

    id: str
    """The lease's, which is its order's."""
    provider: str
    node: str
    state: LeaseStateName | Literal["left"]
    """`left`: another provider has it now, or had it at its end."""
    hourly_usd: str
    """As agreed, before the fee; of one that was left, the price now."""
    placed_at: int
    left_at: int | None
    """None while it is booked."""
    ends_at: int | None
    """While it runs: when the agreed time is over."""
    earned_usd: str
    """Settled on the chain, after the network's fee."""
    due_usd: str
    """Since then, before the fee."""


class LeaseIncomeList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[LeaseIncome]
    """The newest first; at most 200."""
    earned_usd: str
    """By all of them, also those that are not listed."""
    due_usd: str
    hourly_usd: str
    """What runs now brings per hour, before the fee."""
    leases: int
    """How many there are in all."""
