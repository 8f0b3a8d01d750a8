"""Rate limits against a model that keeps no state but the history."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.accounts.rate_limits import RateCharge, RateLimiter, RateMeter, TokenBucket, TokenBuckets
from sparewatt.core.limits import RETRY_AFTER_S_MAX

HEADERS = {f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")}


def headers_of(meter: RateMeter) -> dict[str, str]:
    return dict(line.split(": ") for line in meter.header_lines(0.0).splitlines())


def some_limits(*, requests: int = 60, tokens: int = 6000, address: int = 10**6, count_max: int = 100) -> RateLimiter:
    return RateLimiter(
        requests_per_min=requests,
        tokens_per_min=tokens,
        address_requests_per_min=address,
        address_tokens_per_min=10**9,
        count_max=count_max,
    )


class Ask(NamedTuple):
    after_s: float
    tokens: int


def model_level(history: list[tuple[float, float]], *, capacity: float, now_s: float) -> float:
    """What a bucket holds after these uses, replayed from the start."""
    level, at_s = capacity, 0.0
    for used_at_s, amount in history:
        level = min(capacity, level + (used_at_s - at_s) * capacity / 60) - amount
        at_s = used_at_s
    return min(capacity, level + (now_s - at_s) * capacity / 60)


asks = st.lists(st.builds(Ask, st.sampled_from([0.0, 0.5, 3.0, 30.0, 90.0]), st.integers(0, 3000)), max_size=40)


@given(asks, st.integers(1, 20), st.integers(1, 4000))
def test_a_request_passes_just_when_a_minute_s_worth_allows(steps: list[Ask], requests: int, tokens: int) -> None:
    limits = some_limits(requests=requests, tokens=tokens)
    asked: list[tuple[float, float]] = []
    used: list[tuple[float, float]] = []
    now_s = 0.0
    for step in steps:
        now_s += step.after_s
        key, address = limits.key_meter("k", now_s=now_s), limits.address_meter("a", now_s=now_s)
        room = model_level(asked, capacity=requests, now_s=now_s) - 1
        token_room = model_level(used, capacity=tokens, now_s=now_s) - min(step.tokens, tokens)
        if min(abs(room), abs(token_room)) < 1e-6:
            continue  # on the edge, where rounding decides
        denial = limits.admit(key, address, tokens=step.tokens, now_s=now_s)
        assert (denial is None) == (room > 0 and token_room > 0)
        if denial is None:
            asked.append((now_s, 1))
            used.append((now_s, step.tokens))
        else:
            assert 0 < denial.retry_after_s <= RETRY_AFTER_S_MAX


@given(asks)
def test_a_request_after_the_reported_wait_passes(steps: list[Ask]) -> None:
    limits = some_limits(requests=3, tokens=900)
    now_s = 0.0
    for step in steps:
        now_s += step.after_s
        key, address = limits.key_meter("k", now_s=now_s), limits.address_meter("a", now_s=now_s)
        denial = limits.admit(key, address, tokens=step.tokens, now_s=now_s)
        if denial is not None and denial.retry_after_s < RETRY_AFTER_S_MAX:
            now_s += denial.retry_after_s + 1e-6
            assert limits.admit(key, address, tokens=step.tokens, now_s=now_s) is None


def test_a_request_that_one_meter_refuses_is_charged_to_neither() -> None:
    limits = some_limits(requests=60, address=1)
    key, address = limits.key_meter("k", now_s=0), limits.address_meter("a", now_s=0)
    assert limits.admit(key, address, tokens=1, now_s=0) is None
    before = key.requests_left, key.tokens_left
    denial = limits.admit(key, address, tokens=1, now_s=0)
    assert denial is not None
    assert (denial.who, denial.what) == ("address", "requests")
    assert (key.requests_left, key.tokens_left) == before


def test_a_denial_names_tokens_where_they_are_short() -> None:
    limits = some_limits(tokens=100)
    key, address = limits.key_meter("k", now_s=0), limits.address_meter("a", now_s=0)
    assert limits.admit(key, address, tokens=90, now_s=0) is None
    denial = limits.admit(key, address, tokens=90, now_s=0)
    assert denial is not None
    assert (denial.who, denial.what) == ("key", "tokens")
    assert denial.retry_after_s == pytest.approx(48.0)


def test_more_than_the_limit_at_once_passes_a_full_bucket_and_is_paid_off() -> None:
    limits = some_limits(tokens=100)
    key, address = limits.key_meter("k", now_s=0), limits.address_meter("a", now_s=0)
    assert limits.admit(key, address, tokens=250, now_s=0) is None
    denial = limits.admit(key, address, tokens=1, now_s=60)
    assert denial is not None
    assert limits.admit(key, address, tokens=1, now_s=91) is None


def test_what_was_really_used_corrects_the_first_guess() -> None:
    meter = RateMeter(60, 1000, 0.0)
    meter.charge(400)
    meter.adjust(100)
    assert meter.tokens_left == 500
    meter.adjust(-450)
    assert meter.tokens_left == 950
    meter.adjust(-450)
    assert meter.tokens_left == 1000


def test_a_charge_is_settled_with_key_and_address_alike() -> None:
    key, address = RateMeter(60, 1_000, 0.0), RateMeter(60, 1_000, 0.0)
    key.charge(500)
    address.charge(500)
    RateCharge(key, address, 500).settle(20)
    assert (key.tokens_left, address.tokens_left) == (980, 980)
    RateCharge(key, address, 20).settle(20)
    assert key.tokens_left == 980


def test_a_key_s_own_limits_count_and_a_change_keeps_what_was_used() -> None:
    limits = some_limits()
    meter = limits.key_meter("k", now_s=0, requests_per_min=10)
    meter.charge(0)
    assert headers_of(meter)["x-ratelimit-remaining-requests"] == "9"
    again = limits.key_meter("k", now_s=0, requests_per_min=5)
    assert again is meter
    assert headers_of(again)["x-ratelimit-remaining-requests"] == "4"
    assert headers_of(limits.key_meter("k", now_s=0))["x-ratelimit-limit-requests"] == "60"


def test_headers_have_what_clients_read() -> None:
    meter = RateMeter(60, 6000, 0.0)
    meter.charge(600)
    headers = headers_of(meter)
    assert set(headers) == HEADERS
    assert headers["x-ratelimit-remaining-requests"] == "59"
    assert headers["x-ratelimit-reset-requests"] == "1.000s"
    assert headers["x-ratelimit-remaining-tokens"] == "5400"
    assert headers["x-ratelimit-reset-tokens"] == "6.000s"
    meter.adjust(100_000)
    assert headers_of(meter)["x-ratelimit-remaining-tokens"] == "0"


def test_memory_is_bounded_and_the_longest_idle_go_first() -> None:
    limits = some_limits(count_max=10)
    first = limits.key_meter("first", now_s=0)
    for n in range(9):
        limits.key_meter(f"k{n}", now_s=0)
    assert limits.key_meter("first", now_s=0) is first
    for n in range(100):
        limits.key_meter(f"more{n}", now_s=0)
        assert limits.key_meter("first", now_s=0) is first
    assert len(limits) == 10


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1, at_s=100.0, level=10)
    meter = RateMeter(60, 60, 100.0)
    for _ in range(10):
        bucket.take(100.0)
        meter.charge(6)
    meter.refill(50.0)
    assert bucket.take(50.0) == 1.0
    assert (meter.requests_left, meter.tokens_left, meter.at_s) == (50, 0, 100.0)


def test_buckets_count_by_name_and_are_bounded() -> None:
    buckets = TokenBuckets(burst=2, per_s=0.5, count_max=3)
    assert [buckets.take("a", now_s=0) for _ in range(3)] == [0.0, 0.0, 2.0]
    assert buckets.take("b", now_s=0) == 0.0
    assert buckets.take("a", now_s=2.0) == 0.0
    for n in range(50):
        buckets.take(n, now_s=2.0)
    assert len(buckets) == 3


@pytest.mark.parametrize(("limit", "processes"), [(60, 2), (10, 2), (10, 4), (1, 2), (3, 8)])
def test_processes_together_let_through_what_one_alone_would(limit: int, processes: int) -> None:
    """And each at least one, so that a client which always reaches the same process is not shut out."""
    shares = [RateMeter(limit, 10**6, 0.0, processes) for _ in range(processes)]
    passed = 0
    for meter in shares:
        while meter.allows(1):
            meter.charge(1)
            passed += 1
    assert max(limit, processes) <= passed <= limit + processes
    for meter in shares:
        meter.refill(60.0 * processes)
        assert meter.allows(1)


def test_a_process_charges_tokens_times_the_number_of_processes() -> None:
    meter = RateMeter(60, 6000, 0.0, 2)
    assert meter.allows(3000)
    meter.charge(3000)
    assert not meter.allows(1)
    wait_s, limit = meter.wait(1000)
    assert (wait_s, limit) == (20.0, "tokens")
    meter.adjust(-1000)  # it used fewer than was thought
    assert meter.allows(1000)
    assert headers_of(meter)["x-ratelimit-limit-requests"] == "60"
    assert headers_of(meter)["x-ratelimit-remaining-requests"] == "58"


def test_the_buckets_of_several_processes_admit_as_much_as_one_alone() -> None:
    buckets = [TokenBuckets(burst=10, per_s=1, share=2) for _ in range(2)]
    assert sum(each.take("a", now_s=0.0) == 0.0 for each in buckets for _ in range(20)) == 10


def test_a_bucket_that_is_full_again_takes_no_memory() -> None:
    buckets = TokenBuckets(burst=2, per_s=1.0)
    for number in range(100):
        assert buckets.take(f"stranger {number}", now_s=0.0) == 0.0
    buckets.take("busy", now_s=0.0)
    buckets.take("busy", now_s=0.5)
    assert len(buckets) == 101
    buckets.take("new", now_s=1.0)
    assert len(buckets) == 2, "the busy one and the new one"
    assert buckets.take("busy", now_s=1.0) == 0.0
    assert buckets.take("busy", now_s=1.0) > 0.0
