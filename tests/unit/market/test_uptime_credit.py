"""What a lease below 99.9 % is credited, and that nobody gains by letting its own machine fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.accrual import PaymentStream
from sparewatt.market.lease_uptime import UptimeTally
from sparewatt.market.uptime_credit import NoUptimeCredit, UptimeRuling, rule_on_uptime

FEE_BPS = 500
DAY_S = 86_400


def lost(down_s: int, *, running_s: int = DAY_S, rate_uusd: int = 2_000_000) -> UptimeTally:
    return UptimeTally(running_s=running_s, down_s=down_s, lost_uusd=rate_uusd * down_s // 3_600, outages=1)


def paid(charged: int, *, compensated: int = 0) -> PaymentStream:
    fee = charged * FEE_BPS // 10_000
    return PaymentStream(0, charged_uusd=charged, fee_uusd=fee, compensated_uusd=compensated)


def test_a_lease_that_met_its_uptime_is_not_ruled_on() -> None:
    assert rule_on_uptime(lost(86), paid(48_000_000), is_own_provider=False) is None
    assert rule_on_uptime(lost(87), paid(48_000_000), is_own_provider=False) is not None


def test_lost_seconds_are_credited_at_their_price() -> None:
    """A day at two dollars an hour, ten minutes of it down: $0.33, of a fee of $2.40."""
    assert rule_on_uptime(lost(600), paid(48_000_000), is_own_provider=False) == UptimeRuling(333_333)


def test_what_bonds_have_compensated_is_not_credited_again() -> None:
    assert rule_on_uptime(lost(600), paid(48_000_000, compensated=300_000), is_own_provider=False) == UptimeRuling(
        33_333
    )
    ruling = rule_on_uptime(lost(600), paid(48_000_000, compensated=333_333), is_own_provider=False)
    assert ruling == UptimeRuling(0, NoUptimeCredit.COMPENSATED)


def test_no_more_is_given_back_than_the_network_took() -> None:
    """An hour that cost $2 and paid a fee of $0.10, then a day without a provider."""
    tally = lost(DAY_S, running_s=3_600)
    assert rule_on_uptime(tally, paid(2_000_000), is_own_provider=False) == UptimeRuling(100_000)
    assert rule_on_uptime(tally, paid(0), is_own_provider=False) == UptimeRuling(0, NoUptimeCredit.NO_FEE)


def test_who_rents_from_its_own_account_is_credited_nothing() -> None:
    ruling = rule_on_uptime(lost(600), paid(48_000_000), is_own_provider=True)
    assert ruling == UptimeRuling(0, NoUptimeCredit.OWN_PROVIDER)


@given(
    running_s=st.integers(1, 10 * DAY_S),
    down_s=st.integers(0, 10 * DAY_S),
    rate_uusd=st.integers(0, 100_000_000),
    compensated=st.integers(0, 200_000_000),
)
def test_a_renter_and_a_provider_of_two_names_never_get_out_more_than_they_paid_to_the_network(
    running_s: int, down_s: int, rate_uusd: int, compensated: int
) -> None:
    """The liar: it pays itself, lets its machine fail as long as it likes, and compensates itself out of its own bond.
    All of that stays with it, but the fee. Whatever it does, the credit is not above that."""
    stream = paid(rate_uusd * running_s // 3_600, compensated=compensated)
    tally = lost(down_s, running_s=running_s, rate_uusd=rate_uusd)
    ruling = rule_on_uptime(tally, stream, is_own_provider=False)
    assert ruling is None or ruling.uusd <= stream.fee_uusd


@pytest.mark.parametrize("down_s", [0, 1, 10**9])
def test_a_lease_that_never_ran_is_credited_nothing(down_s: int) -> None:
    ruling = rule_on_uptime(UptimeTally(down_s=down_s), paid(0), is_own_provider=False)
    assert ruling is None or ruling.uusd == 0
