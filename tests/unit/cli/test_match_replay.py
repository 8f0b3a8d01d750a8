from __future__ import annotations

import pytest

from sparewatt.cli.match_replay import print_replay
from sparewatt.market.faults import find_faults
from sparewatt.market.match.model import MatchNote
from sparewatt.market.match.replay import pool_of, replay
from sparewatt.protocol.contracts.reasons import DeclineReason, MessageRefusal
from tests.market_network.by_hand import USD, HandMatch


def test_a_replay_names_winner_losers_refusals_and_the_digest(capsys: pytest.CaptureFixture[str]) -> None:
    match = HandMatch.of({0: 2 * USD, 1: USD, 2: 50 * USD})
    late, declined = match.cast.providers[5].address, match.decline(6, DeclineReason.IMAGE)
    again = replay(match.record(MatchNote(812, "commit", MessageRefusal.LATE, late, 12), declines=(declined,)))
    print_replay(again, ())
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("0x")}
    assert f"0x{again.task_hash.hex()}" in text
    assert "in round 0 by 3 validators" in text
    assert "$1.0000" in rows[match.cast.providers[1].address[:10]]
    assert "won" in rows[match.cast.providers[1].address[:10]]
    assert "above the winner's: dearer." in rows[match.cast.providers[0].address[:10]]
    assert "OVER_MAX_PRICE" in rows[match.cast.providers[2].address[:10]]
    assert f"LATE by 12 ms at {match.cast.vote_keys[0].address.lower()[:10]}" in rows[late[:10]]
    assert "IMAGE" in rows[match.cast.providers[6].address[:10]]
    assert "The same in every field" in text
    assert "Proven faults" not in text


def test_a_difference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    match = HandMatch.of({})
    print_replay(replay(match.record(votes=(), proposals=()), accepted=match.task(HandMatch.of({0: USD}).book())), ())
    text = capsys.readouterr().out
    assert "no quorum of votes in these records" in text
    assert "Nobody bid and nobody declined" in text
    assert "bid_count is 0 here and 1 in the certified task." in text


def test_a_fault_is_printed_with_its_culprit(capsys: pytest.CaptureFixture[str]) -> None:
    match = HandMatch.of({0: USD, 1: 2 * USD})
    task, other = match.task(match.book()), match.task(match.book([0]))
    record = match.record(votes=(match.vote(1, task), match.vote(1, other)))
    faults = find_faults(pool_of([record]), indices=dict.fromkeys(match.cast.context.weights, 0))
    print_replay(replay(record), faults)
    text = capsys.readouterr().out
    assert f"DOUBLE_SIGN of {match.cast.vote_keys[1].address.lower()}" in text
