"""What a validator publishes of each provider, and whose observations a table may use."""

from __future__ import annotations

from dataclasses import replace

from sparewatt.market.chain_records import MarketState, RegistryStatus
from sparewatt.market.snapshots.observations import by_signer, observations_of, signer_of
from sparewatt.protocol.contracts.match import Observations
from sparewatt.protocol.contracts.message_ranges import require_in_range
from sparewatt.protocol.contracts.snapshot_messages import SignedObservations
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.trust.lease_record import NEWCOMER_REPUTATION_PPM, EndedTerm, TermResult
from tests.unit.market.snapshots.snapshot_network import DOMAIN, KEYS, seen
from tests.unit.market.snapshots.test_heartbeats import ALICE, BOB, START_S, Listener, provider

WEIGHTS = {key.address.lower(): 1 for key in KEYS[:3]}


def test_a_row_has_uptime_by_heartbeats_and_reputation_by_leases() -> None:
    listener = Listener(provider(ALICE), provider(BOB))
    listener.live(20)
    failed = EndedTerm("renter", TermResult.DOWN, 0, 0, START_S)
    state = MarketState(providers={BOB: provider(BOB), ALICE: provider(ALICE)}, ended_terms={ALICE: (failed,)})
    alice, bob = observations_of(state, listener.book, unix_s=START_S)
    assert (alice.provider, alice.uptime_ppm, alice.zone) == (ALICE, 1_000_000, 255)
    assert alice.reputation_ppm < NEWCOMER_REPUTATION_PPM
    assert (bob.provider, bob.uptime_ppm, bob.reputation_ppm) == (BOB, 0, NEWCOMER_REPUTATION_PPM)
    require_in_range(Observations(1, 1, (alice, bob)))


def test_who_is_not_active_or_not_heard_long_enough_has_no_row() -> None:
    listener = Listener(provider(ALICE))
    state = MarketState(providers={ALICE: provider(ALICE)})
    assert observations_of(state, listener.book, unix_s=START_S) == ()
    listener.live(20)
    assert len(observations_of(state, listener.book, unix_s=START_S)) == 1
    paused = MarketState(providers={ALICE: provider(ALICE, status=RegistryStatus.MAINTENANCE)})
    assert observations_of(paused, listener.book, unix_s=START_S) == ()


def signed(key: SigningKey, *, epoch: int = 1, uptime_ppm: int = 990_000) -> SignedObservations:
    observations = Observations(epoch, 5, (seen(uptime_ppm=uptime_ppm),))
    return SignedObservations(observations, key.sign(message_digest(DOMAIN, observations)))


def test_observations_are_known_by_their_signer() -> None:
    published = by_signer([signed(KEYS[0]), signed(KEYS[1])], domain=DOMAIN, epoch=1, weights=WEIGHTS)
    assert published is not None
    assert set(published) == {KEYS[0].address, KEYS[1].address}


def test_one_that_does_not_belong_there_spoils_all() -> None:
    good = signed(KEYS[0])
    elsewhere = contract_domain(chain_id=1, contract="0x" + "aa" * 20)
    wrong = [
        signed(KEYS[0], uptime_ppm=1),
        signed(KEYS[4]),
        signed(KEYS[1], epoch=2),
        replace(signed(KEYS[1]), signature=bytes(65)),
        replace(signed(KEYS[1]), signature=KEYS[1].sign(message_digest(elsewhere, good.observations))),
    ]
    for each in wrong:
        assert by_signer([good, each], domain=DOMAIN, epoch=1, weights=WEIGHTS) is None


def test_bytes_that_nobody_signed_have_no_signer() -> None:
    assert signer_of(replace(signed(KEYS[0]), signature=bytes(65)), DOMAIN) is None
