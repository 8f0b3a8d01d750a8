"""The doors that anybody may knock at, signing up, logging in and asking for a reset, and how often they may.

Counted per address and, where one is named, per e-mail. Memory only: a restart forgives.
"""

from __future__ import annotations

import ipaddress

from sparewatt.accounts.rate_limits import TokenBuckets
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.core.limits import RETRY_AFTER_S_MAX

_HOUR_S = 3600.0
_MIN_S = 60.0
_IPV6_SITE_BITS = 64


class PublicRateLimiter:
    """One of them."""

    def __init__(self, doing: str, *, by_address: TokenBuckets, by_email: TokenBuckets, clock: Clock) -> None:
        self._doing = doing
        self._by_address = by_address
        self._by_email = by_email
        self._clock = clock

    def admit(self, *, address: str, email: str = "") -> None:
        """Raises RateLimited with when to come back."""
        now_s = self._clock.now_s()
        wait_s = self._by_address.take(client_network(address), now_s=now_s)
        if wait_s == 0.0 and email:
            wait_s = self._by_email.take(email, now_s=now_s)
        if wait_s:
            raise RateLimited(
                f"Too many tries at {self._doing}. Try again in {_format_wait(wait_s)}.",
                retry_after_s=min(wait_s, RETRY_AFTER_S_MAX),
            )


class PublicRateLimiters:
    def __init__(self, *, signups_per_address_hour: int, clock: Clock, share: int = 1) -> None:
        """`share`: of how many processes this is one."""
        signups = TokenBuckets(share=share, burst=signups_per_address_hour, per_s=signups_per_address_hour / _HOUR_S)
        self.signup = PublicRateLimiter(
            "signing up",
            by_address=signups,
            by_email=TokenBuckets(share=share, burst=10, per_s=10 / _HOUR_S),
            clock=clock,
        )
        self.login = PublicRateLimiter(
            "logging in",
            by_address=TokenBuckets(share=share, burst=30, per_s=30 / _MIN_S),
            by_email=TokenBuckets(share=share, burst=10, per_s=1 / _MIN_S),
            clock=clock,
        )
        self.reset = PublicRateLimiter(
            "resetting a password",
            by_address=TokenBuckets(share=share, burst=20, per_s=20 / _HOUR_S),
            by_email=TokenBuckets(share=share, burst=3, per_s=3 / _HOUR_S),
            clock=clock,
        )
        # Whoever checks the longest payout batch reads a little over a thousand pages of it.
        self.published = PublicRateLimiter(
            "reading what is published",
            by_address=TokenBuckets(share=share, burst=1_200, per_s=10),
            by_email=TokenBuckets(share=share, burst=1, per_s=1),
            clock=clock,
        )


def client_network(address: str) -> str:
    """Whom to count an address for: itself, or in IPv6 its site, since whoever has one address there has many."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_SITE_BITS), strict=False))


def _format_wait(wait_s: float) -> str:
    return f"{wait_s:.0f} s" if wait_s < 2 * _MIN_S else f"{wait_s / _MIN_S:.0f} minutes"
