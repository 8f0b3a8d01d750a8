"""How much was delivered: the smaller of what the node says and what could have been seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, Outcome
from sparewatt.inference.metering import rules
from sparewatt.ledger.model import JobState, TokenPrice
from tests.unit.ledger.samples import NODE, OWNER

counts = st.integers(0, 1 << 24)


def attempt(seen: DeliveryCount | None, **changes: Any) -> AttemptRecord:
    given: dict[str, Any] = {"outcome": Outcome.DONE, "owner": OWNER, "delivered": seen, "ended_ms": 90.0}
    return AttemptRecord(NODE, 10.0, **(given | changes))


def delivered(
    seen: DeliveryCount | None, *, prompt: int = 100, bound: int = 1000, **changes: Any
) -> tuple[int, ...] | None:
    found = rules.deliveries_of([attempt(seen, **changes)], prompt_estimate=prompt, output_bound=bound)
    return (found[0].prompt_tokens, found[0].completion_tokens, found[0].claimed_tokens) if found else None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, None),
        (DeliveryCount(), None),
        (DeliveryCount(completion_tokens=50), None),
        (DeliveryCount(chunks=5, text_bytes=20), (100, 5, 5)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=90, completion_tokens=5), (90, 5, 5)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=90, completion_tokens=3), (90, 3, 3)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=90, completion_tokens=8), (90, 8, 8)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=90, completion_tokens=5000), (90, 20, 5000)),
        (DeliveryCount(9, 40, 90, 8, None, 80, 6), (80, 6, 8)),
        (DeliveryCount(9, 40, 90, 8, None, 80, 0), None),
        (DeliveryCount(9, 40, None, None, None, None, 6), (100, 6, 9)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=0, completion_tokens=5), (0, 5, 5)),
        (DeliveryCount(chunks=5, text_bytes=20, prompt_tokens=99_999, completion_tokens=5), (214, 5, 5)),
        (DeliveryCount(chunks=0, text_bytes=40, prompt_tokens=90, completion_tokens=9), (90, 9, 9)),
        (DeliveryCount(chunks=5000, text_bytes=20_000), (100, 1000, 5000)),
    ],
    ids=[
        "never began",
        "said nothing",
        "claims without output",
        "no count of its own",
        "agrees",
        "claims less",
        "several tokens a chunk",
        "claims too much",
        "settled",
        "settled at nothing",
        "settled without a count of its own",
        "a cached prompt",
        "a swollen prompt",
        "in one piece",
        "over the limit",
    ],
)
def test_the_smaller_count_is_paid(seen: DeliveryCount | None, expected: tuple[int, ...] | None) -> None:
    assert delivered(seen) == expected


@given(
    st.builds(DeliveryCount, counts, counts, st.none() | counts, st.none() | counts),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
)
def test_no_node_is_paid_for_more_than_was_seen_or_asked_for(seen: DeliveryCount, estimate: int, bound: int) -> None:
    found = delivered(seen, prompt=estimate, bound=bound)
    if found is None:
        claimed = seen.completion_tokens
        assert 0 in {claimed, seen.text_bytes, claimed or seen.chunks or seen.text_bytes // 4}
        return
    assert 0 <= found[0] <= rules.prompt_bound(estimate)
    assert 0 < found[1] <= min(bound, seen.text_bytes)
    assert found[1] <= found[2]


def test_a_delivery_says_who_at_which_price_and_how_fast() -> None:
    (found,) = rules.deliveries_of(
        [attempt(DeliveryCount(5, 20), prompt_price_nano=3, completion_price_nano=4, first_token_ms=25.0)],
        prompt_estimate=1,
        output_bound=9,
    )
    assert (found.node_id, found.owner, found.price) == (NODE, OWNER, TokenPrice(Nano(3), Nano(4)))
    assert (found.first_token_ms, found.duration_ms, found.outcome) == (15.0, 80.0, "done")


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    given = [attempt(DeliveryCount(5, 20), first_token_ms=89.0)]
    (found,) = rules.deliveries_of(given, prompt_estimate=1, output_bound=9, is_streamed=False)
    assert (found.first_token_ms, found.duration_ms) == (None, 80.0)


def test_a_node_without_an_owner_earns_for_nobody() -> None:
    (found,) = rules.deliveries_of([attempt(DeliveryCount(5, 20), owner=None)], prompt_estimate=1, output_bound=9)
    assert found.owner == AccountId("acc_unknown")


def test_attempts_that_brought_nothing_are_left_out() -> None:
    tried = [
        attempt(None, outcome=Outcome.REFUSED),
        attempt(DeliveryCount(2, 8)),
        attempt(DeliveryCount(), outcome=Outcome.FAILED),
    ]
    assert len(rules.deliveries_of(tried, prompt_estimate=1, output_bound=9)) == 1


@pytest.mark.parametrize(("claimed", "seen", "is_dispute"), [(0, 100, False), (8, 0, False), (9, 0, True)])
def test_a_claim_beyond_the_tolerance_is_a_dispute(claimed: int, seen: int, is_dispute: bool) -> None:  # noqa: FBT001
    assert rules.disagrees(claimed, seen) is is_dispute


def test_the_tolerance_grows_with_the_answer() -> None:
    assert not rules.disagrees(1108, 1000)
    assert rules.disagrees(1109, 1000)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_one_of_three_states(outcome: Outcome) -> None:
    expected = {Outcome.DONE: JobState.DONE, Outcome.CANCELLED: JobState.CANCELLED}
    assert rules.state_of(outcome) is expected.get(outcome, JobState.FAILED)


@pytest.mark.parametrize(
    ("outcome", "said", "told"),
    [
        (Outcome.DONE, "stop", "stop"),
        (Outcome.DONE, "length", "length"),
        (Outcome.DONE, None, None),
        (Outcome.DONE, "x" * 1_000, "x" * 32),
        (Outcome.FAILED, "stop", "error"),
        (Outcome.TIMED_OUT, None, "error"),
        (Outcome.CANCELLED, None, None),
    ],
)
def test_why_an_answer_ended_is_what_its_client_was_told(outcome: Outcome, said: str | None, told: str | None) -> None:
    record = AttemptRecord(NODE, 0.0, delivered=DeliveryCount(chunks=1, finish_reason=said))
    assert rules.finish_reason(outcome, [record]) == told


def test_an_answer_that_never_began_has_no_reason_of_its_own() -> None:
    assert rules.finish_reason(Outcome.DONE, []) is None
    assert rules.finish_reason(Outcome.FAILED, []) == "error"


# answers that several nodes wrote


def shared(*parts: tuple[DeliveryCount, int], bound: int = 1000) -> list[tuple[int, int]]:
    """Prompt and completion of each part, given what was seen of it and how many tokens it went on from."""
    attempts = [attempt(seen, carried_tokens=carried) for seen, carried in parts]
    found = rules.deliveries_of(attempts, prompt_estimate=100, output_bound=bound)
    return [(delivery.prompt_tokens, delivery.completion_tokens) for delivery in found]


def test_what_a_node_read_of_anothers_text_is_no_part_of_the_prompt() -> None:
    assert shared((DeliveryCount(30, 120), 0), (DeliveryCount(10, 40, 120, 10), 30)) == [(90, 30), (90, 10)]


def test_a_prompt_that_no_node_counted_is_guessed_for_all() -> None:
    assert shared((DeliveryCount(30, 120), 0), (DeliveryCount(10, 40), 30)) == [(100, 30), (100, 10)]


def test_no_node_makes_the_prompt_larger_than_it_can_be() -> None:
    assert shared((DeliveryCount(30, 120), 0), (DeliveryCount(10, 40, 99_999, 10), 30)) == [(214, 30), (214, 10)]


def test_together_they_are_paid_for_no_more_than_was_asked_for() -> None:
    assert shared((DeliveryCount(30, 120), 0), (DeliveryCount(30, 120, 130, 30), 30), bound=40) == [
        (100, 30),
        (100, 10),
    ]
