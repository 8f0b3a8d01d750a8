"""What one address may cost a validator."""

from __future__ import annotations

import pytest

from sparewatt.validator import address_limits
from sparewatt.validator.address_limits import (
    ADDRESSES_MAX,
    AT_ONCE_MAX,
    BYTES_BURST,
    BYTES_PER_S,
    CONNECTIONS_PER_ADDRESS,
    REQUESTS_BURST,
    REQUESTS_PER_S,
    AddressLimits,
    client_of,
)

A, B = "192.0.2.1", "192.0.2.2"


def ask(limits: AddressLimits, address: str = A, *, now_s: float = 0.0) -> float | None:
    """A request that begins and ends at once."""
    wait_s = limits.begin(address, now_s=now_s)
    if wait_s is None:
        limits.end(address)
    return wait_s


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    limits = AddressLimits()
    assert [ask(limits) for _ in range(int(REQUESTS_BURST))] == [None] * int(REQUESTS_BURST)
    wait_s = ask(limits)
    assert wait_s == pytest.approx(1 / REQUESTS_PER_S)
    assert ask(limits, now_s=1 / REQUESTS_PER_S) is None
    assert ask(limits, now_s=1 / REQUESTS_PER_S) is not None


def test_one_address_does_not_use_up_what_another_has() -> None:
    limits = AddressLimits()
    while ask(limits) is None:
        pass
    assert ask(limits, B) is None


def test_a_large_body_is_paid_by_the_next_requests() -> None:
    limits = AddressLimits()
    limits.count_bytes(A, int(BYTES_BURST + BYTES_PER_S), now_s=0.0)
    assert ask(limits) == pytest.approx(1.0)
    assert ask(limits, now_s=1.0) is None


def test_long_polls_at_once_are_bounded() -> None:
    limits = AddressLimits()
    assert [limits.begin(A, now_s=0.0) for _ in range(AT_ONCE_MAX)] == [None] * AT_ONCE_MAX
    assert limits.begin(A, now_s=10.0) is not None
    limits.end(A)
    assert limits.begin(A, now_s=10.0) is None


def test_connections_are_bounded_per_address_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "CONNECTIONS_MAX", CONNECTIONS_PER_ADDRESS + 1)
    limits = AddressLimits()
    assert all(limits.connect(A, now_s=0.0) for _ in range(CONNECTIONS_PER_ADDRESS))
    assert not limits.connect(A, now_s=0.0)
    assert limits.connect(B, now_s=0.0)
    assert not limits.connect("192.0.2.3", now_s=0.0)
    limits.disconnect(B)
    assert limits.connect("192.0.2.3", now_s=0.0)


def test_when_all_places_are_taken_the_address_with_most_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "CONNECTIONS_MAX", 3)
    limits = AddressLimits()
    assert limits.crowded_out_by(B) is None
    for _ in range(3):
        assert limits.connect(A, now_s=0.0)
    assert limits.crowded_out_by(A) is None  # nobody has more
    assert limits.crowded_out_by(B) == A
    limits.disconnect(A)
    assert limits.connect(B, now_s=0.0)
    assert limits.crowded_out_by(B) == A  # two against one
    assert limits.crowded_out_by("192.0.2.3") == A
    limits.disconnect(A)
    assert limits.connect("192.0.2.3", now_s=0.0)
    assert limits.crowded_out_by(B) is None  # one each: a second connection has to wait
    assert limits.crowded_out_by("192.0.2.4") is not None


def test_a_flood_of_addresses_does_not_fill_the_memory_nor_forget_who_is_connected() -> None:
    limits = AddressLimits()
    assert limits.connect(A, now_s=0.0)
    for number in range(ADDRESSES_MAX + 100):
        ask(limits, f"client-{number}", now_s=1.0)
    assert len(limits._uses) <= ADDRESSES_MAX
    assert limits._uses[A].connections == 1


def test_a_quiet_address_gets_its_burst_back_and_no_more() -> None:
    limits = AddressLimits()
    while ask(limits) is None:
        pass
    allowed = 0
    while ask(limits, now_s=1_000.0) is None:
        allowed += 1
    assert allowed == int(REQUESTS_BURST)


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", "unknown"),
        ("somewhere", "unknown"),
    ],
)
def test_a_client_is_an_address_or_the_network_of_one(peer: str, client: str) -> None:
    assert client_of(peer) == client
