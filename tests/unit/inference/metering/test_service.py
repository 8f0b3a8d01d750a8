"""Tabs: what is held for a request, what it pays, and what it never does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.errors import InsufficientCredits, KeyBudgetExceeded
from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, Outcome
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.rules import prompt_bound
from sparewatt.inference.metering.service import TABS_AT_ONCE, Metering, Payer, Quote
from sparewatt.ledger.budgets import KeyBudget, KeyBudgets
from sparewatt.ledger.journal import Journal, read_journal, unsettled_jobs
from sparewatt.ledger.ledger import Ledger
from sparewatt.ledger.model import TokenPrice
from sparewatt.ledger.rules import OUTPUT_TOKENS_DEFAULT
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import a_call, a_job
from tests.unit.ledger.books_suite import CREDITS, deposit, grant, nano_of
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import KEY, NODE, NOW_S, OWNER, PAYER, PRICE

BALANCE = 1_000_000
PROMPT = 10
PROMPT_HELD = 20 * prompt_bound(PROMPT)


class Till:
    """Metering with books in memory and a journal on disk."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock()
        self.books = MemoryBooks()
        self.journal = Journal(directory)
        self.ledger = Ledger(self.books, self.journal, instance="a", clock=clock)
        desk = ReceiptIntake(self.books, SigningKey.generate(rng=seeded(1)), clock=clock)
        self.metering = Metering(self.ledger, desk, KeyBudgets(self.books, clock=clock), clock=clock)

    def free(self) -> int:
        return self.ledger.free_here(PAYER)


@pytest.fixture
async def till(tmp_path: Path) -> AsyncIterator[Till]:
    till = Till(tmp_path)
    await till.books.post_transfer(deposit("d", BALANCE))
    yield till
    till.journal.close()


def order(name: str = "1", **changes: Any) -> Quote:
    call = {"answers": 1, "output_limit": 100, "stream": True} | changes
    prompt_tokens, price = call.pop("prompt_tokens", PROMPT), call.pop("price", PRICE)
    match = a_job(id=MatchId(f"match_{name}"), model=ModelId("stub"), prompt_tokens=prompt_tokens)
    return Quote(match, a_call(**call), price)


def attempt(written: int, outcome: Outcome = Outcome.DONE, **changes: Any) -> AttemptRecord:
    seen = DeliveryCount(written, 4 * written) if written else None
    record = AttemptRecord(NODE, 0.0, outcome, owner=OWNER, delivered=seen, ended_ms=9.0, **changes)
    record.prompt_price_nano, record.completion_price_nano = PRICE.prompt, PRICE.completion
    return record


async def test_what_a_request_can_cost_is_held_until_it_ends(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    assert (till.free(), tab.output_limit, tab.was_limited) == (BALANCE - PROMPT_HELD - 4_000, 100, False)
    tab.start()
    done = [attempt(0, Outcome.REFUSED, reason="full"), attempt(7)]
    assert tab.cost(done) == 200 + 280
    tab.close(Outcome.DONE, done)
    assert till.free() == BALANCE - 480
    await till.ledger.flush()
    assert await nano_of(till.books, CREDITS) == BALANCE - 480
    assert till.books.jobs[MatchId("match_1")].reason is None


async def test_several_answers_are_held_for(till: Till) -> None:
    await till.metering.open(Payer(PAYER, KEY), order(answers=5))
    assert till.free() == BALANCE - PROMPT_HELD - 5 * 4_000


async def test_a_request_without_a_limit_gets_the_usual_one(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order(output_limit=None))
    assert (tab.output_limit, tab.was_limited) == (OUTPUT_TOKENS_DEFAULT, True)


async def test_a_request_without_a_limit_gets_what_there_is_money_for(till: Till) -> None:
    await till.metering.open(Payer(PAYER, KEY), order("big", output_limit=24_000))
    left = till.free()
    tab = await till.metering.open(Payer(PAYER, KEY), order(output_limit=None, answers=2))
    assert tab.output_limit == (left - PROMPT_HELD) // 80 > 0
    tab.start()
    tab.close(Outcome.DONE, [attempt(10**6)])
    assert till.free() == left - 200 - 2 * tab.output_limit * 40


@pytest.mark.parametrize("limit", [None, 30_000])
async def test_a_request_that_nobody_can_pay_for_is_refused_and_holds_nothing(till: Till, limit: int | None) -> None:
    dear = TokenPrice(Nano(10**14), Nano(10**14)) if limit is None else PRICE
    with pytest.raises(InsufficientCredits, match="may cost up to"):
        await till.metering.open(Payer(PAYER, KEY), order(output_limit=limit, price=dear))
    assert till.free() == BALANCE


@pytest.mark.parametrize(
    ("limit", "advice"), [(None, "A lower max_price"), (9, "A smaller max_tokens or a lower max_price")]
)
async def test_a_refusal_says_at_which_prices_it_was_reckoned(till: Till, limit: int | None, advice: str) -> None:
    dear = TokenPrice(Nano(10**15), Nano(2 * 10**15))
    with pytest.raises(InsufficientCredits) as caught:
        await till.metering.open(Payer(PAYER, KEY), order(output_limit=limit, price=dear))
    assert "at up to $1000000 per million tokens read and $2000000 written" in caught.value.message
    assert f"{advice} needs less." in caught.value.message


async def test_what_was_delivered_counts_for_the_owner_as_it_was_billed(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    tab.close(Outcome.DONE, [attempt(7)])
    own = await till.metering.open(Payer(OWNER, KEY), order("own", price=TokenPrice(Nano(0), Nano(0))))
    own.start()
    own.close(Outcome.DONE, [attempt(90)])
    assert till.metering.delivered.of(ModelId("stub")) == {OWNER: PROMPT + 7}


async def test_a_free_model_needs_no_money(till: Till) -> None:
    tab = await till.metering.open(Payer(OWNER, KEY), order(price=TokenPrice(Nano(0), Nano(0))))
    tab.start()
    tab.close(Outcome.DONE, [])
    await till.ledger.flush()
    assert till.books.jobs[MatchId("match_1")].cost_nano == 0


async def test_a_job_that_never_starts_costs_nothing(till: Till, tmp_path: Path) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.drop()
    tab.drop()
    assert till.free() == BALANCE
    assert list(read_journal(tmp_path)) == []
    with pytest.raises(RuntimeError):
        tab.close(Outcome.DONE, [])


async def test_a_job_that_has_started_cannot_be_dropped(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    tab.drop()
    assert till.free() < BALANCE


async def test_closing_twice_charges_once(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    for _ in range(2):
        tab.close(Outcome.DONE, [attempt(7)])
        await till.ledger.flush()
    assert await nano_of(till.books, CREDITS) == BALANCE - 480


@pytest.mark.parametrize(
    ("outcome", "state"), [(Outcome.CANCELLED, "cancelled"), (Outcome.FAILED, "failed"), (Outcome.TIMED_OUT, "failed")]
)
async def test_a_broken_answer_costs_what_was_delivered(till: Till, outcome: Outcome, state: str) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    tab.close(outcome, [attempt(3, outcome, reason="r" * 500)])
    await till.ledger.flush()
    row = till.books.jobs[MatchId("match_1")]
    assert (row.state, row.cost_nano, len(row.reason or "")) == (state, 200 + 120, 200)


async def test_what_was_used_is_one_prompt_and_all_that_was_written(till: Till) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    assert tab.used_tokens() == 0
    attempts = [attempt(3, Outcome.RUNNING)]
    tab.watch(attempts)
    assert tab.used_tokens() == PROMPT + 3
    attempts.append(attempt(4))
    assert tab.used_tokens() == PROMPT + 7
    tab.close(Outcome.DONE, attempts)
    assert tab.used_tokens() == PROMPT + 7


async def test_free_credits_are_known_to_the_matcher(till: Till) -> None:
    paid = await till.metering.open(Payer(PAYER, KEY), order())
    await till.books.post_transfer(grant("g", 5, account=OWNER))
    await till.books.post_transfer(deposit("d2", BALANCE, account=OWNER))
    mixed = await till.metering.open(Payer(OWNER, KEY), order("2"))
    assert (paid.spends_promo, mixed.spends_promo) == (False, True)


async def test_a_key_that_has_spent_its_budget_is_refused_before_anything_is_held(till: Till) -> None:
    payer = Payer(PAYER, KEY, KeyBudget(Nano(5_600), "day"))
    tab = await till.metering.open(payer, order())
    with pytest.raises(KeyBudgetExceeded, match="may cost up to"):  # what the first may cost is not there any more
        await till.metering.open(payer, order("2"))
    tab.start()
    tab.close(Outcome.DONE, [attempt(7)])
    with pytest.raises(KeyBudgetExceeded, match="is left"):
        await till.metering.open(payer, order("3"))
    assert till.free() == BALANCE - 480


async def test_an_answer_without_a_limit_is_as_long_as_the_budget_allows(till: Till) -> None:
    payer = Payer(PAYER, KEY, KeyBudget(Nano(5_600), "day"))
    tab = await till.metering.open(payer, order(output_limit=None))
    assert (tab.why, tab.hold.amount.total <= 5_600, tab.output_limit > 0) == ("budget", True, True)
    tab.drop()
    tab.drop()
    assert (await till.metering.open(payer, order("2", output_limit=None))).output_limit == tab.output_limit


async def test_a_crash_settles_an_answer_at_what_was_last_noted(till: Till, tmp_path: Path) -> None:
    tab = await till.metering.open(Payer(PAYER, KEY), order())
    tab.start()
    running = [attempt(3, Outcome.RUNNING)]
    tab.watch(running)
    for _ in range(2):
        await till.metering.note_progress()
    assert len(list(read_journal(tmp_path))) == 2
    assert running[0].delivered is not None
    running[0].delivered.chunks = 9
    (cut,) = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
    assert [part.completion_tokens for part in cut.deliveries] == [3]


async def test_the_progress_of_many_answers_is_noted_and_others_get_their_turn_in_between(
    till: Till, tmp_path: Path
) -> None:
    count = 2 * TABS_AT_ONCE + 1
    for number in range(count):
        tab = await till.metering.open(Payer(PAYER, KEY), order(str(number), output_limit=1))
        tab.start()
        tab.watch([attempt(1, Outcome.RUNNING)])
    noting, turns = asyncio.ensure_future(till.metering.note_progress()), 0
    while not noting.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 3
    cut = unsettled_jobs(read_journal(tmp_path), now_unix_s=NOW_S)
    assert [job.deliveries[0].completion_tokens for job in cut] == [1] * count
