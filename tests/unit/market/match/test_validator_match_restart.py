"""A validator that is killed at any step goes on from what it had signed, and signs nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from sparewatt.market.match.model import MatchStage, SignedRecord
from sparewatt.market.match.record import read_record, write_record
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.contracts.match_messages import (
    SignedCommitList,
    SignedRevealList,
    SignedVote,
    decode_message,
    encode_message,
)
from tests.unit.market.match.liars import signed_vote
from tests.unit.market.match.match_scene import PROVIDERS, VOTE_KEYS, MatchScene, bid_for, context_for, leader

CONTEXT = context_for()
LEADER = leader(CONTEXT)


def a_match() -> MatchScene:
    scene = MatchScene(context=CONTEXT)
    scene.start()
    for number in range(3):
        scene.bid(bid_for(number))
    return scene


def from_disk(records: list[SignedRecord]) -> list[SignedRecord]:
    read = [decode_message(encode_message(record)) for record in records]
    return [each for each in read if isinstance(each, SignedCommitList | SignedRevealList | SignedVote)]


def restart(scene: MatchScene, number: int, *, after_ms: int = 50) -> None:
    """It is down for a while, and then knows only what it had stored."""
    del scene.validators[number]

    def back() -> None:
        scene.dead.discard(number)
        scene.validators[number] = scene.validator(number, from_disk(scene.records[number]))
        scene.done(number, scene.validators[number].start(scene.now_ms))

    scene.at(after_ms, back)
    scene.run(until=lambda: number in scene.validators)


def kinds(records: list[SignedRecord]) -> Counter[object]:
    return Counter((type(record), record.vote.round if isinstance(record, SignedVote) else None) for record in records)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("number", [LEADER, (LEADER + 1) % 4])
@pytest.mark.parametrize("stored", range(4))
def test_killed_after_any_record_the_match_happens_and_nothing_is_signed_twice(
    number: int, stored: int, *, sent: bool
) -> None:
    """Before or after the first byte of what it stored has left."""
    scene = a_match()
    scene.run(until=lambda: scene.validators[number].version > 0 and len(scene.records[number]) >= stored)
    scene.dead |= set() if sent else {number}
    restart(scene, number)
    scene.run()
    assert scene.winner() == PROVIDERS[0]
    assert scene.certificate().task.bid_count == 3
    assert max(kinds(scene.records[number]).values()) == 1
    assert len(scene.task_hashes()) == 1


def test_all_restarted_together_after_their_commit_lists_still_take_the_bids() -> None:
    """If reveals closed empty after a restart, honest bidders would lose their bond as unrevealed."""
    scene = a_match()
    scene.run(until=lambda: all(scene.records[number] for number in range(4)))
    for number in range(4):
        scene.validators[number] = scene.validator(number, from_disk(scene.records[number][:1]))
    scene.records = {number: records[:1] for number, records in scene.records.items()}
    for number in range(4):
        scene.done(number, scene.validators[number].start(scene.now_ms))
    scene.run()
    assert scene.certificate().task.bid_count == 3
    assert all(max(kinds(records).values()) == 1 for records in scene.records.values())


def test_a_restarted_validator_still_has_the_bids_that_it_alone_listed() -> None:
    scene = a_match()
    scene.run(until=lambda: scene.validators[LEADER].phase is MatchStage.VOTE)
    match = scene.validator(LEADER, from_disk(scene.records[LEADER]))
    match.start(0)
    record = match.record()
    assert len(record.reveals) == len(record.commits) == 3
    assert match.phase is MatchStage.VOTE


def test_who_voted_has_the_leaves_of_the_task_after_a_restart() -> None:
    """Without them it could not answer a demand for the book, and would lose half of its stake."""
    scene = a_match()
    scene.run()
    number = (LEADER + 1) % 4
    before = read_record(json.loads(json.dumps(write_record(scene.validators[number].record()))))
    match = ValidatorMatch(
        CONTEXT,
        key=VOTE_KEYS[number],
        timing=scene.timing,
        standing=scene.standing,
        stored=from_disk(scene.records[number]),
        recorded=before,
    )
    out = match.start(9_000)
    after = match.record()
    assert [each.task for each in after.proposals] == [scene.certificate().task]
    assert replace(after, notes=()) == replace(before, notes=())
    assert after.notes[: len(before.notes)] == before.notes
    assert (out.records, match.phase, match.certificate) == ([], MatchStage.CERTIFIED, scene.certificate())


def test_a_vote_whose_leaves_were_not_kept_is_never_shown() -> None:
    """It died between its two files, so the vote has not left; in a certificate it would cost half of its stake."""
    scene = a_match()
    scene.run(until=lambda: len(scene.records[LEADER]) >= 3)
    assert isinstance(scene.records[LEADER][2], SignedVote)
    match = scene.validator(LEADER, from_disk(scene.records[LEADER]))
    out = match.start(0)
    assert (match.votes(), match.record().votes, match.round) == ((), (), 1)
    assert not any(isinstance(message, SignedVote) for message in out.broadcast)


def test_a_record_of_before_is_believed_as_far_as_it_proves_itself() -> None:
    """A damaged or foreign file adds nothing, and keeps nobody from starting."""
    scene = a_match()
    scene.run()
    honest = scene.validators[0].record()
    spoiled = replace(
        honest,
        proposals=tuple(replace(each, vote=replace(each.vote, signature=bytes(65))) for each in honest.proposals),
        votes=tuple(replace(each, signature=bytes(65)) for each in honest.votes),
        reveal_lists=tuple(replace(each, signature=bytes(65)) for each in honest.reveal_lists),
    )
    stored = from_disk(scene.records[0])
    match = ValidatorMatch(
        CONTEXT, key=VOTE_KEYS[0], timing=scene.timing, standing=scene.standing, stored=stored, recorded=spoiled
    )
    match.start(0)
    alone = scene.validator(0, stored)
    alone.start(0)
    assert match.record().proposals == ()
    assert (match.record().votes, match.record().reveal_lists) == (alone.record().votes, alone.record().reveal_lists)
    assert (match.round, match.certificate) == (1, None)


def test_the_round_continues_after_the_last_vote() -> None:
    scene = a_match()
    scene.run()
    records = from_disk(scene.records[LEADER])
    votes = [signed_vote(CONTEXT, LEADER, task_hash=bytes(32), round_=round_) for round_ in (3, 1)]
    match = scene.validator(LEADER, [*records[:2], *votes])
    match.start(0)
    assert match.round == 4


def test_a_restart_sends_its_lists_again() -> None:
    scene = a_match()
    scene.run()
    match = scene.validator(LEADER, from_disk(scene.records[LEADER]))
    out = match.start(0)
    assert [message.tag for message in out.broadcast] == ["commit_list", "reveal_list"]
    assert out.records == []


def test_a_window_that_had_not_closed_starts_anew() -> None:
    match = a_match().validator(0, [])
    match.start(5_000)
    assert match.phase is MatchStage.COMMIT
    assert match.next_tick_ms == 5_150
    assert match.tick(5_800).records


def test_stored_records_of_another_match_are_refused() -> None:
    scene = a_match()
    vote = signed_vote(replace(CONTEXT, attempt=7), 0, task_hash=bytes(32))
    with pytest.raises(ValueError, match="another order"):
        scene.validator(0, [vote])
