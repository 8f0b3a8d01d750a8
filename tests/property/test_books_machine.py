"""Ledger, holds and journal of two gateways against a small model, in any order of events."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from sparewatt.core.errors import InsufficientCredits, StoreUnavailable
from sparewatt.core.ids import AccountId, MatchId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.ledger import chart, rules
from sparewatt.ledger.holds import Hold
from sparewatt.ledger.journal import Journal, read_journal, unsettled_jobs
from sparewatt.ledger.ledger import PURSE_IDLE_S, Ledger
from sparewatt.ledger.model import ZERO_AMOUNT, Amount, ClosedJob, Delivery, JobState, OpenedJob
from sparewatt.store.ledger import Transfer
from sparewatt.testing.clocks import ManualClock
from tests.trying import walks
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import delivery, opened

ACCOUNTS = [AccountId("acc_a"), AccountId("acc_b")]
GATEWAYS = ["g0", "g1"]
gateways, accounts = st.sampled_from(GATEWAYS), st.sampled_from(ACCOUNTS)
some_nano = st.integers(0, NANO_PER_USD)
tokens = st.integers(0, 10_000_000)


@dataclass(slots=True)
class Running:
    """A job that is open at a gateway, and what of it was journalled."""

    gateway: str
    life: int
    job: OpenedJob
    hold: Hold
    noted: tuple[Delivery, ...] = ()


class BooksMachine(RuleBasedStateMachine):
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.books = MemoryBooks()
        self.lives = dict.fromkeys(GATEWAYS, 0)
        self.journals: dict[str, Journal] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.given: dict[str, int] = {}
        self.ended: dict[MatchId, tuple[AccountId, str, Amount]] = {}
        self.open: dict[MatchId, Running] = {}
        for name in GATEWAYS:
            (self.directory / name).mkdir()
            self._start(name)

    def _start(self, name: str) -> None:
        left = unsettled_jobs(read_journal(self.directory / name), now_unix_s=self.clock.unix_s())
        self.journals[name] = Journal(self.directory / name)
        self.ledgers[name] = Ledger(self.books, self.journals[name], instance=name, clock=self.clock)
        self.runner.run(self.ledgers[name].recover(left))

    def _transfer(self, kind: str, account: AccountId, nano: int) -> None:
        make = {"grant": rules.grant_postings, "deposit": rules.deposit_postings, "expiry": rules.expiry_postings}[kind]
        lines = tuple(make(account, Nano(nano)))
        cause = f"{kind}:{len(self.books.transfers)}"
        transfer = Transfer(cause, kind, account, Nano(nano), lines, self.clock.unix_s())
        with contextlib.suppress(InsufficientCredits, StoreUnavailable):
            self.runner.run(self.books.post_transfer(transfer))
        if cause in self.books.transfers:
            for name, gained in lines:
                self.given[name] = self.given.get(name, 0) + gained

    # money comes and goes

    @rule(account=accounts, nano=st.integers(1, NANO_PER_USD), kind=st.sampled_from(["grant", "deposit", "expiry"]))
    def money_moves(self, account: AccountId, nano: int, kind: str) -> None:
        self._transfer(kind, account, nano)

    # jobs

    @rule(target=running, gateway=gateways, account=accounts, nano=some_nano)
    def a_job_opens(self, gateway: str, account: AccountId, nano: int) -> object:
        ledger = self.ledgers[gateway]
        try:
            hold = self.runner.run(ledger.hold(account, Nano(nano)))
        except StoreUnavailable:
            return multiple()
        if hold is None:
            return multiple()
        name = str(len(self.open) + len(self.ended))
        job = opened(name, account=account, hold=hold.amount, opened_unix_s=self.clock.unix_s())
        ledger.open(job)
        found = self.open[job.id] = Running(gateway, self.lives[gateway], job, hold)
        return found

    @rule(gateway=gateways, account=accounts, nano=some_nano)
    def a_request_goes_away_before_it_starts(self, gateway: str, account: AccountId, nano: int) -> None:
        with contextlib.suppress(StoreUnavailable):
            hold = self.runner.run(self.ledgers[gateway].hold(account, Nano(nano)))
            if hold is not None:
                hold.release()

    @rule(job=running, written=tokens)
    def an_answer_goes_on(self, job: Running, written: int) -> None:
        if job.job.id in self.open and job.life == self.lives[job.gateway]:
            job.noted = (delivery(1, written),)
            self.ledgers[job.gateway].note_progress({job.job.id: job.noted})

    @rule(job=consumes(running), written=tokens, state=st.sampled_from(JobState), times=st.integers(1, 2))
    def a_job_closes(self, job: Running, written: int, state: JobState, times: int) -> None:
        if job.job.id not in self.open:
            return
        closed = ClosedJob(job.job, state, self.clock.unix_s(), (delivery(1, written),))
        for _ in range(times):
            billed = self.ledgers[job.gateway].close(closed, job.hold)
        assert billed.cost == self._cost(job.job, closed.deliveries)
        self.ended[job.job.id] = (job.job.account, state.value, billed.cost)
        del self.open[job.job.id]

    def _cost(self, job: OpenedJob, deliveries: tuple[Delivery, ...]) -> Amount:
        """The model's own arithmetic: at most one delivery, 20 and 40 nano a token."""
        written = deliveries[0].completion_tokens if deliveries else 0
        nano = min(20 + 40 * written if written else 0, job.hold.total)
        promo = min(nano, job.hold.promo)
        return Amount(Nano(promo), Nano(nano - promo))

    # what happens to gateways and Postgres

    @rule(gateway=gateways)
    def a_gateway_posts(self, gateway: str) -> None:
        with contextlib.suppress(StoreUnavailable):
            self.runner.run(self.ledgers[gateway].flush())

    @rule(gateway=gateways)
    def two_tasks_post_at_once(self, gateway: str) -> None:
        async def both() -> None:
            ledger = self.ledgers[gateway]
            await asyncio.gather(ledger.flush(), ledger.flush(), ledger.rebalance_purses(), return_exceptions=True)

        self.runner.run(both())

    @rule(gateway=gateways, wait_s=st.sampled_from([1.0, PURSE_IDLE_S + 1]))
    def a_gateway_tends_its_purses(self, gateway: str, wait_s: float) -> None:
        self.clock.advance(wait_s)
        with contextlib.suppress(StoreUnavailable):
            self.runner.run(self.ledgers[gateway].rebalance_purses())

    @rule(is_away=st.booleans())
    def postgres_goes_or_comes(self, is_away: bool) -> None:  # noqa: FBT001
        self.books.is_away = is_away

    @rule()
    def a_reply_will_be_lost(self) -> None:
        self.books.loses_replies = True

    @rule(gateway=gateways)
    def a_gateway_is_killed_and_comes_back(self, gateway: str) -> None:
        self.books.is_away = self.books.loses_replies = False
        for job in [job for job in self.open.values() if job.gateway == gateway]:
            self.ended[job.job.id] = (job.job.account, "failed", self._cost(job.job, job.noted))
            del self.open[job.job.id]
        self.journals[gateway].close()
        self.lives[gateway] += 1
        self._start(gateway)

    # what always holds

    @invariant()
    def no_purse_is_negative(self) -> None:
        for ledger in self.ledgers.values():
            for purse in ledger._purses.values():
                for part in (purse.reserved, purse.held, purse.spent, purse.free):
                    assert part.promo >= 0
                    assert part.paid >= 0

    @invariant()
    def gateways_can_spend_no_more_than_there_is(self) -> None:
        for account in ACCOUNTS:
            purses = [purse for ledger in self.ledgers.values() if (purse := ledger._purses.get(account))]
            could = sum((purse.free + purse.held for purse in purses), ZERO_AMOUNT)
            assert could.promo <= self._really_left(chart.promo_of(account))
            assert could.paid <= self._really_left(chart.credits_of(account))

    def _really_left(self, name: str) -> int:
        """By the model: what came, less what every job that ended has cost."""
        spent = 0
        for payer, _, cost in self.ended.values():
            spent += cost.promo if name == chart.promo_of(payer) else 0
            spent += cost.paid if name == chart.credits_of(payer) else 0
        return self.given.get(name, 0) - spent

    @invariant()
    def the_books_are_in_order(self) -> None:
        audit = self.runner.run(MemoryBooks.audit(self._calm()))
        assert not any(getattr(audit, name) for name in audit.__slots__)

    def _calm(self) -> MemoryBooks:
        calm = MemoryBooks.__new__(MemoryBooks)
        calm.__dict__ |= self.books.__dict__ | {"is_away": False, "loses_replies": False}
        return calm

    def teardown(self) -> None:
        try:
            self._settle_everything()
        finally:
            self.runner.close()
            for journal in self.journals.values():
                journal.close()
            shutil.rmtree(self.directory)

    def _settle_everything(self) -> None:
        self.books.is_away = self.books.loses_replies = False
        for job in list(self.open.values()):
            self.a_job_closes(job, 3, JobState.DONE, 1)
        for ledger in self.ledgers.values():
            self.runner.run(ledger.close_down())
        posted = {row.id: (row.state, row.promo_nano, row.cost_nano) for row in self.books.jobs.values()}
        assert posted == {n: (state, cost.promo, cost.total) for n, (_, state, cost) in self.ended.items()}
        assert not self.books.slices
        self.the_books_are_in_order()
        for account in ACCOUNTS:
            for name in (chart.promo_of(account), chart.credits_of(account)):
                assert self.runner.run(self.books.balances([name]))[name] == self._really_left(name)


TestBooksMachine = BooksMachine.TestCase
TestBooksMachine.settings = walks(30, steps=40)
