"""Events become orders, leases, providers and stakes, one at a time."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sparewatt.evm.contract_abi import shipped_abis
from sparewatt.market import event_fold
from sparewatt.market.chain_records import (
    BondRecord,
    LeaseState,
    MarketState,
    OrderState,
    RegisteredClaims,
    RegistryStatus,
    VoteWeight,
    WeightChange,
)
from sparewatt.market.event_fold import EVENT_NAMES, UnreadableEvent, apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import NO_PROVIDER, Task
from sparewatt.protocol.contracts.reasons import OrderOutcome
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.market.market_events import (
    ALICE,
    BLOCK_S,
    BOB,
    CAROL,
    HASH,
    NEW_NODE_KEY,
    NEW_VOTE_KEY,
    NODE_KEY,
    OPERATOR,
    ORDER,
    OTHER_OPERATOR,
    OTHER_ORDER,
    OTHER_VOTE_KEY,
    RENTER,
    START_S,
    TERMS,
    VOTE_KEY,
    ZERO,
    a_life,
    accepted,
    an_event,
    confirmed,
    created,
    deposited,
    handed_over,
    in_blocks,
    lookup,
    no_match,
    of_lease,
    registered,
    settled,
    snapshot,
    stream_started,
    validator,
    weighed,
)


def folded(*events: ChainEvent) -> MarketState:
    state = MarketState()
    for event in in_blocks(events):
        apply_event(state, event)
    return state


def at(block: int) -> int:
    return START_S + BLOCK_S * block


PLACED = (lookup(), deposited(), accepted(), created())
RUNNING = (*PLACED, confirmed(), stream_started())

# Orders


def test_a_lookup_opens_an_order_with_the_renters_terms() -> None:
    order = folded(lookup()).orders[ORDER]
    assert (order.state, order.renter, order.attempt) == (OrderState.OPEN, RENTER, 0)
    assert order.terms == TERMS
    assert (order.stake_version, order.snapshot_epoch, order.spec_hash) == (2, 1, HASH)
    assert (order.expires_at, order.max_attempts) == (START_S + 86_400, 3)
    assert (order.created_at, order.opened_at) == (at(1), {0: at(1)})


def test_a_new_attempt_keeps_when_each_was_opened_and_who_failed() -> None:
    skipped = an_event("deployment_order.CandidateSkipped", order_id=ORDER, provider=CAROL, suspended=False)
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=99)
    state = folded(lookup(), skipped, unmatched)
    assert (state.orders[ORDER].state, state.orders[ORDER].reason) == (OrderState.UNMATCHED, 99)
    order = folded(lookup(), skipped, unmatched, lookup(attempt=1, stake_version=7)).orders[ORDER]
    assert (order.state, order.attempt, order.stake_version, order.reason) == (OrderState.OPEN, 1, 7, None)
    assert order.opened_at == {0: at(1), 1: at(4)}
    assert order.created_at == at(1)
    assert order.failed == {CAROL}


def test_a_suspended_candidate_may_bid_again() -> None:
    skipped = an_event("deployment_order.CandidateSkipped", order_id=ORDER, provider=CAROL, suspended=True)
    assert folded(lookup(), skipped).orders[ORDER].failed == frozenset()


def test_only_the_newest_openings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "ATTEMPTS_KEPT", 3)
    order = folded(*(lookup(attempt=attempt) for attempt in range(6))).orders[ORDER]
    assert list(order.opened_at) == [3, 4, 5]


def test_a_certificate_keeps_the_record_that_later_calls_present() -> None:
    certificate = folded(lookup(), accepted()).orders[ORDER].certificate
    assert certificate is not None
    word = bytes.fromhex(HASH[2:])
    task = Task(bytes.fromhex(ORDER[2:]), 0, word, 1, word, 2, word, 5, 0, 1, 0xFFFF)
    assert certificate.record.task_hash == struct_hash(task)
    assert [award.provider for award in certificate.record.chosen[:2]] == [ALICE, BOB]
    assert (certificate.bid_count, certificate.signers) == (5, (VOTE_KEY, OTHER_VOTE_KEY))
    assert (certificate.accepted_at, certificate.has_winner) == (at(2), True)


def test_a_certificate_that_nobody_was_eligible_names_no_provider() -> None:
    order = folded(lookup(), no_match()).orders[ORDER]
    assert order.certificate is not None
    assert {award.provider for award in order.certificate.record.chosen} == {NO_PROVIDER}
    assert not order.certificate.has_winner
    assert (order.certificate.bid_count, order.certificate.signers) == (5, (VOTE_KEY,))
    assert order.state is OrderState.OPEN, "the order's own event moves it"
    assert folded(lookup(), no_match(), lookup(attempt=1)).orders[ORDER].certificate is None


@pytest.mark.parametrize(
    ("reason", "bids", "outcome"),
    [(97, 0, "NO_BIDS"), (97, 5, "NONE_ELIGIBLE"), (98, 0, "NO_QUORUM"), (99, 5, "NONE_PLACEABLE")],
)
def test_an_unmatched_order_says_whether_anybody_bid(reason: int, bids: int, outcome: str) -> None:
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=reason)
    order = folded(lookup(), no_match(bid_count=bids), unmatched).orders[ORDER]
    assert order.outcome == OrderOutcome[outcome]
    assert folded(lookup()).orders[ORDER].outcome is None


def test_a_new_attempt_has_no_certificate() -> None:
    assert folded(lookup(), accepted(), lookup(attempt=1)).orders[ORDER].certificate is None


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (an_event("deployment_order.OrderCancelled", order_id=ORDER), OrderState.CLOSED),
        (an_event("deployment_order.AttemptExpired", order_id=ORDER, attempt=0, final=True), OrderState.EXPIRED),
        (an_event("deployment_order.AttemptExpired", order_id=ORDER, attempt=0, final=False), OrderState.OPEN),
    ],
)
def test_an_order_ends_once_it_is_cancelled_or_has_expired(event: ChainEvent, state: OrderState) -> None:
    found = folded(lookup(), event)
    assert found.orders[ORDER].state is state
    assert (ORDER in found.ended_orders) is (state is not OrderState.OPEN)


def test_a_cancelled_order_says_so_also_after_an_auction_that_nobody_won() -> None:
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=97)
    cancelled = an_event("deployment_order.OrderCancelled", order_id=ORDER)
    state = folded(lookup(), no_match(bid_count=0), unmatched, cancelled)
    assert state.orders[ORDER].outcome == OrderOutcome.CANCELLED
    assert folded(cancelled).orders == {}


def test_an_expired_order_stays_expired_when_its_lease_is_closed_with_it() -> None:
    unplaced = of_lease("LeaseUnplaced", expires_at=START_S + 5)
    expired = an_event("deployment_order.AttemptExpired", order_id=ORDER, attempt=0, final=True)
    state = folded(*PLACED, handed_over(), unplaced, expired, of_lease("LeaseClosed", reason=5))
    assert state.orders[ORDER].state is OrderState.EXPIRED
    assert (state.leases[ORDER].state, state.leases[ORDER].close_reason) == (LeaseState.CLOSED, 5)


def test_the_oldest_ended_orders_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "ENDED_ORDERS_KEPT", 2)
    ids = [f"0x{number:064x}" for number in range(4)]
    opened = [event for order_id in ids for event in (lookup(order_id), deposited(order_id))]
    ends = [an_event("deployment_order.OrderCancelled", order_id=order_id) for order_id in reversed(ids[:3])]
    state = folded(*opened, *ends, deposited(ids[2]), of_lease("LeasePaused", ids[2], reason=1))
    assert set(state.orders) == set(state.streams) == {ids[0], ids[1], ids[3]}
    assert list(state.ended_orders) == [ids[1], ids[0]]


# Leases


def test_a_placed_lease_waits_for_its_provider() -> None:
    state = folded(*PLACED)
    lease = state.leases[ORDER]
    assert state.orders[ORDER].state is OrderState.MATCHED
    assert (lease.state, lease.provider, lease.renter, lease.term) == (LeaseState.PENDING, ALICE, RENTER, 1)
    assert (lease.rate_uusd, lease.locked_uusd, lease.confirm_by) == (2_000_000, 2_000_000, START_S + 100)


def test_a_confirmed_lease_runs_and_pays_by_the_hour() -> None:
    state = folded(*RUNNING, settled(amount=10, deposit=4_999_990))
    lease, stream = state.leases[ORDER], state.streams[ORDER]
    assert (lease.state, lease.running_since, lease.details_hash) == (LeaseState.ACTIVE, at(5), HASH)
    assert (stream.rate_uusd, stream.since, stream.end_at) == (2_000_000, at(6), START_S + 3_700)
    assert (stream.deposit_uusd, stream.paid_uusd) == (4_999_990, 10)


def test_a_charge_before_the_start_lowers_the_deposit_and_starts_no_stream() -> None:
    stream = folded(*PLACED, settled(amount=10, deposit=4_999_990)).streams[ORDER]
    assert (stream.deposit_uusd, stream.paid_uusd, stream.rate_uusd) == (4_999_990, 0, 0)
    assert (stream.charged_uusd, stream.refunded_uusd) == (10, None)


def test_what_a_lease_cost_and_what_came_back_survives_pauses_and_its_end() -> None:
    stopped = an_event("escrow.StreamStopped", lease_id=ORDER)
    again = an_event("escrow.StreamStarted", lease_id=ORDER, payee=BOB, rate_uusd=1_000_000, end_at=START_S + 3_700)
    refunded = an_event("escrow.Refunded", lease_id=ORDER, payer=RENTER, amount=4_999_970)
    events = (settled(amount=10, deposit=4_999_990), stopped, again, settled(amount=20, deposit=4_999_970), stopped)
    stream = folded(*RUNNING, *events, of_lease("LeaseClosed", reason=1), refunded).streams[ORDER]
    assert (stream.deposit_uusd, stream.charged_uusd, stream.refunded_uusd) == (0, 30, 4_999_970)


def test_a_pause_and_a_resumption_are_noted_with_their_times() -> None:
    paused = (*RUNNING, of_lease("LeasePaused", reason=4), an_event("escrow.StreamStopped", lease_id=ORDER))
    state = folded(*paused)
    lease = state.leases[ORDER]
    assert (lease.state, lease.pause_reason, lease.paused_at) == (LeaseState.PAUSED, 4, at(7))
    assert state.streams[ORDER].rate_uusd == 0
    lease = folded(*paused, of_lease("LeaseResumed", confirm_by=77)).leases[ORDER]
    assert (lease.state, lease.resumed, lease.confirm_by) == (LeaseState.PENDING, True, 77)


def test_a_handed_over_lease_is_vacant_and_its_leaver_is_out_if_it_paid() -> None:
    notice = of_lease("ReclaimNoticed", may_close_at=START_S + 99)
    state = folded(*RUNNING, notice, handed_over(reason=17))
    lease = state.leases[ORDER]
    assert (lease.state, lease.provider, lease.locked_uusd) == (LeaseState.VACANT, None, 0)
    assert (lease.vacated_at, lease.confirm_by, lease.hand_over_reason) == (at(8), START_S + 200, 17)
    assert (lease.notice_at, lease.may_close_at) == (0, 0)
    assert state.orders[ORDER].failed == {ALICE}
    assert folded(*RUNNING, handed_over(compensation=0)).orders[ORDER].failed == frozenset()


def test_a_stand_in_has_the_lease_for_its_own_term() -> None:
    state = folded(*PLACED, handed_over(), created(provider=BOB, term=2, position=1))
    lease = state.leases[ORDER]
    assert (lease.state, lease.provider, lease.term, lease.position) == (LeaseState.PENDING, BOB, 2, 1)
    assert (lease.created_at, lease.hand_over_reason) == (at(4), 16)


def test_a_lease_without_a_candidate_waits_with_its_order_for_a_new_auction() -> None:
    unmatched = an_event("deployment_order.OrderUnmatched", order_id=ORDER, attempt=0, reason=99)
    state = folded(*PLACED, handed_over(), of_lease("LeaseUnplaced", expires_at=START_S + 700), unmatched)
    assert state.leases[ORDER].state is LeaseState.UNPLACED
    assert (state.orders[ORDER].state, state.orders[ORDER].expires_at) == (OrderState.UNMATCHED, START_S + 700)


def test_an_update_changes_price_specification_and_the_start_of_its_time() -> None:
    update = an_event(
        "lease_moves.LeaseUpdated", lease_id=ORDER, spec_hash=ZERO, rate_uusd=1_500_000, duration_s=99, seq=4
    )
    state = folded(*RUNNING, update)
    assert state.orders[ORDER].spec_hash == ZERO
    assert (state.leases[ORDER].rate_uusd, state.leases[ORDER].update_seq) == (1_500_000, 4)
    assert state.leases[ORDER].running_since == at(7)


def test_a_closed_lease_closes_its_order_and_gives_its_reason() -> None:
    refunded = an_event("escrow.Refunded", lease_id=ORDER, payer=RENTER, amount=1)
    state = folded(*RUNNING, of_lease("LeaseClosed", reason=2), refunded)
    lease = state.leases[ORDER]
    assert (lease.state, lease.close_reason, lease.closed_at) == (LeaseState.CLOSED, 2, at(7))
    assert state.orders[ORDER].state is OrderState.CLOSED
    assert state.streams[ORDER].deposit_uusd == 0


# Providers


def test_a_provider_has_its_claims_status_key_and_bond() -> None:
    state = folded(*registered())
    provider = state.providers[ALICE]
    assert (provider.status, provider.status_reason) == (RegistryStatus.ACTIVE, None)
    assert provider.claims is not None
    assert (provider.claims.gpu_model, provider.claims.vram_gb, provider.claims.gpu_units) == (3, 24, 2)
    assert provider.claims.metadata_hash == HASH
    assert provider.node_key == NODE_KEY
    assert state.bonds[ALICE] == BondRecord(free_uusd=5, locked_uusd=0, unbonding_uusd=1)


def test_the_claims_have_the_members_of_the_contract_in_its_order() -> None:
    """The fold takes them by position."""
    (event,) = [entry for entry in shipped_abis()["provider_registry"].abi if entry.name == "ClaimsChanged"]
    (claims,) = [param for param in event.inputs if param.name == "claims"]
    assert [member.name for member in claims.components] == [field.name for field in fields(RegisteredClaims)]


def test_a_suspension_keeps_its_reason() -> None:
    suspended = an_event("provider_registry.StatusChanged", provider=ALICE, status=4, reason=HASH)
    provider = folded(*registered(), suspended).providers[ALICE]
    assert (provider.status, provider.status_reason) == (RegistryStatus.SUSPENDED, HASH)


def test_a_new_node_key_counts_for_orders_opened_after_it() -> None:
    """The cheapest way out of a bid would be a new key before its certificate is accepted."""
    changed = an_event("provider_registry.NodeKeyChanged", provider=ALICE, node_key=NEW_NODE_KEY)
    provider = folded(*registered(), changed).providers[ALICE]
    assert provider.node_key == NEW_NODE_KEY
    assert [provider.node_key_at(at(block)) for block in (1, 2, 6, 7)] == [None, NODE_KEY, NODE_KEY, NEW_NODE_KEY]


def test_only_the_newest_node_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "NODE_KEYS_KEPT", 2)
    keys = [f"0x{number:040x}" for number in range(5)]
    changes = [an_event("provider_registry.NodeKeyChanged", provider=ALICE, node_key=key) for key in keys]
    assert [change.node_key for change in folded(*changes).providers[ALICE].node_keys] == keys[-2:]


def test_who_registers_again_keeps_its_keys_and_attestations() -> None:
    attested = an_event("provider_registry.Attested", provider=ALICE, auditor=CAROL, topic=1, detail=HASH, expires_at=9)
    left = an_event("provider_registry.StatusChanged", provider=ALICE, status=5, reason=ZERO)
    again = an_event("provider_registry.ProviderRegistered", provider=ALICE)
    provider = folded(*registered(), attested, left, again).providers[ALICE]
    assert (provider.status, provider.node_key) == (RegistryStatus.REGISTERED, NODE_KEY)
    assert provider.attestations[(CAROL, 1)].expires_at == 9


# Stakes


TWO_VALIDATORS = (
    validator(),
    validator(OTHER_OPERATOR, OTHER_VOTE_KEY, "https://w.example"),
    weighed(VOTE_KEY, version=1, weight=9, total=9),
    weighed(OTHER_VOTE_KEY, version=2, weight=4, total=13, operator=OTHER_OPERATOR),
)


def test_every_version_of_the_stakes_stays_what_it_was() -> None:
    replaced = (
        weighed(VOTE_KEY, version=3, weight=0, total=4),
        weighed(NEW_VOTE_KEY, version=3, weight=9, total=13),
    )
    state = folded(*TWO_VALIDATORS, *replaced)
    assert state.stake_version == 3
    assert [state.total_at(version) for version in range(4)] == [0, 9, 13, 13]
    assert state.weights_at(0) == []
    assert state.weights_at(1) == [VoteWeight(VOTE_KEY, OPERATOR, 9, 0)]
    assert [(each.vote_key, each.weight) for each in state.weights_at(2)] == [(VOTE_KEY, 9), (OTHER_VOTE_KEY, 4)]
    assert [(each.vote_key, each.weight) for each in state.weights_at(3)] == [(OTHER_VOTE_KEY, 4), (NEW_VOTE_KEY, 9)]
    assert all(state.total_at(v) == sum(each.weight for each in state.weights_at(v)) for v in range(4))


def test_a_version_that_is_not_there_has_no_weights() -> None:
    with pytest.raises(KeyError):
        folded(*TWO_VALIDATORS).weights_at(3)


def test_old_versions_are_forgotten_and_history_indices_stay_those_of_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_fold, "STAKE_VERSIONS_KEPT", 2)
    state = folded(*(weighed(VOTE_KEY, version=version, weight=version, total=version) for version in range(1, 6)))
    assert list(state.totals) == [4, 5]
    assert state.histories[VOTE_KEY].changes == (WeightChange(4, 4), WeightChange(5, 5))
    assert state.weights_at(5) == [VoteWeight(VOTE_KEY, OPERATOR, 5, history_index=4)]
    assert state.weights_at(4) == [VoteWeight(VOTE_KEY, OPERATOR, 4, history_index=3)]
    with pytest.raises(KeyError):
        state.weights_at(3)


def test_certificates_with_and_without_a_winner_count_the_votes_of_their_stake_version() -> None:
    voting = folded(*TWO_VALIDATORS, lookup(), accepted(), no_match(OTHER_ORDER)).voting
    assert (voting[OPERATOR].votes, voting[OPERATOR].certificates) == (2, 2)
    assert (voting[OTHER_OPERATOR].votes, voting[OTHER_OPERATOR].certificates) == (1, 2)
    assert voting[OTHER_OPERATOR].last_vote_at == at(len(TWO_VALIDATORS) + 2)


def test_votes_of_a_forgotten_stake_version_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "STAKE_VERSIONS_KEPT", 1)
    newer = weighed(VOTE_KEY, version=9, weight=1, total=5)
    assert folded(*TWO_VALIDATORS, newer, accepted(), no_match()).voting == {}


def test_a_validator_has_its_url_its_stake_and_its_penalties() -> None:
    moved = an_event(
        "stake_registry.StakeMoved",
        operator=OPERATOR,
        stake=9,
        pending=2,
        pending_since=7,
        unbonding=1,
        ready_at=8,
    )
    slashed = an_event("stake_registry.Slashed", operator=OPERATOR, vote_key=VOTE_KEY, amount=3)
    before, after = folded(*TWO_VALIDATORS, moved), folded(*TWO_VALIDATORS, moved, slashed)
    found = before.validators[OPERATOR]
    assert (found.url, found.vote_key, found.is_jailed) == ("https://v.example", VOTE_KEY, False)
    assert (found.stake_uusd, found.pending_uusd, found.pending_since) == (9, 2, 7)
    assert (found.unbonding_uusd, found.ready_at) == (1, 8)
    assert after.validators[OPERATOR].is_jailed


def test_the_newest_snapshots_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "SNAPSHOTS_KEPT", 2)
    state = folded(*map(snapshot, range(1, 5)))
    assert list(state.snapshots) == [3, 4]
    assert state.latest_snapshot is not None
    assert (state.latest_snapshot.epoch, state.latest_snapshot.count) == (4, 3)
    assert MarketState().latest_snapshot is None


# The fold as a whole


def test_events_of_other_contracts_change_nothing() -> None:
    assert folded(an_event("token.Transfer", sender=ALICE, receiver=BOB, amount=1)) == MarketState()


def test_events_about_an_unknown_order_change_nothing() -> None:
    """A stranger's event of the same name needs our contract; an order that ended long ago is forgotten."""
    about = [event for event in a_life() if {"order_id", "lease_id"} & set(event.args)]
    events = [event for event in about if event.event != "PROVIDER_LOOKUP"]
    assert folded(*events) == MarketState()


def test_an_event_of_another_release_is_refused_by_name() -> None:
    event = lookup()
    args = {name: value for name, value in event.args.items() if name != "expires_at"}
    with pytest.raises(UnreadableEvent, match="PROVIDER_LOOKUP in block 1"):
        folded(an_event("deployment_order.PROVIDER_LOOKUP", **args))


def test_every_event_of_the_fold_is_in_the_contracts_with_these_arguments() -> None:
    """The events of these tests are those of the shipped ABIs, so a changed contract is noticed here."""
    shipped = {
        f"{contract}.{entry.name}": {param.name for param in entry.inputs}
        for contract, artifact in shipped_abis().items()
        for entry in artifact.abi
        if entry.type == "event"
    }
    assert set(EVENT_NAMES) - set(shipped) == set()
    tried = {f"{event.contract}.{event.event}": set(event.args) for event in a_life() if event.event != "Wired"}
    assert set(tried) == set(EVENT_NAMES)
    assert {name: args ^ shipped[name] for name, args in tried.items() if args != shipped[name]} == {}


def test_the_life_of_two_orders_ends_with_both_closed() -> None:
    state = folded(*a_life())
    assert {order.state for order in state.orders.values()} == {OrderState.CLOSED}
    assert list(state.ended_orders) == [OTHER_ORDER, ORDER]
    assert state.orders[ORDER].failed == {ALICE, CAROL}
    assert {stream.deposit_uusd for stream in state.streams.values()} == {0}
