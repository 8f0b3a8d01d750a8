"""A host opens matches at first sight, makes signatures durable before it sends, and ends by what the chain says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.machine.data_dir import write_private
from sparewatt.market.chain_records import MarketState, OrderState
from sparewatt.market.match.record import read_record
from sparewatt.protocol.contracts.match import CommitList
from sparewatt.protocol.contracts.match_messages import (
    Proposal,
    SignedCommitList,
    SignedRevealList,
    SignedVote,
    decode_message,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import keccak256
from sparewatt.validator import match_host, record_files
from sparewatt.validator.match_host import ENDED_MATCHES_KEPT
from sparewatt.validator.signed_file import SignedFile, SignedFileFailed, StoredRecord
from tests.unit.market.match.match_scene import ORDER_ID, PROVIDERS, VOTE_KEYS, bid_for, commit_for
from tests.unit.validator.host_scene import (
    ATTEMPT_S,
    ID,
    OPENED_AT,
    Hosted,
    HostScene,
    Tables,
    a_state,
    a_view,
    an_event,
    an_order,
    commit,
    open_order,
)

WRONG, BEHIND = MessageRefusal.WRONG_ORDER_OR_ATTEMPT, MessageRefusal.BEHIND_CHAIN


@pytest.fixture
def scene(tmp_path: Path) -> HostScene:
    return HostScene(tmp_path)


def certify(scene: HostScene, hosts: list[Hosted], state: MarketState) -> None:
    """Both providers bid, and time passes until somebody submits."""
    for hosted in hosts:
        hosted.host.on_chain(a_view(state), [an_event("PROVIDER_LOOKUP")], is_whole=False)
    bids = [bid_for(number) for number in range(2)]
    for hosted in hosts:
        for bid in bids:
            assert hosted.host.receive(commit_for(bid)).code == 0
    scene.clock.advance(0.1)
    for hosted in hosts:
        for bid in bids:
            hosted.host.receive(bid)
    scene.clock.advance(1.0)


def kinds_of(records: list[Any]) -> list[type]:
    return [type(record) for record in records]


async def test_four_hosts_certify_a_match_and_keep_what_they_signed(scene: HostScene) -> None:
    hosts = scene.network()
    certify(scene, hosts, a_state(an_order()))
    certificates = [certificate for hosted in hosts for certificate in hosted.submitted]
    assert {certificate.task.bid_count for certificate in certificates} == {2}
    assert len(certificates) == 4, "the leader at once, the others in their turn, since the chain says nothing"
    for hosted in hosts:
        stored = hosted.signed.of_match(ORDER_ID, 0)
        assert set(kinds_of(stored)) == {SignedCommitList, SignedRevealList, SignedVote}
        assert hosted.host.counts.votes_cast == 1
        assert hosted.records.read(ID, 0) is not None, "the book is kept before the vote leaves"


async def test_nothing_leaves_before_it_is_on_disk(scene: HostScene) -> None:
    hosts = scene.network()
    deliver = scene.deliver
    assert deliver is not None

    def checked(sender: int, body: bytes) -> None:
        message = decode_message(body)
        if isinstance(message, SignedCommitList | SignedRevealList | SignedVote):
            own = VOTE_KEYS[sender].address
            stored = [each for each in hosts[sender].signed.of_match(ORDER_ID, 0) if type(each) is type(message)]
            assert stored, f"{type(message).__name__} of {own} left before it was stored"
        deliver(sender, body)

    scene.deliver = checked
    certify(scene, hosts, a_state(an_order()))
    assert any(hosted.submitted for hosted in hosts)


async def test_messages_go_to_all_that_have_weight_in_the_attempt(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    scene.clock.advance(1.0)
    assert {tuple(keys) for keys, _ in hosted.sent} == {tuple(key.address for key in VOTE_KEYS)}


# which messages find a match


async def test_a_message_about_an_order_that_is_not_open_here_is_refused(scene: HostScene) -> None:
    hosted = scene.add()
    assert commit(hosted, 0) == BEHIND, "nothing is known of the chain yet"
    open_order(hosted, a_state())
    assert commit(hosted, 0) == WRONG
    open_order(hosted)
    assert commit(hosted, 0) == 0
    assert commit(hosted, 0, attempt=1) == WRONG
    assert hosted.host.counts.messages_refused == 3


async def test_an_order_waits_for_its_table(scene: HostScene) -> None:
    hosted = scene.add(tables=Tables({}))
    open_order(hosted)
    assert (hosted.host.open_count, commit(hosted, 0)) == (0, BEHIND)
    hosted.tables.known = Tables().known
    hosted.host.on_tables()
    assert (hosted.host.open_count, commit(hosted, 0)) == (1, 0)


async def test_a_table_that_is_not_the_snapshots_opens_nothing(scene: HostScene) -> None:
    hosted = scene.add(tables=Tables({1: Tables().known[1][:1]}))
    open_order(hosted)
    assert (hosted.host.open_count, hosted.host.counts.not_opened) == (0, 1)


async def test_a_validator_without_weight_takes_no_part(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted, a_state(an_order(), voters=VOTE_KEYS[1:]))
    assert (hosted.host.open_count, commit(hosted, 0)) == (0, WRONG)


async def test_matches_at_once_are_bounded(scene: HostScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_host, "OPEN_MATCHES_MAX", 2)
    hosted = scene.add()
    orders = [an_order(keccak256(bytes([number]))) for number in range(4)]
    hosted.host.on_chain(a_view(a_state(*orders)), [], is_whole=True)
    assert (hosted.host.open_count, hosted.host.counts.not_opened) == (2, 2)


async def test_an_attempt_whose_time_is_over_is_not_opened(scene: HostScene) -> None:
    scene.unix_s = OPENED_AT + ATTEMPT_S + 1
    hosted = scene.add()
    open_order(hosted)
    assert hosted.host.open_count == 0


async def test_one_bond_does_not_back_two_open_bids(scene: HostScene) -> None:
    hosted = scene.add()
    other = keccak256(b"another order")
    state = a_state(an_order(), an_order(other), bond_uusd=3_000_000)
    hosted.host.on_chain(a_view(state), [], is_whole=True)
    assert hosted.host.open_count == 2
    assert commit(hosted, 0) == 0
    assert commit(hosted, 0, order_id=other) == MessageRefusal.UNBONDED
    assert commit(hosted, 1, order_id=other) == 0


# the chain ends it


async def test_a_match_ends_when_the_chain_has_its_certificate(scene: HostScene) -> None:
    hosts = scene.network()
    state = a_state(an_order())
    certify(scene, hosts, state)
    state.orders[ID] = replace(state.orders[ID], state=OrderState.MATCHED)
    signers = [key.address for key in VOTE_KEYS[:3]]
    event = an_event("MatchAccepted", signers=signers)
    for hosted in hosts:
        hosted.host.on_chain(a_view(state), [event], is_whole=False)
        assert hosted.host.open_count == 0
        assert hosted.host.counts.certificates_seen == hosted.host.counts.certificates_weighed == 1
    assert [hosted.host.counts.certificates_signed for hosted in hosts] == [1, 1, 1, 0]
    assert [len(record.votes) >= 3 for hosted in hosts for record in hosted.ended] == [True] * 4, "told once each"
    assert (hosts[0].host.attempts_of(ID), hosts[0].host.attempts_of("0x" + "00" * 32)) == ([0], [])
    progress = await hosts[0].host.progress(ID, 0, have=0, wait_s=0)
    assert progress is not None
    assert (progress.phase, progress.certificate is not None) == ("over", True)
    body = hosts[0].host.record(ID, 0)
    assert body is not None
    assert len(read_record(msgspec.json.decode(body)).reveals) == 2
    count = len(hosts[0].sent)
    scene.clock.advance(5.0)
    assert len(hosts[0].sent) == count, "nothing is sent after the end"
    assert hosts[0].host.receive(bid_for(0)).code == WRONG


async def test_a_bid_that_comes_after_the_end_is_in_the_record_on_disk(scene: HostScene) -> None:
    hosted = scene.add()
    state = open_order(hosted)
    scene.clock.advance(1.0)
    state.orders[ID] = replace(state.orders[ID], state=OrderState.MATCHED)
    hosted.host.on_chain(a_view(state), [an_event("MatchAccepted", signers=[])], is_whole=False)
    scene.clock.advance(3.0)
    assert commit(hosted, 0) == commit(hosted, 0) == MessageRefusal.LATE
    written = hosted.records.read(ID, 0)
    assert written is not None
    notes = [note for note in read_record(msgspec.json.decode(written)).notes if note.subject == PROVIDERS[0]]
    assert [(note.code, note.late_by_ms > 2_000) for note in notes] == [(MessageRefusal.LATE, True)]
    assert hosted.host.counts.messages_refused == 2


async def test_an_attempt_ends_when_its_time_is_over_without_any_event(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    scene.unix_s = OPENED_AT + ATTEMPT_S + 1
    scene.clock.advance(1.0)
    assert hosted.host.open_count == 0
    assert hosted.host.counts.rounds_missed == 1


async def test_a_new_attempt_is_a_match_of_its_own(scene: HostScene) -> None:
    hosted = scene.add()
    state = open_order(hosted)
    scene.clock.advance(1.0)
    again = replace(state.orders[ID], attempt=1, opened_at={0: OPENED_AT, 1: OPENED_AT})
    state.orders[ID] = again
    hosted.host.on_chain(a_view(state), [an_event("PROVIDER_LOOKUP")], is_whole=False)
    assert (commit(hosted, 0), commit(hosted, 0, attempt=1)) == (MessageRefusal.LATE, 0)
    assert commit(hosted, 0, attempt=2) == WRONG
    assert hosted.host.open_count == 1


async def test_ended_matches_in_memory_are_bounded_and_the_rest_is_on_disk(scene: HostScene) -> None:
    hosted = scene.add()
    orders = [an_order(keccak256(number.to_bytes(2, "big"))) for number in range(ENDED_MATCHES_KEPT + 3)]
    state = a_state(*orders)
    hosted.host.on_chain(a_view(state), [], is_whole=True)
    scene.clock.advance(0.9)
    state.orders = {each.order_id: replace(each, state=OrderState.UNMATCHED) for each in orders}
    hosted.host.on_chain(
        a_view(state), [an_event("NoMatch", each.order_id, signers=[]) for each in orders], is_whole=False
    )
    assert len(hosted.host._ended) == ENDED_MATCHES_KEPT
    assert all(hosted.host.record(each.order_id, 0) is not None for each in orders)


# reorganisations and restarts


async def test_an_order_that_a_reorg_removed_is_given_up(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    hosted.host.on_chain(a_view(a_state()), [], is_whole=True)
    assert hosted.host.open_count == 0


async def test_other_facts_after_a_reorg_start_the_match_anew_from_what_was_signed(scene: HostScene) -> None:
    hosted = scene.add()
    state = open_order(hosted)
    scene.clock.advance(0.9)
    before = hosted.signed.of_match(ORDER_ID, 0)
    assert kinds_of(before) == [SignedCommitList]
    hosted.host.on_chain(a_view(state), [], is_whole=True)
    assert hosted.host.counts.opened == 1, "the same facts change nothing"
    terms = replace(an_order().terms, max_price_uusd=2_999_999)
    changed = a_state(an_order(terms=terms))
    hosted.host.on_chain(a_view(changed), [], is_whole=True)
    assert (hosted.host.counts.opened, hosted.host.open_count) == (2, 1)
    assert hosted.signed.of_match(ORDER_ID, 0)[:1] == before
    scene.clock.advance(2.0)
    lists = [each for each in hosted.signed.of_match(ORDER_ID, 0) if isinstance(each, SignedCommitList)]
    assert lists == before


async def test_after_a_restart_the_same_list_is_sent_again(scene: HostScene) -> None:
    hosted = scene.add()
    state = open_order(hosted)
    assert commit(hosted, 0) == 0
    scene.clock.advance(0.9)
    (stored,) = hosted.signed.of_match(ORDER_ID, 0)
    hosted.host.close()
    hosted.signed.close()
    again = scene.add()
    again.host.on_chain(a_view(state), [], is_whole=True)
    assert decode_message(again.sent[0][1]) == stored
    assert commit(again, 1) == MessageRefusal.LATE


async def test_who_voted_keeps_the_book_over_a_restart_and_the_end_of_the_match(scene: HostScene) -> None:
    """All go down before the certificate is on chain, and never hear of the proposal again."""
    hosts, state = scene.network(), a_state(an_order())
    certify(scene, hosts, state)
    task = hosts[0].submitted[0].task
    hosts[0].host.close()
    hosts[0].signed.close()
    scene.deliver = None
    again = scene.add()
    again.host.on_chain(a_view(state), [], is_whole=True)
    state.orders[ID] = replace(state.orders[ID], state=OrderState.MATCHED)
    again.host.on_chain(a_view(state), [an_event("MatchAccepted", signers=[])], is_whole=False)
    for body in (again.host.record(ID, 0), again.records.read(ID, 0)):
        assert body is not None
        assert task in [each.task for each in read_record(msgspec.json.decode(body)).proposals]


async def test_a_record_that_cannot_be_read_keeps_no_match_from_going_on(scene: HostScene) -> None:
    hosted = scene.add()
    state = open_order(hosted)
    scene.clock.advance(0.9)
    hosted.records.save(ID, 0, b"{", kept_until=0, now=0)
    hosted.host.close()
    hosted.signed.close()
    again = scene.add()
    again.host.on_chain(a_view(state), [], is_whole=True)
    assert again.host.open_count == 1


async def test_a_second_signature_for_a_slot_is_never_sent(scene: HostScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state machine that forgot what it signed: the file remembers."""
    hosted = scene.add()
    other = SignedCommitList(CommitList(ORDER_ID, 0, (b"\x09" * 32,)), b"\1" * 65, ())
    hosted.signed.append([other], at=1)
    monkeypatch.setattr(SignedFile, "of_match", lambda *_: [])
    open_order(hosted)
    scene.clock.advance(3.0)
    assert not [body for _, body in hosted.sent if isinstance(decode_message(body), SignedCommitList)]
    assert (hosted.host.open_count, hosted.failures) == (0, [])


async def test_a_disk_that_fails_stops_the_validator_before_anything_is_sent(
    scene: HostScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = scene.add()
    open_order(hosted)
    before = len(hosted.sent)

    def fails(_file: SignedFile, _records: list[StoredRecord], *, at: int) -> None:
        raise SignedFileFailed(f"full at {at}")

    monkeypatch.setattr(SignedFile, "append", fails)
    with pytest.raises(SignedFileFailed):
        scene.clock.advance(1.0)
    assert len(hosted.failures) == 1
    sent = [decode_message(body) for _, body in hosted.sent[before:]]
    assert not [message for message in sent if isinstance(message, SignedCommitList)]


# progress


async def test_progress_comes_when_something_has_changed(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    first = await hosted.host.progress(ID, 0, have=0, wait_s=0)
    assert first is not None
    assert (first.phase, first.commit_lists, first.run_id) == ("commit", [], "run")
    waiting = asyncio.create_task(hosted.host.progress(ID, 0, have=first.version, wait_s=5.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    scene.clock.advance(0.9)
    second = await waiting
    assert second is not None
    assert second.version > first.version
    assert (second.phase, len(second.commit_lists)) == ("reveal", 1)


async def test_progress_without_a_change_comes_when_its_time_is_over(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    first = await hosted.host.progress(ID, 0, have=0, wait_s=0)
    assert first is not None
    waiting = asyncio.create_task(hosted.host.progress(ID, 0, have=first.version, wait_s=0.01))
    await asyncio.sleep(0)
    scene.clock.advance(0.01)
    assert await waiting == first
    assert await hosted.host.progress(ID, 1, have=0, wait_s=5.0) is None


async def test_who_was_refused_is_told(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted, a_state(an_order(), bond_uusd=1))
    assert commit(hosted, 0) == MessageRefusal.UNBONDED
    progress = await hosted.host.progress(ID, 0, have=0, wait_s=0)
    assert progress is not None
    assert [(each.provider, each.code) for each in progress.refused] == [(PROVIDERS[0], MessageRefusal.UNBONDED)]


async def test_bids_are_not_in_a_record_before_the_reveal_list_is_signed(scene: HostScene) -> None:
    hosted = scene.add()
    open_order(hosted)
    commit(hosted, 0)
    body = hosted.host.record(ID, 0)
    assert body is not None
    record = read_record(msgspec.json.decode(body))
    assert (len(record.commits), record.reveals) == (1, ())
    assert hosted.host.record("0x" + "00" * 32, 0) is None


async def test_a_vote_whose_record_cannot_be_written_does_not_leave(
    scene: HostScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = scene.network()

    def fails(path: Path, data: bytes) -> None:
        if path.is_relative_to(scene.folder / "v0"):
            raise OSError(28, "No space left on device")
        write_private(path, data)

    monkeypatch.setattr(record_files, "write_private", fails)
    with pytest.raises(SignedFileFailed, match="No space left"):
        certify(scene, hosts, a_state(an_order()))
    assert len(hosts[0].failures) == 1
    messages = [decode_message(body) for _, body in hosts[0].sent]
    assert not [message for message in messages if isinstance(message, SignedVote | Proposal)]


async def test_rounds_after_the_certified_one_are_not_missed(scene: HostScene) -> None:
    hosts = scene.network()
    certify(scene, hosts, a_state(an_order()))
    hosted = hosts[0]
    hosted.host._open[ID, 0].match._rounds.current = 5  # they run on until the chain has the certificate
    matched = a_state(an_order(state=OrderState.MATCHED))
    hosted.host.on_chain(a_view(matched), [an_event("OrderMatched")], is_whole=False)
    assert hosted.host.counts.rounds_missed == 0
