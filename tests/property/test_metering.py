"""The short ways of counting and billing say the same as the rules in full."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, Outcome
from sparewatt.inference.metering.rules import deliveries_of, prompt_bound
from sparewatt.inference.metering.service import Payer, Quote, RunningTab
from sparewatt.ledger.holds import Hold, Purse
from sparewatt.ledger.model import Amount, TokenPrice
from sparewatt.ledger.rules import bill
from tests.unit.inference.nodes import a_call, a_job
from tests.unit.ledger.samples import KEY, NODE, OWNER, PAYER

few = st.integers(0, 40)
counts = few | st.integers(0, 1 << 24)
seen = st.none() | st.builds(DeliveryCount, few, counts, st.none() | counts, st.none() | counts)
prices = st.integers(0, 10**12)
attempts = st.builds(
    lambda seen, carried, prompt, completion: AttemptRecord(
        NODE,
        1.0,
        Outcome.DONE,
        owner=OWNER,
        delivered=seen,
        carried_tokens=carried,
        prompt_price_nano=prompt,
        completion_price_nano=completion,
    ),
    seen,
    few,
    prices,
    prices,
)
amounts = st.builds(Amount, *(st.integers(0, 10**15).map(Nano),) * 2)


@given(st.lists(attempts, max_size=3), few, few, st.integers(0, 2), amounts)
def test_what_a_client_is_told_is_what_the_bill_comes_to(
    tried: list[AttemptRecord], prompt: int, limit: int, answers: int, hold: Amount
) -> None:
    call = a_call(answers=answers, output_limit=limit)
    order = Quote(a_job(prompt_tokens=prompt), call, TokenPrice(Nano(1), Nano(1)))
    till = SimpleNamespace(withholds=None)
    tab = RunningTab(till, Payer(PAYER, KEY), order, Hold(Purse(PAYER), hold), limit, prompt_bound(prompt), "default")  # type: ignore[arg-type]
    found = deliveries_of(tried, prompt_estimate=prompt, output_bound=limit * answers)
    told = tab.billed(tried)
    assert told.cost == bill(found, hold).cost.total
    assert told.usage.completion_tokens == sum(part.completion_tokens for part in found)
    assert told.usage.prompt_tokens == max((part.prompt_tokens for part in found), default=0)


@given(attempts, few, st.integers(0, 60))
def test_an_attempt_is_counted_by_the_smallest_of_what_was_said_seen_and_asked_for(
    attempt: AttemptRecord, estimate: int, bound: int
) -> None:
    found = deliveries_of([attempt], prompt_estimate=estimate, output_bound=bound)
    seen = attempt.delivered
    if seen is None:
        assert found == ()
        return
    claimed = seen.completion_tokens
    if claimed is None:
        claimed = seen.chunks or seen.text_bytes // 4
    written = min(claimed, seen.text_bytes, bound)
    prompt = estimate if seen.prompt_tokens is None else max(0, seen.prompt_tokens - attempt.carried_tokens)
    expected = (min(prompt, prompt_bound(estimate)), written, claimed)
    counted = [(part.prompt_tokens, part.completion_tokens, part.claimed_tokens) for part in found]
    assert counted == ([expected] if written or not bound else [])
