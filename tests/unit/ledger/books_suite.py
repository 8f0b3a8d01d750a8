"""The contract suite of a ledger store. The one in memory and the one in Postgres both pass it."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart, rules
from sparewatt.ledger.rules import job_row
from sparewatt.store.ledger import AuditResult, JobRow, LedgerStore, ReceiptRow, Transfer
from tests.unit.ledger.samples import KEY, NODE, NOW_S, OWNER, PAYER, amount, closed, delivery

MONTH_S = 31 * 86_400.0
PROMO, CREDITS = chart.promo_of(PAYER), chart.credits_of(PAYER)
CLEAN = AuditResult(0, 0, 0, 0, 0)
COST = 10 * 20 + 20 * 40


def grant(cause: str, nano: int, *, account: AccountId = PAYER, **changes: Any) -> Transfer:
    return Transfer(
        cause, "grant", account, Nano(nano), tuple(rules.grant_postings(account, Nano(nano))), NOW_S, **changes
    )


def deposit(cause: str, nano: int, *, account: AccountId = PAYER, unix_s: float = NOW_S) -> Transfer:
    return Transfer(cause, "deposit", account, Nano(nano), tuple(rules.deposit_postings(account, Nano(nano))), unix_s)


def expiry(cause: str, nano: int) -> Transfer:
    return Transfer(cause, "expiry", PAYER, Nano(nano), tuple(rules.expiry_postings(PAYER, Nano(nano))), NOW_S)


def job(name: str, **changes: Any) -> JobRow:
    return job_row(closed(name, delivery(), **changes))


def receipt(name: str) -> ReceiptRow:
    return ReceiptRow(MatchId(name), NODE, NOW_S, 1, 2, 2, disputed=False, signature=b"\1" * 65)


async def nano_of(books: LedgerStore, account: str) -> int:
    return (await books.balances([account]))[account]


class BooksSuite:
    """A subclass provides the fixture `books`, an empty store."""

    # jobs

    async def test_a_job_moves_money_from_its_payer_to_its_owner_and_the_network(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 10_000))
        assert await books.post_jobs([job("1"), job("2")], instance="a") == 2
        names = [CREDITS, chart.earned_by(OWNER), chart.FEES, chart.DEPOSITS, chart.credits_of(OWNER)]
        assert list((await books.balances(names)).values()) == [10_000 - 2 * COST, 2 * 950, 2 * 50, -10_000, 0]
        assert await books.audit() == CLEAN

    async def test_a_job_is_settled_once_however_often_it_is_posted(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 10_000))
        assert await books.post_jobs([job("1"), job("1")], instance="a") == 1
        assert await books.post_jobs([job("1"), job("2")], instance="b") == 1
        assert await books.post_jobs([job("2"), job("1")], instance="a") == 0
        assert await nano_of(books, CREDITS) == 10_000 - 2 * COST
        assert await books.audit() == CLEAN

    async def test_a_job_that_cost_nothing_is_kept_and_moves_nothing(self, books: LedgerStore) -> None:
        free = job_row(closed("free"))
        assert await books.post_jobs([free], instance="a") == 1
        assert await books.post_jobs([free], instance="a") == 0
        assert await books.post_jobs([], instance="a") == 0
        assert await books.audit() == CLEAN

    async def test_both_classes_of_money_are_kept_apart(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("g", 300))
        await books.post_transfer(deposit("d", 10_000))
        await books.post_jobs([job("1", hold=amount(promo=300, paid=5_000))], instance="a")
        names = [PROMO, CREDITS, chart.promo_earned_by(OWNER), chart.earned_by(OWNER), chart.FEES_PROMO, chart.FEES]
        assert list((await books.balances(names)).values()) == [0, 9_300, 285, 665, 15, 35]

    async def test_a_job_may_open_in_the_last_moment_of_a_month(self, books: LedgerStore) -> None:
        edge = dt.datetime(2024, 3, 1, tzinfo=dt.UTC).timestamp()
        times = [edge - 1e-7, edge - 1e-6, edge, edge + 1e-6]
        rows = [job(str(n), opened_unix_s=at) for n, at in enumerate(times)]
        assert await books.post_jobs(rows, instance="a") == 4
        assert await books.post_jobs(rows, instance="a") == 0

    async def test_a_receipt_is_kept_once(self, books: LedgerStore) -> None:
        for _ in range(2):
            await books.save_receipts([receipt("1"), receipt("2")])
        await books.save_receipts([])

    # transfers

    async def test_a_transfer_happens_once_per_cause(self, books: LedgerStore) -> None:
        assert await books.post_transfer(deposit("same", 500))
        assert not await books.post_transfer(deposit("same", 700))
        assert await nano_of(books, CREDITS) == 500

    async def test_a_transfer_that_would_overdraw_changes_nothing_and_may_come_again(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("g", 500))
        with pytest.raises(InsufficientCredits):
            await books.post_transfer(expiry("e", 501))
        assert await nano_of(books, PROMO) == 500
        assert await books.post_transfer(expiry("e", 500))
        assert await nano_of(books, PROMO) == 0
        assert await books.audit() == CLEAN

    async def test_what_a_gateway_has_reserved_cannot_be_taken_away(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("g", 500))
        assert await books.take_slice(PROMO, instance="a", have=0, wanted=200) == 200
        with pytest.raises(InsufficientCredits):
            await books.post_transfer(expiry("e", 301))
        assert await books.post_transfer(expiry("e", 300))

    async def test_one_cause_at_the_same_time_happens_once(self, books: LedgerStore) -> None:
        done = await asyncio.gather(*(books.post_transfer(deposit("same", 5)) for _ in range(6)))
        assert sorted(done) == [False] * 5 + [True]
        assert await nano_of(books, CREDITS) == 5

    async def test_transfers_at_the_same_time_do_not_overdraw(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("g", 100))
        tried = (books.post_transfer(expiry(f"e{n}", 30)) for n in range(6))
        done = await asyncio.gather(*tried, return_exceptions=True)
        assert sum(result is True for result in done) == 3
        assert await nano_of(books, PROMO) == 10

    # slices

    async def test_slices_of_all_gateways_never_exceed_the_balance(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 1_000))
        taken = await asyncio.gather(
            *(books.take_slice(CREDITS, instance=f"g{n}", have=0, wanted=300) for n in range(6))
        )
        assert sorted(taken) == [0, 0, 100, 300, 300, 300]

    async def test_an_account_that_never_had_anything_has_no_slice(self, books: LedgerStore) -> None:
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=10) == 0

    async def test_a_slice_whose_reply_was_lost_is_free_again(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 1_000))
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=900) == 900
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=900) == 900
        assert await books.take_slice(CREDITS, instance="b", have=0, wanted=900) == 100

    async def test_a_preferred_amount_beyond_need_leaves_as_much_for_others(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 1_000))
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=100, preferred=900) == 500
        assert await books.take_slice(CREDITS, instance="b", have=0, wanted=300, preferred=400) == 300
        assert await books.take_slice(CREDITS, instance="c", have=0, wanted=-5, preferred=50) == 50

    async def test_more_is_taken_on_top(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 1_000))
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=400) == 400
        assert await books.take_slice(CREDITS, instance="a", have=400, wanted=400) == 400
        assert await books.take_slice(CREDITS, instance="a", have=800, wanted=400) == 200
        assert await books.take_slice(CREDITS, instance="b", have=0, wanted=1) == 0

    async def test_returned_slices_are_free_for_others(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 1_000))
        await books.take_slice(CREDITS, instance="a", have=0, wanted=1_000)
        await books.take_slice(CREDITS, instance="b", have=0, wanted=1)
        for _ in range(2):
            await books.return_slices([PROMO, CREDITS], instance="a")
        assert await books.take_slice(CREDITS, instance="b", have=0, wanted=2_000) == 1_000
        await books.drop_slices("b")
        assert await books.take_slice(CREDITS, instance="a", have=0, wanted=2_000) == 1_000

    async def test_posting_uses_the_slice_of_the_gateway_that_posts(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 3_000))
        await books.take_slice(CREDITS, instance="a", have=0, wanted=2_000)
        for _ in range(2):
            await books.post_jobs([job("1")], instance="a")
        assert await books.take_slice(CREDITS, instance="b", have=0, wanted=9_000) == 1_000
        assert await books.take_slice(CREDITS, instance="a", have=2_000 - COST, wanted=9_000) == 0

    # reads

    async def test_a_key_has_spent_what_its_jobs_cost_since_a_moment(self, books: LedgerStore) -> None:
        rows = [job("1"), job("2", opened_unix_s=NOW_S + 50), job("3", key=KeyId("key_b"))]
        await books.post_jobs(rows, instance="a")
        assert await books.spent_by_key(KEY, since_unix_s=NOW_S) == 2 * COST
        assert await books.spent_by_key(KEY, since_unix_s=NOW_S + 1) == COST
        assert await books.spent_by_key(KeyId("key_c"), since_unix_s=0.0) == 0

    async def test_promo_credits_that_no_unexpired_grant_covers_expire(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("old", 100, expires_unix_s=NOW_S + 10))
        await books.post_transfer(grant("new", 50, expires_unix_s=NOW_S + 20))
        await books.post_transfer(grant("ever", 7))
        assert await books.promo_to_expire(now_unix_s=NOW_S + 9) == []
        assert await books.promo_to_expire(now_unix_s=NOW_S + 10) == [(PROMO, 157, 57, 0)]
        await books.take_slice(PROMO, instance="a", have=0, wanted=90)
        assert await books.promo_to_expire(now_unix_s=NOW_S + 10) == [(PROMO, 157, 57, 90)]
        await books.take_slice(PROMO, instance="a", have=90, wanted=10)
        assert await books.promo_to_expire(now_unix_s=NOW_S + 10) == []
        await books.return_slices([PROMO], instance="a")
        await books.post_transfer(expiry("e", 100))
        assert await books.promo_to_expire(now_unix_s=NOW_S + 10) == []

    async def test_only_grants_to_the_same_account_cover_it(self, books: LedgerStore) -> None:
        await books.post_transfer(grant("mine", 5, expires_unix_s=NOW_S))
        await books.post_transfer(grant("theirs", 50, account=OWNER, expires_unix_s=NOW_S + 99))
        assert await books.promo_to_expire(now_unix_s=NOW_S) == [(PROMO, 5, 0, 0)]

    # months

    async def test_balances_survive_dropped_months(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 100_000, unix_s=NOW_S))
        for n in range(4):
            await books.post_jobs([job(str(n), opened_unix_s=NOW_S + n * MONTH_S)], instance="a")
        before = await books.balances([CREDITS, chart.earned_by(OWNER), chart.FEES, chart.DEPOSITS])
        forgotten = await books.forget_months(before_unix_s=NOW_S + 2 * MONTH_S)
        assert forgotten == [dt.date(2023, 11, 1), dt.date(2023, 12, 1)]
        assert await books.forget_months(before_unix_s=NOW_S + 2 * MONTH_S) == []
        assert await books.audit() == CLEAN
        await books.rebuild_balances()
        assert await books.balances(list(before)) == before
        assert await books.audit() == CLEAN

    async def test_a_job_of_a_dropped_month_is_not_settled_again(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 100_000, unix_s=NOW_S + MONTH_S))
        await books.post_jobs([job("1"), job("2", opened_unix_s=NOW_S + MONTH_S)], instance="a")
        await books.forget_months(before_unix_s=NOW_S + MONTH_S)
        assert await books.post_jobs([job("1"), job("3", opened_unix_s=NOW_S + MONTH_S)], instance="a") == 1
        assert await nano_of(books, CREDITS) == 100_000 - 3 * COST
        assert await books.audit() == CLEAN

    async def test_a_cause_is_remembered_longer_than_its_month(self, books: LedgerStore) -> None:
        await books.post_transfer(deposit("d", 500))
        await books.forget_months(before_unix_s=NOW_S + MONTH_S)
        assert not await books.post_transfer(deposit("d", 500))
        assert await nano_of(books, CREDITS) == 500
