from __future__ import annotations

import pytest

from sparewatt.accounts.public_rate_limits import PublicRateLimiters, client_network
from sparewatt.core.errors import RateLimited
from sparewatt.testing.clocks import ManualClock


def some_limiters(clock: ManualClock | None = None) -> PublicRateLimiters:
    return PublicRateLimiters(signups_per_address_hour=3, clock=clock or ManualClock(now_s=0.0))


def test_an_address_may_sign_up_a_few_times_and_again_later() -> None:
    clock = ManualClock(now_s=0.0)
    limiter = some_limiters(clock).signup
    for n in range(3):
        limiter.admit(address="192.0.2.1", email=f"{n}@example.org")
    with pytest.raises(RateLimited) as caught:
        limiter.admit(address="192.0.2.1", email="x@example.org")
    assert caught.value.retry_after_s == 120.0
    assert "20 minutes" in caught.value.message
    limiter.admit(address="192.0.2.2", email="x@example.org")
    clock.advance(1200.0)
    limiter.admit(address="192.0.2.1", email="x@example.org")


def test_an_email_is_counted_over_all_addresses() -> None:
    limiter = some_limiters().reset
    for n in range(3):
        limiter.admit(address=f"192.0.2.{n}", email="ann@example.org")
    with pytest.raises(RateLimited):
        limiter.admit(address="192.0.2.99", email="ann@example.org")
    limiter.admit(address="192.0.2.99", email="ben@example.org")


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unknown", "unknown"),
    ],
)
def test_an_ipv6_site_is_one_address(address: str, counted: str) -> None:
    assert client_network(address) == counted
