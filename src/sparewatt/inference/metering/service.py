"""Tabs: one per job, from the hold at admission to the bill at its end. Callbacks, like dispatch; no framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.money import Nano, format_usd
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, DeliveryCount, Outcome
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.metering.delivered_tokens import DeliveredTokens
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.rules import (
    NO_ESTIMATE,
    NOBODY,
    PromptEstimate,
    claim_of,
    deliveries_of,
    finish_reason,
    prompt_bound,
    state_of,
)
from sparewatt.inference.metering.token_rates import Claimant, TokenRates, most_prompt_tokens
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.ledger.budgets import KeyBudget, KeyBudgets, budget_exceeded
from sparewatt.ledger.holds import Hold
from sparewatt.ledger.ledger import Ledger
from sparewatt.ledger.model import Bill, ClosedJob, Delivery, OpenedJob, TokenPrice
from sparewatt.ledger.rules import OUTPUT_TOKENS_DEFAULT, affordable_output_tokens, bill, hold_for
from sparewatt.protocol.openai.chat import Usage

TABS_AT_ONCE = 64
"""Running answers whose progress is noted in one tick of the event loop: a quarter of a millisecond."""


class Payer(msgspec.Struct, frozen=True, gc=False):
    account: AccountId
    key: KeyId
    budget: KeyBudget | None = None


class Quote(NamedTuple):
    """What a job can cost at most."""

    match: MatchJob
    call: ModelCall
    price: TokenPrice
    """Per million tokens."""


_DONE = Outcome.DONE
REASON_CHARS_MAX = 200
"""Of a node's error text: enough for a sentence."""

Limit = Literal["default", "credits", "budget"]
"""What limits an answer that the client set no limit for."""


def _affordable(quote: Quote, prompt: int, nano: int) -> int:
    """Tokens per answer that so much money pays for."""
    return (affordable_output_tokens(quote.price, prompt_tokens=prompt, nano=nano) or 0) // quote.call.answers


def _prompt_most(quote: Quote) -> int:
    """Tokens that its prompt may count, at most."""
    units = quote.call.size.units
    return prompt_bound(quote.match.prompt_tokens) if units is None else most_prompt_tokens(units)


class Metering:
    def __init__(
        self,
        ledger: Ledger,
        receipts: ReceiptIntake,
        budgets: KeyBudgets,
        *,
        clock: Clock,
        delivered: DeliveredTokens | None = None,
        withholds: Callable[[NodeId, AccountId], bool] | None = None,
    ) -> None:
        """`delivered`: counts what owners delivered of each model. `withholds`: whether a node's pay waits for a
        check."""
        self.withholds = withholds
        self._ledger = ledger
        self.delivered = delivered or DeliveredTokens()
        self.clock = clock
        self._running: dict[MatchId, RunningTab] = {}
        self.budgets = budgets
        self.receipts = receipts
        self.rates = TokenRates()
        """How many tokens text takes: what nodes claim is held against it."""

    def open_here(self, payer: Payer, quote: Quote) -> RunningTab | None:
        """Hold what the job can cost from this process's reserve. None if that does not suffice or is unknown."""
        if payer.budget is not None:
            return None
        limit = quote.call.output_limit or OUTPUT_TOKENS_DEFAULT
        most = _prompt_most(quote)
        nano = hold_for(quote.price, prompt_tokens=most, output_tokens=limit * quote.call.answers)
        hold = self._ledger.try_hold(payer.account, nano)
        if hold is None:
            return None
        self.budgets.hold(payer.key, nano)
        return RunningTab(self, payer, quote, hold, limit, most, "default")

    async def open(self, payer: Payer, quote: Quote) -> RunningTab:
        """Hold what the job can cost. Raises InsufficientCredits or KeyBudgetExceeded, having changed nothing."""
        most = _prompt_most(quote)
        limit = quote.call.output_limit or OUTPUT_TOKENS_DEFAULT
        why: Limit = "default"
        if payer.budget is not None:
            limit, why = await self._within_budget(payer, payer.budget, quote, most)
        nano = hold_for(quote.price, prompt_tokens=most, output_tokens=limit * quote.call.answers)
        hold = self._ledger.try_hold(payer.account, nano) or await self._ledger.hold(payer.account, nano)
        if hold is None and quote.call.output_limit is None:
            limit, why = _affordable(quote, most, self._ledger.free_here(payer.account)), "credits"
            less = hold_for(quote.price, prompt_tokens=most, output_tokens=limit * quote.call.answers)
            hold = await self._ledger.hold(payer.account, less) if limit else None
        if hold is None:
            raise self._too_little(payer.account, nano, quote)
        self.budgets.hold(payer.key, hold.amount.total)
        return RunningTab(self, payer, quote, hold, limit, most, why)

    async def _within_budget(self, payer: Payer, budget: KeyBudget, quote: Quote, prompt: int) -> tuple[int, Limit]:
        """Tokens per answer: the client's limit, else the default, else (without a limit) what the budget covers."""
        limit = quote.call.output_limit or OUTPUT_TOKENS_DEFAULT
        left = await self.budgets.remaining(payer.key, budget)
        nano = hold_for(quote.price, prompt_tokens=prompt, output_tokens=limit * quote.call.answers)
        if left is None or nano <= left:
            return limit, "default"
        fewer = _affordable(quote, prompt, left) if quote.call.output_limit is None else 0
        if not fewer:
            raise budget_exceeded(budget, left, nano)
        return fewer, "budget"

    def _too_little(self, account: AccountId, nano: Nano, quote: Quote) -> InsufficientCredits:
        left, price = format_usd(self._ledger.free_here(account)), quote.price
        prompt, written = format_usd(price.prompt), format_usd(price.completion)
        smaller = "A smaller max_tokens or a lower max_price" if quote.call.output_limit else "A lower max_price"
        return InsufficientCredits(
            f"This request may cost up to ${format_usd(nano)}, at up to ${prompt} per million tokens read and "
            f"${written} written, and ${left} of your credits is available. {smaller} needs less. "
            "'sparewatt credits balance' shows what you have and what running requests hold."
        )

    # what tabs call

    def start(self, tab: RunningTab, job: OpenedJob) -> None:
        self._ledger.open(job)
        self._running[job.id] = tab

    def note_complete(self, job: OpenedJob, deliveries: tuple[Delivery, ...]) -> None:
        self._ledger.note_complete(job.id, deliveries)

    def close(self, tab: RunningTab, closed: ClosedJob, billed: Bill) -> None:
        job, cost = closed.job, billed.cost
        self._running.pop(job.id, None)
        self._ledger.close(closed, tab.hold, billed)
        self.budgets.release(job.key, job.hold.promo + job.hold.paid, spent=cost.promo + cost.paid)
        self.receipts.expect(closed)
        self.delivered.add(closed)

    def drop(self, tab: RunningTab, key: KeyId) -> None:
        """A job that never started."""
        if not tab.hold.is_settled:
            tab.hold.release()
            self.budgets.release(key, tab.hold.amount.total, spent=0)

    # in the background

    async def note_progress(self) -> None:
        """So that a crash settles running answers at what they had delivered by now. Bounded per tick."""
        running = list(self._running.items())
        for first in range(0, len(running), TABS_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            news = {}
            for job_id, tab in running[first : first + TABS_AT_ONCE]:
                found = tab.progress()
                if found is not None:
                    news[job_id] = found
            self._ledger.note_progress(news)


class RunningTab(msgspec.Struct, eq=False):
    """Implements dispatch's Tab."""

    till: Metering
    payer: Payer
    quote: Quote
    hold: Hold
    output_limit: int
    """Tokens that each answer may have."""
    prompt_most: int
    """Tokens that its prompt may count, at most."""
    why: Limit
    job: OpenedJob | None = None
    """Once it is started."""
    attempts: Sequence[AttemptRecord] = ()
    told_tokens: int = 0
    """What was written by the last progress that was told."""
    deliveries: tuple[Delivery, ...] | None = None
    """Once it is closed."""
    estimate: PromptEstimate | None = None
    """Of its prompt, where no node has counted it."""

    @property
    def was_limited(self) -> bool:
        """Whether the limit is ours, and not the client's."""
        return self.quote.call.output_limit is None

    @property
    def spends_promo(self) -> bool:
        return self.hold.amount.promo > 0

    def start(self) -> None:
        """Before anything is sent to a node. Raises if the books cannot take it."""
        quote, payer, till = self.quote, self.payer, self.till
        match, opened_unix_s = quote.match, till.clock.unix_s()
        job = OpenedJob(
            match.id, payer.account, payer.key, match.model, opened_unix_s, self.hold.amount, quote.call.stream
        )
        till.start(self, job)
        self.job = job

    def drop(self) -> None:
        """The job never started."""
        if self.job is None:
            self.till.drop(self, self.payer.key)

    def watch(self, attempts: Sequence[AttemptRecord]) -> None:
        """Where the run notes what was delivered."""
        self.attempts = attempts

    def settle(self, attempts: Sequence[AttemptRecord], units: CompletionUnits) -> None:
        """Decide what of the last attempt's counts is paid. Once: what a client was told does not change."""
        attempt = attempts[-1]
        seen = attempt.delivered
        if seen is None or seen.paid_completion_tokens is not None:
            return
        is_whole = seen.completion_tokens is not None
        self._settle_prompt(attempt, seen, is_whole=is_whole)
        left = self._output_bound
        for earlier in attempts[:-1]:
            if earlier.delivered is not None:
                left -= earlier.delivered.paid_completion_tokens or 0
        claimed, left = claim_of(seen), max(0, left)
        if not claimed or not left or units.is_empty:
            seen.paid_completion_tokens = 0
            return
        by = Claimant(attempt.owner or NOBODY, attempt.node_id)
        # The claim itself, not what the limit leaves of it: that would hide how far it is from the text.
        paid = self.till.rates.pay(self.quote.match.model, by, units, claimed, is_whole=is_whole)
        seen.paid_completion_tokens, seen.is_marked = min(paid.tokens, left), seen.is_marked or paid.is_marked

    def _settle_prompt(self, attempt: AttemptRecord, seen: DeliveryCount, *, is_whole: bool) -> None:
        if seen.prompt_tokens is None:
            return
        claimed, units = max(0, seen.prompt_tokens - attempt.carried_tokens), self.quote.call.size.units
        if units is not None and claimed:
            model, by = self.quote.match.model, Claimant(attempt.owner or NOBODY, attempt.node_id)
            is_whole = is_whole and not attempt.carried_tokens
            claimed, seen.is_marked = self.till.rates.pay(model, by, units, claimed, is_whole=is_whole)
        seen.paid_prompt_tokens = min(claimed, self.prompt_most)

    @property
    def _output_bound(self) -> int:
        return self.output_limit * self.quote.call.answers

    def _prompt_estimate(self, attempts: Sequence[AttemptRecord]) -> PromptEstimate:
        """Of a prompt that no node has counted."""
        match, units = self.quote.match, self.quote.call.size.units
        if units is None:
            return PromptEstimate(match.prompt_tokens, match.prompt_tokens)
        if any(attempt.delivered is not None and attempt.delivered.prompt_tokens is not None for attempt in attempts):
            return NO_ESTIMATE  # it is not needed
        if self.estimate is None:
            expected = self.till.rates.expect(match.model, units)
            self.estimate = PromptEstimate(int(expected.typical), expected.least)
        return self.estimate

    def billed(self, attempts: Sequence[AttemptRecord]) -> BilledAnswer:
        deliveries = self._deliveries(attempts)
        prompt = max((delivery.prompt_tokens for delivery in deliveries), default=0)  # one, however many read it
        written = sum(delivery.completion_tokens for delivery in deliveries)
        return BilledAnswer(Usage(prompt, written), bill(deliveries, self.hold.amount).cost.total)

    def used_tokens(self) -> int:
        """Read and written for the client by now."""
        prompt = written = 0
        for delivery in self._deliveries(self.attempts) if self.deliveries is None else self.deliveries:
            prompt = max(prompt, delivery.prompt_tokens)  # one, however many nodes read it
            written += delivery.completion_tokens
        return prompt + written

    def note_complete(self, attempts: Sequence[AttemptRecord]) -> None:
        if self.job is not None:
            self.till.note_complete(self.job, self._deliveries(attempts))

    def close(self, outcome: Outcome, attempts: Sequence[AttemptRecord]) -> None:
        job, till = self.job, self.till
        if job is None:
            raise RuntimeError("a job was dispatched before its tab was started")
        self.deliveries = deliveries = self._deliveries(attempts)
        state, reason = state_of(outcome), None if outcome is _DONE else _why_failed(attempts)
        closed = ClosedJob(job, state, till.clock.unix_s(), deliveries, reason, finish_reason(outcome, attempts))
        till.close(self, closed, bill(deliveries, job.hold))

    def progress(self) -> tuple[Delivery, ...] | None:
        """What was delivered by now, if that is more than last time."""
        found = self._deliveries(self.attempts)
        written = sum(delivery.completion_tokens for delivery in found)
        if written <= self.told_tokens:
            return None
        self.told_tokens = written
        return found

    def _deliveries(self, attempts: Sequence[AttemptRecord]) -> tuple[Delivery, ...]:
        found = deliveries_of(
            attempts,
            prompt_estimate=self._prompt_estimate(attempts),
            prompt_most=self.prompt_most,
            output_bound=self._output_bound,
            is_streamed=self.quote.call.stream,
        )
        withholds = self.till.withholds
        return found if withholds is None else tuple(_with_withholding(each, withholds) for each in found)


def _with_withholding(delivery: Delivery, withholds: Callable[[NodeId, AccountId], bool]) -> Delivery:
    if not withholds(delivery.node_id, delivery.owner):
        return delivery
    return msgspec.structs.replace(delivery, is_withheld=True)


def _why_failed(attempts: Sequence[AttemptRecord]) -> str | None:
    """The last reason that was given."""
    for attempt in reversed(attempts):
        if attempt.reason:
            return attempt.reason[:REASON_CHARS_MAX]
    return None
