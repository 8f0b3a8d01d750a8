"""A match that was packed away is the same when somebody asks for it, whatever became of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.inference.dispatch.dispatcher import MatchRing, pack, unpack
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, MatchRecord, Outcome, Reassignment
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate
from tests.unit.inference.nodes import a_job, a_table, node_id, situation

DECISION = match(a_job(), a_table(3), situation(), ranking=BALANCED, seed=1)
counts = st.integers(0, 2**62)
times = st.floats(0.0, 1e9)
maybe_times = st.none() | times
words = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
outcomes = st.sampled_from(Outcome)
seen = st.builds(
    DeliveryCount,
    chunks=counts,
    text_bytes=counts,
    prompt_tokens=st.none() | counts,
    completion_tokens=st.none() | counts,
    finish_reason=words,
)
attempts = st.builds(
    AttemptRecord,
    st.integers(1, 9).map(node_id),
    times,
    outcomes,
    words,
    maybe_times,
    maybe_times,
    counts,
    st.none() | st.just(AccountId("acc_a")),
    counts,
    counts,
    st.none() | seen,
    counts,
    counts,
    counts,
)
moves = st.just(()) | st.just((Reassignment(1, (Candidate(node_id(2), 1.0, (0.5,), 0.1, 0.2, 7),)),))
records = st.builds(
    MatchRecord,
    st.integers(0, 30).map(lambda number: MatchId(f"match_{number}")),
    st.just(KeyId("key_a")),
    times,
    st.just(DECISION),
    outcomes,
    st.lists(attempts, max_size=4),
    moves,
    st.none() | st.integers(400, 599),
    words,
    words,
    times,
    st.booleans(),
)


@given(records)
def test_what_is_packed_comes_back_as_it_was(record: MatchRecord) -> None:
    assert unpack(record.id, pack(record)) == record


@given(st.lists(st.tuples(records, st.booleans()), max_size=40), st.integers(1, 8))
def test_a_ring_shows_the_last_in_order_packed_or_not(told: list[tuple[MatchRecord, bool]], size: int) -> None:
    ring, kept = MatchRing(size), dict[MatchId, MatchRecord]()
    for record, is_over in told:
        ring.add(record)
        kept[record.id] = record
        if len(kept) > size:
            del kept[next(iter(kept))]
        if is_over:
            ring.pack(record)
    assert list(ring.latest()) == list(reversed(kept.values()))
    for record, _ in told:
        assert ring.get(record.id) == kept.get(record.id)


def test_what_has_left_the_ring_is_not_put_back_when_it_is_over() -> None:
    ring = MatchRing(1)
    first, second = (MatchRecord(MatchId(name), KeyId("key_a"), 0.0, DECISION) for name in ("match_1", "match_2"))
    ring.add(first)
    ring.add(second)
    ring.pack(first)
    assert ring.get(first.id) is None
    assert list(ring.latest()) == [second]
