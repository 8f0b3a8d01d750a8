"""A request that falls to another model, with books: only the model that answers is paid, and nothing stays held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from sparewatt.accounts.principal import Principal, principal_from_key
from sparewatt.accounts.rate_limits import RateCharge, RateMeter
from sparewatt.core.errors import QueueFull
from sparewatt.core.ids import ModelId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import seeded
from sparewatt.gateway.services import Services
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.service import Metering
from sparewatt.inference.price_caps import PriceCaps
from sparewatt.inference.service import InferenceService, Submission
from sparewatt.ledger.budgets import KeyBudgets
from sparewatt.ledger.journal import Journal
from sparewatt.ledger.ledger import Ledger
from sparewatt.policy.model import ANY
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import USER, key_row, make_services
from tests.unit.inference.nodes import NOW_S, a_call, a_model, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, RecordingSink, ScriptedNode
from tests.unit.ledger.books_suite import deposit
from tests.unit.ledger.memory_books import MemoryBooks
from tests.unit.ledger.samples import PAYER
from tests.waiting import until

BALANCE = 2_000_000
BODY = b'{"model":"a","messages":[{"role":"user","content":"Hi"}]}'


class Meter:
    """What was charged to the rate limit, corrected when the answer was over."""

    def __init__(self) -> None:
        self.tokens = 0

    def charge(self, tokens: int) -> RateCharge:
        self.tokens += tokens
        return RateCharge(cast(RateMeter, self), cast(RateMeter, Meter()), tokens)

    def adjust(self, tokens: int) -> None:
        self.tokens += tokens


class Bank:
    """A gateway with books, and a node for each of two models; the second asks twice as much."""

    def __init__(self, directory: Path) -> None:
        self.services: Services = make_services()
        clock, table = self.services.clock, self.services.table
        assert isinstance(clock, ManualClock)
        self.books, self.journal = MemoryBooks(), Journal(directory)
        self.ledger = Ledger(self.books, self.journal, instance="a", clock=clock)
        receipts = ReceiptIntake(self.books, SigningKey.generate(rng=seeded(1)), clock=clock)
        self.metering = Metering(self.ledger, receipts, KeyBudgets(self.books, clock=clock), clock=clock)
        self.nodes = []
        for number, report in enumerate((a_model(id="a"), a_model(id="b", completion_price_nano=120_000_000)), start=1):
            table.connect(node_id(number), some_specs(report, name=f"n{number}"), now_s=NOW_S)
            table.set_owner(node_id(number), self.services.links.owners.setdefault(node_id(number), PAYER))
            self.nodes.append(ScriptedNode(number, clock, table))
            self.services.links.links[node_id(number)] = self.nodes[-1].link
        self.service = InferenceService(
            table=table,
            admission=self.services.admission,
            dispatcher=self.services.dispatcher,
            eligibility=Eligibility(table, clock=clock),
            prices=PriceCaps(table, lambda _: {}, ceiling=Nano(20 * NANO_PER_USD), clock=clock),
            metering=self.metering,
            network_policy=ANY,
            default_ranking="balanced",
            prefix_secret=bytes(32),
            drain=self.services.drain,
            rng=seeded(1),
        )
        self.sink, self.meter = RecordingSink(), Meter()

    def submission(self, principal: Principal | None = None) -> Submission[RecordingSink]:
        who = principal or self.principal()
        call = a_call(BODY, model="a", fallbacks=("b",), output_limit=100)
        options = self.service.options(who, {})
        return Submission(self.service, who, options, call, self.sink, charge=self.meter.charge)

    @staticmethod
    def principal() -> Principal:
        row = key_row("user", USER, "inference")
        return msgspec.structs.replace(principal_from_key(row), account_id=PAYER)


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    bank = Bank(tmp_path)
    await bank.books.post_transfer(deposit("d", BALANCE))
    yield bank
    bank.journal.close()


async def test_only_the_model_that_answers_is_paid(bank: Bank) -> None:
    first, second = bank.nodes
    submission = bank.submission()
    await submission.hold()
    submission.begin()
    held = BALANCE - bank.ledger.free_here(PAYER)
    assert held > 0
    first.answer(b'{"error":{"message":"out of memory"}}', status=500)
    await until(lambda: second.opened)
    assert second.opened[0].model == "b"
    assert submission.match.model == ModelId("b")
    second.answer(COMPLETION)
    assert bank.sink.calls == ["start", "finish"]
    assert BALANCE - bank.ledger.free_here(PAYER) == (5 * 20_000_000 + 2 * 120_000_000) // 10**6
    submission.settle()
    assert bank.meter.tokens == 7
    await bank.ledger.flush()
    assert sorted(str(job.model) for job in bank.books.jobs.values()) == ["a", "b"]


async def test_a_hold_that_needs_the_database_is_waited_for(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bank.nodes
    submission = bank.submission()
    await submission.hold()
    submission.begin()
    monkeypatch.setattr(Metering, "open_here", lambda *_: None)
    first.answer(b'{"error":{"message":"out of memory"}}', status=500)
    await until(lambda: second.opened)
    second.answer(COMPLETION)
    assert bank.sink.calls == ["start", "finish"]


async def test_a_second_model_that_is_too_dear_is_an_error_and_nothing_stays_held(bank: Bank) -> None:
    first, second = bank.nodes
    submission = bank.submission()
    await submission.hold()
    submission.begin()
    rest = bank.ledger.try_hold(PAYER, bank.ledger.free_here(PAYER))
    assert rest is not None
    dear = a_model(id="b", completion_price_nano=10**14)
    bank.services.table.set_specs(second.id, some_specs(dear, name="n2"))
    bank.services.clock.advance(2.0)  # type: ignore[attr-defined]
    first.answer(b'{"error":{"message":"out of memory"}}', status=500)
    await until(lambda: bank.sink.over)
    assert bank.sink.error is not None
    assert bank.sink.error.code == "insufficient_credits"
    rest.release()
    assert bank.ledger.free_here(PAYER) == BALANCE


async def test_a_client_that_leaves_between_two_models_has_neither(bank: Bank) -> None:
    first, second = bank.nodes
    submission = bank.submission()
    await submission.hold()
    submission.begin()
    first.answer(b'{"error":{"message":"out of memory"}}', status=500)
    submission.cancel()
    await until(lambda: bank.services.dispatcher.running == 0)
    assert (second.opened, bank.sink.calls) == ([], [])
    assert bank.ledger.free_here(PAYER) == BALANCE


async def test_a_model_whose_line_is_full_gives_way_at_once(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = bank.nodes
    admit = Submission._admit

    def full_for_a(self: Submission[RecordingSink], job: object) -> object:
        if self.match.model == "a":
            raise QueueFull("The line of 'a' is full.")
        return admit(self, job)  # type: ignore[arg-type]

    monkeypatch.setattr(Submission, "_admit", full_for_a)
    submission = bank.submission()
    await submission.hold()
    submission.begin()
    second.answer(COMPLETION)
    assert bank.sink.calls == ["start", "finish"]
