"""Rate limits of routes without authentication: sign-up, password reset, and what is published.

How often a password may be tried is decided in `login_limits.py`. The limits count per client network and, where one is
given, per e-mail; in memory, so a restart resets them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import partial

from sparewatt.accounts.rate_limits import TokenBuckets
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.core.limits import RETRY_AFTER_S_MAX

_HOUR_S = 3600.0
_MIN_S = 60.0
_IPV6_PREFIX_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicRateLimiter:
    action: str
    by_network: TokenBuckets
    by_email: TokenBuckets | None = None
    clock: Clock

    def admit(self, *, address: str, email: str = "") -> None:
        """Raises RateLimited."""
        now_s = self.clock.now_s()
        wait_s = self.by_network.take(client_network(address), now_s=now_s)
        if wait_s == 0.0 and email and self.by_email is not None:
            wait_s = self.by_email.take(email, now_s=now_s)
        if wait_s:
            raise RateLimited(
                f"Too many tries at {self.action}. Try again in {format_wait(wait_s)}.",
                retry_after_s=min(wait_s, RETRY_AFTER_S_MAX),
            )


class PublicRateLimiters:
    def __init__(self, *, signups_per_address_hour: int, clock: Clock, share: int = 1) -> None:
        """`share`: of how many processes this is one."""
        buckets = partial(TokenBuckets, share=share)
        self.signup = PublicRateLimiter(
            action="signing up",
            by_network=buckets(burst=signups_per_address_hour, per_s=signups_per_address_hour / _HOUR_S),
            by_email=buckets(burst=10, per_s=10 / _HOUR_S),
            clock=clock,
        )
        self.reset = PublicRateLimiter(
            action="resetting a password",
            by_network=buckets(burst=20, per_s=20 / _HOUR_S),
            by_email=buckets(burst=3, per_s=3 / _HOUR_S),
            clock=clock,
        )
        # The longest payout batch has a little over a thousand pages.
        self.published = PublicRateLimiter(
            action="reading what is published", by_network=buckets(burst=1_200, per_s=10), clock=clock
        )


def client_network(address: str) -> str:
    """What an address is counted as: itself, or in IPv6 its /64, since one client has all of these addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX_BITS), strict=False))


def format_wait(wait_s: float) -> str:
    return f"{wait_s:.0f} s" if wait_s < 2 * _MIN_S else f"{wait_s / _MIN_S:.0f} minutes"
