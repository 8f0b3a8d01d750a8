"""Whoever guesses is slowed down; whoever has shown that a login is theirs is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.accounts.login_limits import (
    TRIES_PER_MIN,
    WRONG_PASSWORDS_MAX,
    WRONG_PASSWORDS_OVER_ALL_MAX,
    DeviceTokens,
    LoginLimiter,
)
from sparewatt.core.errors import RateLimited
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.waiting_line import FixedChance

ANN = "ann@example.org"
DEVICES = DeviceTokens(b"s" * 32, rng=FixedChance(0.5))


class Logins:
    """A limiter in front of one password, which only the owner knows."""

    def __init__(self, *, share: int = 1) -> None:
        self.clock = ManualClock(now_s=0.0)
        self.limiter = LoginLimiter(DEVICES, clock=self.clock, share=share)

    def guess(self, address: str, *, login: str = ANN, device: str | None = None) -> bool:
        """Whether a wrong password was even looked at."""
        try:
            self.limiter.admit(login, address=address, device=device)
        except RateLimited:
            return False
        return True

    def enter(self, address: str, *, login: str = ANN, device: str | None = None) -> bool:
        """Whether the right password opens."""
        try:
            attempt = self.limiter.admit(login, address=address, device=device)
        except RateLimited:
            return False
        attempt.succeed()
        return True

    def guess_from_everywhere(self) -> None:
        """Until nobody who is a stranger is listened to."""
        for n in range(WRONG_PASSWORDS_OVER_ALL_MAX // WRONG_PASSWORDS_MAX):
            assert all(self.guess(f"198.51.100.{n}") for _ in range(WRONG_PASSWORDS_MAX))
        assert not self.guess("198.51.100.200")


def test_ten_wrong_passwords_lock_an_address_out_of_that_login_only() -> None:
    logins = Logins()
    assert [logins.guess("192.0.2.1") for _ in range(12)] == [True] * 10 + [False] * 2
    assert not logins.enter("192.0.2.1")
    assert logins.enter("192.0.2.2")
    assert logins.guess("192.0.2.1", login="ben@example.org")
    logins.clock.advance(60.0)
    assert logins.guess("192.0.2.1")


def test_a_site_in_ipv6_is_one_address() -> None:
    logins = Logins()
    assert all(logins.guess(f"2001:db8::{n}") for n in range(10))
    assert not logins.guess("2001:db8::ffff:1")
    assert logins.guess("2001:db8:0:1::1")


def test_who_knows_the_password_is_never_counted() -> None:
    logins = Logins()
    for _ in range(40):
        assert logins.enter("192.0.2.1")
        logins.clock.advance(60.0 / TRIES_PER_MIN)


def test_an_address_has_so_many_tries_a_minute_over_all_logins() -> None:
    logins = Logins()
    found = [logins.guess("192.0.2.1", login=f"{n}@example.org") for n in range(TRIES_PER_MIN + 1)]
    assert found == [True] * TRIES_PER_MIN + [False]


def test_guesses_from_everywhere_are_bounded_and_one_a_minute_goes_on() -> None:
    logins = Logins()
    logins.guess_from_everywhere()
    assert not logins.enter("203.0.113.1")
    logins.clock.advance(60.0)
    assert logins.enter("203.0.113.1")


def test_what_was_not_looked_at_does_not_count_against_an_address() -> None:
    logins = Logins()
    logins.guess_from_everywhere()
    for _ in range(WRONG_PASSWORDS_MAX):
        assert not logins.guess("203.0.113.1")
    logins.clock.advance(60.0)
    assert logins.enter("203.0.113.1")


def test_the_owner_is_let_in_from_where_he_was_before() -> None:
    logins = Logins()
    assert logins.enter("192.0.2.7")
    logins.guess_from_everywhere()
    assert logins.enter("192.0.2.7")


def test_the_owner_is_let_in_by_the_browser_he_used_before_from_anywhere() -> None:
    logins = Logins()
    device = DEVICES.issue(ANN)
    logins.guess_from_everywhere()
    assert logins.enter("203.0.113.9", device=device)


def test_a_device_token_that_was_stolen_gives_ten_guesses_from_however_many_addresses() -> None:
    logins = Logins()
    device = DEVICES.issue(ANN)
    found = [logins.guess(f"192.0.2.{n}", device=device) for n in range(20)]
    assert found == [True] * WRONG_PASSWORDS_MAX + [False] * 10


@pytest.mark.parametrize(
    "made_up", ["", ".", "00.00", "é.é", DEVICES.issue("ben@example.org"), DEVICES.issue(ANN)[:-1], "\ud800.x"]
)
def test_a_device_token_of_another_login_or_none_at_all_proves_nothing(made_up: str) -> None:
    assert DEVICES.nonce_of(made_up, login=ANN) is None
    logins = Logins()
    logins.guess_from_everywhere()
    assert not logins.enter("203.0.113.9", device=made_up)


def test_a_device_token_of_another_network_proves_nothing() -> None:
    foreign = DeviceTokens(b"t" * 32, rng=FixedChance(0.5)).issue(ANN)
    assert DEVICES.nonce_of(foreign, login=ANN) is None
    assert DEVICES.nonce_of(DEVICES.issue(ANN), login=ANN) is not None


def test_refusals_say_what_to_do_and_when_to_come_back() -> None:
    logins = Logins()
    for _ in range(WRONG_PASSWORDS_MAX):
        logins.guess("192.0.2.1")
    with pytest.raises(RateLimited, match=r"tried from here\. Try again in 60 s, or reset") as caught:
        logins.limiter.admit(ANN, address="192.0.2.1")
    assert caught.value.retry_after_s == 60.0
    logins = Logins()
    logins.guess_from_everywhere()
    with pytest.raises(RateLimited, match="from many addresses") as caught:
        logins.limiter.admit(ANN, address="203.0.113.1")
    assert caught.value.retry_after_s == 60.0


def test_processes_share_the_limit() -> None:
    logins = Logins(share=2)
    assert [logins.guess("192.0.2.1") for _ in range(6)] == [True] * 5 + [False]


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.floats(0, 30)), max_size=300))
def test_however_they_come_strangers_never_get_more_than_the_pace(tries: list[tuple[int, bool, float]]) -> None:
    """Guesses, with logins of others between them: the bound is that of the bucket, over any addresses."""
    logins = Logins()
    looked_at = 0
    for place, is_other, later_s in tries:
        logins.clock.advance(later_s)
        if is_other:
            logins.enter(f"192.0.2.{place}", login="ben@example.org")
        else:
            looked_at += logins.guess(f"192.0.2.{place}")
    assert looked_at <= WRONG_PASSWORDS_OVER_ALL_MAX + logins.clock.now_s() / 60.0 + 1e-6
