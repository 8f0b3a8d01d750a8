"""Tabs: one per job, from the hold at admission to the bill at its end. Callbacks, like dispatch; no framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.errors import InsufficientCredits
from sparewatt.core.ids import AccountId, KeyId, MatchId, ModelId
from sparewatt.core.money import Nano, format_usd
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome
from sparewatt.inference.metering.receipts import ReceiptDesk
from sparewatt.inference.metering.rules import deliveries_of, prompt_bound, state_of
from sparewatt.ledger.budgets import Budgets, KeyBudget
from sparewatt.ledger.holds import Hold
from sparewatt.ledger.model import ClosedJob, Delivery, OpenedJob, TokenPrice
from sparewatt.ledger.rules import OUTPUT_TOKENS_UNASKED, affordable_output, bill, hold_for
from sparewatt.ledger.service import Ledger


class Payer(NamedTuple):
    account: AccountId
    key: KeyId
    budget: KeyBudget | None = None


class Order(NamedTuple):
    """A request as the cashier sees it."""

    id: MatchId
    model: ModelId
    prompt_tokens: int
    answers: int
    output_limit: int | None
    """Tokens per answer, if the client set a limit."""
    stream: bool
    price: TokenPrice
    """What it can cost at most, per million tokens."""


class Metering:
    def __init__(self, ledger: Ledger, receipts: ReceiptDesk, budgets: Budgets, *, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._running: dict[MatchId, RunningTab] = {}
        self._budgets = budgets
        self.receipts = receipts

    async def open(self, payer: Payer, order: Order) -> RunningTab:
        """Hold what the job can cost. Raises InsufficientCredits or KeyBudgetExceeded, having changed nothing."""
        await self._budgets.check(payer.key, payer.budget)
        asked = order.output_limit or OUTPUT_TOKENS_UNASKED
        prompt = prompt_bound(order.prompt_tokens)
        nano = hold_for(order.price, prompt_tokens=prompt, output_tokens=asked * order.answers)
        hold = await self._ledger.hold(payer.account, nano)
        if hold is None and order.output_limit is None:
            asked, hold = await self._hold_less(payer.account, order, prompt)
        if hold is None:
            raise self._too_little(payer.account, nano, order)
        return RunningTab(self, payer, order, hold, output_limit=asked)

    async def _hold_less(self, account: AccountId, order: Order, prompt: int) -> tuple[int, Hold | None]:
        """The client set no limit: then as many tokens as there is money for."""
        left = self._ledger.free_here(account)
        each = (affordable_output(order.price, prompt_tokens=prompt, nano=left) or 0) // order.answers
        if each < 1:
            return 0, None
        nano = hold_for(order.price, prompt_tokens=prompt, output_tokens=each * order.answers)
        return each, await self._ledger.hold(account, nano)

    def _too_little(self, account: AccountId, nano: Nano, order: Order) -> InsufficientCredits:
        left = format_usd(self._ledger.free_here(account))
        less = " A smaller max_tokens needs less." if order.output_limit else ""
        return InsufficientCredits(
            f"This request may cost up to ${format_usd(nano)}, and ${left} of your credits is available.{less} "
            "'sparewatt credits balance' shows what you have and what running requests hold."
        )

    # what tabs call

    def start(self, tab: RunningTab, job: OpenedJob) -> None:
        self._ledger.open(job)
        self._running[job.id] = tab

    def close(self, tab: RunningTab, closed: ClosedJob) -> None:
        self._running.pop(closed.job.id, None)
        billed = self._ledger.close(closed, tab.hold)
        self._budgets.note(closed.job.key, billed.cost.total)
        self.receipts.expect(closed)

    @property
    def clock(self) -> Clock:
        return self._clock

    # in the background

    async def note_progress(self) -> None:
        """So that a crash settles running answers at what they had delivered by now."""
        news = {}
        for job_id, tab in self._running.items():
            found = tab.progress()
            if found is not None:
                news[job_id] = found
        self._ledger.note_progress(news)


class RunningTab:
    """Implements dispatch's Tab."""

    __slots__ = ("_attempts", "_job", "_order", "_payer", "_till", "_told", "hold", "output_limit")

    def __init__(self, till: Metering, payer: Payer, order: Order, hold: Hold, *, output_limit: int) -> None:
        self._till = till
        self._payer = payer
        self._order = order
        self.hold = hold
        self.output_limit = output_limit
        """Tokens that each answer may have."""
        self._job: OpenedJob | None = None
        self._attempts: Sequence[AttemptRecord] = ()
        self._told = 0

    @property
    def was_limited(self) -> bool:
        """Whether the limit is ours, and not the client's."""
        return self._order.output_limit is None

    @property
    def is_short(self) -> bool:
        """Whether there was not enough money for an answer of the usual length."""
        return self.was_limited and self.output_limit < OUTPUT_TOKENS_UNASKED

    @property
    def spends_promo(self) -> bool:
        return self.hold.amount.promo > 0

    def start(self) -> None:
        """Before anything is sent to a node. Raises if the books cannot take it."""
        order, payer = self._order, self._payer
        job = OpenedJob(
            id=order.id,
            account=payer.account,
            key=payer.key,
            model=order.model,
            opened_unix_s=self._till.clock.unix_s(),
            hold=self.hold.amount,
            stream=order.stream,
        )
        self._till.start(self, job)
        self._job = job

    def drop(self) -> None:
        """The job never started."""
        if self._job is None:
            self.hold.release()

    def watch(self, attempts: Sequence[AttemptRecord]) -> None:
        """Where the run notes what was delivered."""
        self._attempts = attempts

    def cost(self, attempts: Sequence[AttemptRecord]) -> Nano:
        return bill(self._deliveries(attempts), self.hold.amount).cost.total

    def close(self, outcome: Outcome, attempts: Sequence[AttemptRecord]) -> None:
        if self._job is None:
            raise RuntimeError("a job was dispatched before its tab was started")
        failed = [attempt.reason for attempt in attempts if attempt.reason]
        closed = ClosedJob(
            job=self._job,
            state=state_of(outcome),
            closed_unix_s=self._till.clock.unix_s(),
            deliveries=self._deliveries(attempts),
            reason=None if outcome is Outcome.DONE or not failed else failed[-1][:200],
        )
        self._till.close(self, closed)

    def progress(self) -> tuple[Delivery, ...] | None:
        """What was delivered by now, if that is more than last time."""
        found = self._deliveries(self._attempts)
        written = sum(delivery.completion_tokens for delivery in found)
        if written <= self._told:
            return None
        self._told = written
        return found

    def _deliveries(self, attempts: Sequence[AttemptRecord]) -> tuple[Delivery, ...]:
        bound = self.output_limit * self._order.answers
        return deliveries_of(attempts, prompt_estimate=self._order.prompt_tokens, output_bound=bound)
