"""What a request may cost per token: what it says, else a few times what is usual. An absurd price moves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.core.rng import seeded
from sparewatt.inference.capabilities import NOTHING_REQUIRED
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.metering.receipt_intake import ReceiptIntake
from sparewatt.inference.metering.service import Metering
from sparewatt.inference.price_caps import PriceCaps
from sparewatt.inference.service import InferenceService
from sparewatt.ledger.budgets import KeyBudgets
from sparewatt.ledger.journal import Journal
from sparewatt.ledger.ledger import Ledger
from sparewatt.policy.model import ANY, MaxPrice
from sparewatt.policy.parser import read_line
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import make_services
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, a_table, node_id, some_specs
from tests.unit.ledger.memory_books import MemoryBooks

NOWHERE = ModelId("nobody-has-it")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InferenceService]:
    """With books, and nodes that ask $1 and $3 per million tokens."""
    asking = some_specs(a_model(prompt_price_nano=NANO_PER_USD, completion_price_nano=3 * NANO_PER_USD))
    services, clock, books = make_services(a_table(3, asking)), ManualClock(now_s=NOW_S), MemoryBooks()
    table, journal = services.table, Journal(tmp_path)
    receipts = ReceiptIntake(books, SigningKey.generate(rng=seeded(1)), clock=clock)
    ledger = Ledger(books, journal, instance="a", clock=clock)
    yield InferenceService(
        table=table,
        admission=services.admission,
        dispatcher=services.dispatcher,
        eligibility=Eligibility(table, clock=clock),
        prices=PriceCaps(table, lambda _: {}, ceiling=Nano(20 * NANO_PER_USD), clock=clock),
        metering=Metering(ledger, receipts, KeyBudgets(books, clock=clock), clock=clock),
        network_policy=ANY,
        default_ranking="balanced",
        prefix_secret=bytes(32),
        drain=services.drain,
        rng=seeded(1),
    )
    journal.close()


@pytest.mark.parametrize(
    ("line", "cap", "usual"),
    [
        ("", (4_000_000_000, 12_000_000_000), MaxPrice(4_000_000_000, 12_000_000_000)),
        ("region=EU", (4_000_000_000, 12_000_000_000), MaxPrice(4_000_000_000, 12_000_000_000)),
        ("max_price<=0.01", (10_000_000, 10_000_000), None),
        ("max_price<=5", (5_000_000_000, 5_000_000_000), None),
        ("max_price.prompt<=0.01", (10_000_000, 12_000_000_000), MaxPrice(None, 12_000_000_000)),
        ("max_price.completion<=0", (4_000_000_000, 0), MaxPrice(4_000_000_000, None)),
    ],
)
def test_a_price_that_is_named_counts_and_the_rest_is_usual(
    service: InferenceService, line: str, cap: tuple[int, int], usual: MaxPrice | None
) -> None:
    policy = read_line(line)
    price = service.price_cap(policy, MODEL)
    assert price is not None
    assert (price.prompt, price.completion) == cap
    gate = service.gate(policy, MODEL, price=price, payer=None, needs=NOTHING_REQUIRED)
    assert gate is not None
    assert gate.default_cap == usual


def test_a_request_that_came_before_the_first_measurement_is_not_refused_after_it(service: InferenceService) -> None:
    """Its cap is decided when it comes, and the price is known only once the node was measured."""
    newest = ModelId("newest")
    unmeasured = a_model(id=newest, prompt_price_nano=0, completion_price_nano=0, measured=None)
    service.table.connect(node_id(9), some_specs(unmeasured), now_s=NOW_S)
    price = service.price_cap(ANY, newest)
    assert price is not None
    gate = service.gate(ANY, newest, price=price, payer=None, needs=NOTHING_REQUIRED)
    assert gate is not None
    measured = a_model(id=newest, prompt_price_nano=240_000_000, completion_price_nano=720_000_000)
    service.table.set_specs(node_id(9), some_specs(measured))
    assert gate.admits(node_id(9))
    absurd = a_model(id=newest, prompt_price_nano=10**15, completion_price_nano=10**15)
    service.table.set_specs(node_id(9), some_specs(absurd))
    assert not gate.admits(node_id(9))


def test_without_books_there_is_no_price_and_nobody_is_too_dear() -> None:
    inference = make_services(a_table(1)).inference
    assert inference.price_cap(ANY, MODEL) is None
    assert inference.gate(ANY, MODEL, price=None, payer=None, needs=NOTHING_REQUIRED) is None


def test_prices_of_nobody_are_nothing() -> None:
    table = a_table(1)
    assert table.dearest_price(NOWHERE) == (0, 0)


@pytest.mark.parametrize("nano", [0, 1, 7, 20_000_001, 333_333_333, 10**15 - 1, 10**15])
def test_the_dearest_price_is_exact(nano: int) -> None:
    table = a_table(1, some_specs(a_model(prompt_price_nano=nano, completion_price_nano=nano)))
    assert table.dearest_price(MODEL) == (nano, nano)
