"""Records of before a restart: one of each kind, of this match, in the order in which they are signed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.market.match.model import SignedRecord
from sparewatt.market.match.restored import restored_records
from tests.unit.market.match.liars import commit_list, reveal_list, signed_vote
from tests.unit.market.match.match_scene import bid_for, commit_for, context_for

CONTEXT = context_for()
COMMITS = commit_list(CONTEXT, 0, [commit_for(bid_for(0))])
REVEALS = reveal_list(CONTEXT, 0, [bid_for(0)])
VOTE, LATER = (signed_vote(CONTEXT, 0, task_hash=bytes(32), round_=round_) for round_ in (1, 4))


def test_nothing_stored_is_a_first_sight() -> None:
    found = restored_records([], CONTEXT)
    assert (found.commit_list, found.reveal_list, found.last_voted) == (None, None, -1)


def test_each_record_is_found() -> None:
    found = restored_records([COMMITS, REVEALS, LATER, VOTE], CONTEXT)
    assert (found.commit_list, found.reveal_list) == (COMMITS, REVEALS)
    assert found.votes == {1: VOTE, 4: LATER}
    assert found.last_voted == 4


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([COMMITS, COMMITS], "signed twice"),
        ([COMMITS, REVEALS, reveal_list(CONTEXT, 0, [])], "signed twice"),
        ([COMMITS, REVEALS, VOTE, signed_vote(CONTEXT, 0, task_hash=b"\1" * 32, round_=1)], "signed twice"),
        ([REVEALS], "lacks the commit list"),
        ([VOTE], "lacks the commit list"),
        ([COMMITS, VOTE], "lacks the reveal list"),
        ([commit_list(replace(CONTEXT, attempt=1), 0, [])], "another order"),
        ([COMMITS, reveal_list(replace(CONTEXT, order_id=bytes(32)), 0, [])], "another order"),
    ],
)
def test_a_damaged_file_is_refused(stored: list[SignedRecord], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        restored_records(stored, CONTEXT)
