"""What a job costs, who gets what, and that every entry sums to zero."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import UnbalancedEntry
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart, rules
from sparewatt.ledger.model import ZERO_AMOUNT, Amount, Delivery, RevenueSplit, TokenPrice
from sparewatt.ledger.rules import inference_fee, job_row
from tests.unit.ledger.samples import OTHER_OWNER, OWNER, PAYER, PRICE, amount, closed, delivery

tokens = st.integers(0, 1 << 24)
prices = st.builds(TokenPrice, *(st.integers(0, 10**12).map(Nano),) * 2)
amounts = st.builds(Amount, *(st.integers(0, 10**15).map(Nano),) * 2)
deliveries = st.lists(
    st.builds(
        lambda prompt, written, price, owner: delivery(prompt, written, price=price, owner=AccountId(owner)),
        tokens,
        tokens,
        prices,
        st.sampled_from(["acc_x", "acc_y"]),
    ),
    max_size=4,
)


def exact_worth(parts: list[Delivery]) -> Fraction:
    """By the words of the rule: each its own output, and its share of the prompt by what it wrote, else evenly."""
    written = sum(part.completion_tokens for part in parts)
    worth = Fraction(0)
    for part in parts:
        share = Fraction(part.completion_tokens, written) if written else Fraction(1, len(parts))
        worth += Fraction(part.completion_tokens * part.price.completion, 10**6)
        worth += share * Fraction(part.prompt_tokens * part.price.prompt, 10**6)
    return worth


def gross(split: RevenueSplit) -> Amount:
    return amount(promo=split.net_promo + split.fee_promo, paid=split.net_paid + split.fee_paid)


# bills


@pytest.mark.parametrize(
    ("parts", "cost"),
    [
        ([], 0),
        ([delivery(20, 20, price=TokenPrice(Nano(20_000_000), Nano(20_000_000)))], 800),
        ([delivery(1_000_000, 0)], 20_000_000),
        ([delivery(10, 0)] * 2, 10 * 20),
        ([delivery(10, 20)], 10 * 20 + 20 * 40),
        ([delivery(10, 5), delivery(10, 15)], 10 * 20 + 20 * 40),
        ([delivery(0, 1, price=TokenPrice(Nano(0), Nano(999_999)))], 0),
        ([delivery(0, 1, price=TokenPrice(Nano(0), Nano(1_999_999)))], 1),
        ([delivery(0, 1, price=TokenPrice(Nano(0), Nano(600_000)))] * 2, 1),
    ],
    ids=[
        "nothing",
        "the example",
        "only read",
        "read by two",
        "one node",
        "shared prompt",
        "below one",
        "rounded down",
        "once",
    ],
)
def test_a_bill_is_what_was_delivered_rounded_once_down(parts: list[Delivery], cost: int) -> None:
    assert rules.bill(parts, amount(paid=10**9)).cost == amount(paid=cost)


def test_a_bill_never_exceeds_what_was_held_and_the_first_node_is_served_first() -> None:
    billed = rules.bill([delivery(0, 10), delivery(0, 10)], amount(paid=500))
    assert [gross(part).paid for part in billed.splits] == [400, 100]
    assert billed.cost == amount(paid=500)


def test_free_credits_are_spent_first() -> None:
    billed = rules.bill([delivery(0, 10), delivery(0, 10)], amount(promo=500, paid=1000))
    assert billed.cost == amount(promo=500, paid=300)
    assert [gross(part) for part in billed.splits] == [amount(promo=400), amount(promo=100, paid=300)]


@given(deliveries, amounts)
def test_parts_sum_to_the_cost_which_is_the_exact_worth_or_the_hold(parts: list[Delivery], hold: Amount) -> None:
    billed = rules.bill(parts, hold)
    assert billed.cost.total == min(int(exact_worth(parts)), hold.total)
    assert billed.cost.promo == min(billed.cost.total, hold.promo)
    assert sum((gross(part) for part in billed.splits), ZERO_AMOUNT) == billed.cost
    for part in billed.splits:
        assert 0 <= part.fee_promo <= gross(part).promo
        assert 0 <= part.fee_paid <= gross(part).paid


@given(deliveries, amounts)
def test_the_postings_of_any_job_sum_to_zero_and_leave_its_clearing_account_empty(
    parts: list[Delivery], hold: Amount
) -> None:
    job = closed("1", *parts, hold=hold)
    row = job_row(job)
    assert sum(nano for _, nano in row.lines) == 0
    assert sum(nano for account, nano in row.lines if account == chart.clearing_of(job.job.id)) == 0
    assert all(nano for _, nano in row.lines)
    paid_out = sum(a.net_nano + a.net_promo_nano + a.fee_nano for a in row.attempts)
    assert paid_out == row.cost_nano <= hold.total
    assert row.promo_nano <= row.cost_nano


def test_a_job_that_pays_out_another_sum_than_it_brings_in_is_refused() -> None:
    job = closed("1", delivery())
    billed = rules.bill(job.deliveries, job.job.hold)
    with pytest.raises(UnbalancedEntry, match="pays out"):
        job_row(job, msgspec.structs.replace(billed, cost=amount(paid=billed.cost.paid + 1)))


def test_each_owner_gets_the_part_of_its_node() -> None:
    job = closed("1", delivery(0, 10), delivery(0, 30, owner=OTHER_OWNER), hold=amount(promo=400, paid=10_000))
    lines = dict(job_row(job).lines)
    assert lines[chart.promo_earned_by(OWNER)] == 400 - 20
    assert lines[chart.earned_by(OTHER_OWNER)] == 1200 - 60
    assert (lines[chart.FEES_PROMO], lines[chart.FEES]) == (20, 60)
    assert (lines[chart.promo_of(PAYER)], lines[chart.credits_of(PAYER)]) == (-400, -1200)


def test_a_job_that_cost_nothing_has_no_postings() -> None:
    assert job_row(closed("1")).lines == ()
    assert job_row(closed("1", delivery(0, 0))).lines == ()


def test_a_nul_in_the_words_of_a_node_does_not_reach_the_store() -> None:
    assert job_row(closed("1", reason="a\0b")).reason == "a�b"
    assert job_row(closed("1", reason=None)).reason is None


def test_the_fee_is_rounded_in_favour_of_the_owner() -> None:
    assert [inference_fee(nano) for nano in (0, 19, 20, 1000)] == [0, 0, 1, 50]


# holds


@given(prices, tokens, tokens, tokens)
def test_a_hold_covers_every_bill_within_its_bounds(price: TokenPrice, prompt: int, output: int, written: int) -> None:
    held = rules.hold_for(price, prompt_tokens=prompt, output_tokens=output)
    part = delivery(prompt, min(written, output), price=price)
    assert exact_worth([part]) <= held


@given(prices, tokens, st.integers(0, 10**18))
def test_what_is_affordable_can_be_held_and_one_token_more_cannot(price: TokenPrice, prompt: int, nano: int) -> None:
    output = rules.affordable_output_tokens(price, prompt_tokens=prompt, nano=nano)
    if output is None:
        assert price.completion == 0
        return
    if output:
        assert rules.hold_for(price, prompt_tokens=prompt, output_tokens=output) <= nano
    assert rules.hold_for(price, prompt_tokens=prompt, output_tokens=output + 1) > nano


# entries


@given(st.integers(1, 10**18).map(Nano))
def test_every_transfer_balances(nano: Nano) -> None:
    made = [
        rules.grant_postings(OWNER, nano),
        rules.expiry_postings(OWNER, nano),
        rules.deposit_postings(OWNER, nano),
        rules.treasury_postings(nano),
    ]
    made += [rules.redemption_postings(OWNER, nano), rules.payout_postings(OWNER, nano)]
    for lines in made:
        assert sum(nano for _, nano in lines) == 0


def test_a_grant_and_its_expiry_undo_each_other() -> None:
    sums: dict[str, int] = {}
    for account, nano in [*rules.grant_postings(OWNER, Nano(7)), *rules.expiry_postings(OWNER, Nano(7))]:
        sums[account] = sums.get(account, 0) + nano
    assert set(sums.values()) == {0}


@pytest.mark.parametrize(
    ("balance", "live", "reserved", "expired"),
    [(10, [], 0, 10), (10, [4], 0, 6), (3, [4], 0, 0), (10, [4, 6], 0, 0), (10, [5], 3, 2), (10, [5], 9, 0)],
    ids=["all", "old part", "old spent first", "all live", "reserved may be spent", "all reserved"],
)
def test_what_no_live_grant_covers_expires(balance: int, live: list[int], reserved: int, expired: int) -> None:
    assert rules.expired_promo(balance, live, reserved=reserved) == expired


def test_a_price_of_the_samples_is_what_it_says() -> None:
    assert (PRICE.prompt, PRICE.completion) == (20 * 10**6, 40 * 10**6)
