"""One of four validators lies, is silent or signs twice; messages are lost; anyone dies at any step."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.quorum import leader_of_snapshot
from sparewatt.market.snapshots.model import SnapshotOutput
from sparewatt.market.snapshots.snapshot_match import SKEW_S
from sparewatt.protocol.contracts.match import Observations, ReputationSnapshot, inputs_hash_of
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedObservations,
    SignedSnapshot,
    SnapshotMessage,
    SnapshotProposal,
    SnapshotStatus,
)
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import message_digest
from tests.unit.market.snapshots.snapshot_network import (
    ALICE,
    BOB,
    DOMAIN,
    KEYS,
    SPACING_S,
    TIMING,
    Member,
    SnapshotNetwork,
    provider_facts,
    seen,
)

ONE_ROUND_MS = 700
"""For a round that fails, and the next, with room."""


def leader(network: SnapshotNetwork, *, round_: int = 0, epoch: int = 1) -> Member:
    address = leader_of_snapshot(network.weights, epoch=epoch, round_=round_)
    return next(member for member in network.members if member.address == address)


def signed_snapshot(member: Member, snapshot: ReputationSnapshot) -> SignedSnapshot:
    return SignedSnapshot(snapshot, member.key.sign(message_digest(DOMAIN, snapshot)))


def no_key_signed_twice(network: SnapshotNetwork, *, but: Member | None = None) -> None:
    """I8: no honest validator can be slashed, by anything that it has signed in its life."""
    assert keys_that_signed_twice(network, but=but) == []


def keys_that_signed_twice(network: SnapshotNetwork, *, but: Member | None = None) -> list[str]:
    """Two different votes of one round, or observations of one epoch."""
    return [member.address for member in network.members if member is not but and _signed_twice(member)]


def _signed_twice(member: Member) -> bool:
    votes = {vote.snapshot for vote in member.votes()}
    epochs = [entry.message.epoch for entry in member.entries if isinstance(entry.message, Observations)]
    rounds = {(snapshot.epoch, snapshot.round) for snapshot in votes}
    return len(rounds) < len(votes) or len(set(epochs)) < len(epochs)


def uptime(network: SnapshotNetwork, provider: str = ALICE) -> int:
    network.run(100)
    books = [member.match.newest_book for member in network.members if member.match is not None]
    book = next(book for book in books if book is not None)
    return next(row.uptime_ppm for row in book.table.rows if row.provider == provider)


def test_a_leader_that_is_silent_costs_one_round() -> None:
    network = SnapshotNetwork()
    network.start(*(member for member in network.members if member is not leader(network)))
    assert network.run_until_posted(1, ms=ONE_ROUND_MS)
    assert network.certificates[0].snapshot.round == 1


@pytest.mark.parametrize("lie", ["root", "count", "inputs_hash"])
def test_a_leader_whose_table_is_false_gets_no_vote_and_costs_one_round(lie: str) -> None:
    network = SnapshotNetwork()
    liar = leader(network)

    def falsify(sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is not liar or not isinstance(message, SnapshotProposal):
            return message
        false: dict[str, Any] = {"root": bytes([9] * 32), "count": 7, "inputs_hash": bytes([9] * 32)}
        snapshot = replace(message.vote.snapshot, **{lie: false[lie]})
        return replace(message, vote=signed_snapshot(liar, snapshot))

    network.filter = falsify
    network.start()
    assert network.run_until_posted(1, ms=ONE_ROUND_MS)
    assert network.certificates[0].snapshot.round == 1
    honest = [member for member in network.members if member is not liar]
    refused = [note for member in honest for note in member.notes if note.what == "vote_refused"]
    assert {note.code for note in refused} == {VoteRefusal.WRONG_RESULT}
    assert {note.subject for note in refused} == {liar.address}
    assert uptime(network) == 990_000


def test_a_leader_that_uses_less_than_a_quorum_of_observations_gets_no_vote() -> None:
    """The lie would keep all numbers as they were: nobody published."""
    network = SnapshotNetwork()
    liar = leader(network)

    def leave_out(sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is liar and isinstance(message, SnapshotProposal):
            return replace(message, observations=message.observations[:2])
        return message

    network.filter = leave_out
    network.start()
    assert network.run_until_posted(1, ms=ONE_ROUND_MS)
    assert network.certificates[0].snapshot.round == 1


def test_a_leader_that_counts_one_validator_twice_gets_no_vote() -> None:
    network = SnapshotNetwork()
    liar = leader(network)

    def repeat(sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is liar and isinstance(message, SnapshotProposal):
            return replace(message, observations=(*message.observations[:2], *message.observations[:2]))
        return message

    network.filter = repeat
    network.start()
    network.run_until_posted(1, ms=ONE_ROUND_MS)
    codes = {note.code for member in network.members for note in member.notes if note.what == "vote_refused"}
    assert codes == {VoteRefusal.WRONG_CONTEXT}


def test_a_leader_cannot_name_an_old_block_to_bring_a_provider_back() -> None:
    network = SnapshotNetwork(providers=(provider_facts(ALICE), provider_facts(BOB)))
    network.start()
    network.run_until_posted(1)
    old_height = network.height
    network.run(70_000)
    network.mine(providers=(provider_facts(ALICE),))
    liar = leader(network, epoch=2)

    def name_old(sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is liar and isinstance(message, SnapshotProposal):
            return replace(message, height=old_height)
        return message

    network.filter = name_old
    assert network.run_until_posted(2)
    assert network.certificates[1].snapshot.round == 1
    codes = {note.code for member in network.members for note in member.notes if note.what == "vote_refused"}
    assert codes == {VoteRefusal.WRONG_CONTEXT}


def test_a_leader_cannot_go_back_before_the_block_of_the_last_table() -> None:
    network = SnapshotNetwork()
    network.filter = lambda _sender, _receiver, _message: None
    network.start()
    network.mine()
    network.mine()
    network.run(100)
    network.filter = lambda _sender, _receiver, message: message
    network.run_until_posted(1)
    for member in network.members:
        member.rows = (seen(uptime_ppm=500_000),)
    liar = leader(network, epoch=2)

    def name_old(sender: Member, _receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is not liar or not isinstance(message, SnapshotProposal):
            return message
        inputs_hash = inputs_hash_of(2, [signed.observations for signed in message.observations])
        vote = signed_snapshot(liar, replace(message.vote.snapshot, inputs_hash=inputs_hash))
        return replace(message, height=2, vote=vote)

    network.filter = name_old
    assert network.run_until_posted(2)
    assert network.certificates[1].snapshot.round == 1
    codes = {note.code for member in network.members for note in member.notes if note.what == "vote_refused"}
    assert codes == {VoteRefusal.WRONG_CONTEXT}


def test_validators_in_a_hurry_get_no_vote_before_the_spacing_is_over() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    hasty = [leader(network, epoch=2), leader(network, epoch=2, round_=1)]
    for member in network.members:
        member.rows = (seen(uptime_ppm=500_000),)
    for member in hasty:
        assert member.match is not None
        member.match._spacing_s = 0
    votes_s: list[int] = []
    posts_s: list[int] = []

    def note_time(member: Member, output: SnapshotOutput) -> bool:
        age_s = network.unix_s() - network.posted[0].posted_at
        if member not in hasty and any(isinstance(entry.message, ReputationSnapshot) for entry in output.entries):
            votes_s.append(age_s)
        if member not in hasty and output.certificate is not None:
            posts_s.append(age_s)
        return False

    network.crash_after = note_time
    assert network.run_until_posted(2)
    assert min(votes_s) >= SPACING_S - SKEW_S
    assert min(posts_s) >= SPACING_S, "nor do the others post what the contract would refuse"
    assert any(note.what == "vote_refused" for member in network.members for note in member.notes)


def test_what_one_validator_says_does_not_move_the_table_beyond_the_honest() -> None:
    for lie in (0, 1_000_000):
        network = SnapshotNetwork()
        for number, member in enumerate(network.members):
            member.rows = (seen(uptime_ppm=lie if number == 0 else 980_000 + number),)
        network.start()
        network.run_until_posted(1)
        assert 980_001 <= uptime(network) <= 980_003


def test_a_validator_that_tells_each_other_something_else_splits_nobody() -> None:
    """A proposal carries what it used, so the voters need not have seen the same."""
    network = SnapshotNetwork()
    liar = next(member for member in network.members if member is not leader(network))

    def differ(sender: Member, receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is liar and isinstance(message, SignedObservations):
            rows = (seen(uptime_ppm=network.members.index(receiver)),)
            observations = replace(message.observations, rows=rows)
            return SignedObservations(observations, liar.key.sign(message_digest(DOMAIN, observations)))
        return message

    network.filter = differ
    network.start()
    assert network.run_until_posted(1, ms=ONE_ROUND_MS)
    assert network.certificates[0].snapshot.round == 0


def test_two_votes_of_one_key_in_one_round_are_evidence() -> None:
    network = SnapshotNetwork()
    liar = next(member for member in network.members if member is not leader(network))
    network.start()

    def twice(sender: Member, receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        if sender is liar and isinstance(message, SignedSnapshot):
            other = signed_snapshot(liar, replace(message.snapshot, root=bytes([5] * 32)))
            network.filter = lambda _sender, _receiver, message: message
            network.send(liar, receiver, other)
        return message

    network.filter = twice
    network.run_until_posted(1)
    network.run(100)
    faults = [fault for member in network.members for fault in member.faults]
    assert faults
    for fault in faults:
        assert fault.signer == liar.address
        assert fault.first.snapshot.root != fault.second.snapshot.root
        assert (fault.first.snapshot.epoch, fault.first.snapshot.round) == (1, fault.second.snapshot.round)
    no_key_signed_twice(network, but=liar)


def test_a_vote_of_a_stranger_or_for_another_epoch_counts_nothing() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    network.run(200)
    receiver = network.members[0]
    assert receiver.match is not None
    snapshot = ReputationSnapshot(1, 0, bytes([1] * 32), 1, bytes(32))
    stranger = SignedSnapshot(snapshot, KEYS[4].sign(message_digest(DOMAIN, snapshot)))
    broken = SignedSnapshot(snapshot, bytes(65))
    early = signed_snapshot(network.members[1], replace(snapshot, epoch=2))
    late = signed_snapshot(network.members[1], replace(snapshot, epoch=0))
    answers = [receiver.match.receive(vote, now_ms=network.now_ms).code for vote in (stranger, broken, early, late)]
    assert answers == [
        MessageRefusal.BAD_SIGNATURE,
        MessageRefusal.BAD_SIGNATURE,
        MessageRefusal.BEHIND_CHAIN,
        MessageRefusal.WRONG_ORDER_OR_ATTEMPT,
    ]


def test_only_the_leader_of_a_round_proposes() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    network.run(200)
    receiver = network.members[0]
    other = next(m for m in network.members[1:] if m is not leader(network))
    assert receiver.match is not None
    snapshot = ReputationSnapshot(1, 0, bytes([1] * 32), 1, bytes(32))
    proposal = SnapshotProposal(signed_snapshot(other, snapshot), 1, ())
    assert receiver.match.receive(proposal, now_ms=network.now_ms).code == VoteRefusal.NOT_LEADER


def test_a_book_that_is_not_the_one_posted_is_refused_whoever_sends_it() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:3])
    network.run_until_posted(1)
    network.run(100)
    late = network.members[3]
    network.filter = lambda _sender, receiver, message: None if receiver is late else message
    network.start(late)
    given = network.members[0].match
    assert late.match is not None
    assert given is not None
    assert given.newest_book is not None
    book = given.newest_book
    false = replace(book, table=replace(book.table, rows=(replace(book.table.rows[0], uptime_ppm=1),)))
    older = replace(book, table=replace(book.table, height=book.table.height - 1))
    for wrong in (false, older):
        assert late.match.receive(wrong, now_ms=network.now_ms).code == VoteRefusal.WRONG_RESULT
        assert late.match.lacks_book
    assert late.match.receive(book, now_ms=network.now_ms).books == [book]
    assert not late.match.lacks_book


def test_a_validator_votes_only_when_its_own_chain_has_the_leaders_block() -> None:
    network = SnapshotNetwork()
    first, second, behind = (leader(network), leader(network, round_=1), leader(network, round_=2))
    network.start(behind)
    network.height += 5
    network.start(first, second)
    assert not network.run_until_posted(1, ms=500)
    assert first.votes()
    assert behind.votes() == []
    network.mine()
    assert network.run_until_posted(1, ms=10_000)
    assert behind.votes()


# Loss and restarts


def test_lost_messages_come_again_by_any_way() -> None:
    """Two validators cannot reach each other at all; what one lacks the others have."""
    network = SnapshotNetwork()
    apart = {network.members[0].address, network.members[1].address}
    network.filter = lambda sender, receiver, message: None if {sender.address, receiver.address} == apart else message
    network.start(*network.members[:3])
    assert network.run_until_posted(1, ms=10_000)
    no_key_signed_twice(network)


@given(seed=st.integers(0, 10**6), loss=st.integers(0, 50))
def test_with_any_loss_an_epoch_is_posted_and_no_honest_key_signs_twice(seed: int, loss: int) -> None:
    network = SnapshotNetwork((10, 20, 30, 25), providers=(provider_facts(ALICE), provider_facts(BOB)))
    chance = random.Random(seed)  # noqa: S311 (repeatable on purpose)
    network.filter = lambda _sender, _receiver, message: None if chance.randrange(100) < loss else message
    network.start()
    assert network.run_until_posted(1, ms=120_000)
    no_key_signed_twice(network)


STEPS = ("observations", "vote", "proposal", "certificate")


def is_step(output: SnapshotOutput, step: str) -> bool:
    kinds = {
        "observations": any(isinstance(entry.message, Observations) for entry in output.entries),
        "vote": any(isinstance(message, SignedSnapshot) for message in output.broadcast),
        "proposal": any(isinstance(message, SnapshotProposal) for message in output.broadcast),
        "certificate": output.certificate is not None,
    }
    return kinds[step]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("deaths", [1, 4])
def test_a_validator_that_dies_when_it_has_stored_and_not_yet_sent_signs_nothing_else(step: str, deaths: int) -> None:
    network = SnapshotNetwork()
    died: list[Member] = []

    def crash(member: Member, output: SnapshotOutput) -> bool:
        if not is_step(output, step) or member in died or len(died) == deaths:
            return False
        died.append(member)
        return True

    network.crash_after = crash
    network.start()
    for _ in range(50):
        if network.run_until_posted(1, ms=400):
            break
        network.start_stopped()
    assert died
    assert len(network.posted) == 1
    no_key_signed_twice(network)


def test_all_validators_die_when_the_epoch_is_posted_and_know_its_table_afterwards() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    for member in network.members:
        network.stop(member)
    network.start()
    network.mine(providers=(provider_facts(BOB),))
    assert network.run_until_posted(2)
    no_key_signed_twice(network)


def test_a_validator_that_restarts_in_every_round_never_signs_one_twice() -> None:
    network = SnapshotNetwork()
    network.filter = lambda _sender, _receiver, message: None if isinstance(message, SignedSnapshot) else message
    network.start()
    for number in range(8):
        network.run(500)
        network.restart(network.members[number % 4])
    network.filter = lambda _sender, _receiver, message: message
    assert network.run_until_posted(1, ms=60_000)
    no_key_signed_twice(network)
    assert max(vote.snapshot.round for member in network.members for vote in member.votes()) >= 2


def test_a_validator_behind_jumps_to_the_round_that_more_than_a_third_have_reached() -> None:
    network = SnapshotNetwork()
    network.filter = lambda _sender, _receiver, message: None if isinstance(message, SnapshotProposal) else message
    network.start()
    network.run(50)
    behind, *others = network.members
    match = behind.match
    assert match is not None
    assert match.round == 0
    for member, round_ in zip(others, (7, 5), strict=False):
        snapshot = ReputationSnapshot(1, round_, bytes([1] * 32), 1, bytes(32))
        match.receive(signed_snapshot(member, snapshot), now_ms=network.now_ms)
    assert match.round == 5


def test_a_proposal_alone_is_enough_to_begin_and_vote() -> None:
    """One validator has missed all observations; without its vote there is no quorum."""
    network = SnapshotNetwork()
    first, second, deaf = (leader(network), leader(network, round_=1), leader(network, round_=2))

    def deafen(_sender: Member, receiver: Member, message: SnapshotMessage) -> SnapshotMessage | None:
        return None if receiver is deaf and not isinstance(message, SnapshotProposal) else message

    network.filter = deafen
    network.start(first, second, deaf)
    assert network.run_until_posted(1, ms=TIMING.round_ms), "in the first round"


# Bounds


def test_a_flood_of_rounds_and_proposals_leaves_little_behind() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    network.run(200)
    receiver, liar = network.members[0], network.members[1]
    match = receiver.match
    assert match is not None
    for round_ in range(100):
        snapshot = ReputationSnapshot(1, round_, bytes([1] * 32), 1, bytes(32))
        match.receive(SnapshotProposal(signed_snapshot(liar, snapshot), 1, ()), now_ms=network.now_ms)
    votes = match._votes
    assert len(votes.votes[liar.address]) <= 8
    assert len(votes.proposals) <= 8
    assert match.round is None, "one validator alone moves nobody to another round"


def test_an_endless_row_of_epochs_leaves_little_behind() -> None:
    network = SnapshotNetwork()
    for step in range(10):
        for member in network.members:
            member.rows = (seen(uptime_ppm=999_000 - 100_000 * (step % 2)),)
        network.start_stopped()
        assert network.run_until_posted(step + 1, ms=30_000)
    match = network.members[0].match
    assert match is not None
    assert len(match._known) <= 8
    assert len(match._own._votes) <= 8
    assert len(match._own._observations) <= 8


def test_while_no_quorum_is_there_the_others_ask_more_and_more_rarely() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    network.run(60_000)
    assert network.sent <= 2 * 3 * (6 + 60_000 // (TIMING.resend_ms << 6) + 4)


def test_a_status_is_answered_with_what_the_sender_lacks_only() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    network.run(200)
    match = network.members[0].match
    assert match is not None
    nothing = match.receive(SnapshotStatus(1, 0, 0, ()), now_ms=network.now_ms)
    assert len(nothing.replies) == 2
    held = tuple(keccak256(reply.signature) for reply in nothing.replies if isinstance(reply, SignedObservations))
    assert match.receive(SnapshotStatus(1, 0, 0, held), now_ms=network.now_ms).replies == []
    (one,) = match.receive(SnapshotStatus(1, 0, 0, held[:1]), now_ms=network.now_ms).replies
    assert one == nothing.replies[1]
