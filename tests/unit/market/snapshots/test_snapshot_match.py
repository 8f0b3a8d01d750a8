"""Validators agree on the table of an epoch, and post it."""

from __future__ import annotations

from itertools import pairwise

from sparewatt.market.snapshots.books import is_book_of
from sparewatt.market.snapshots.model import SnapshotCertificate
from sparewatt.protocol.contracts.match import Observations
from sparewatt.trust.lease_record import NEWCOMER_REPUTATION_PPM, NEWCOMER_UPTIME_PPM
from tests.unit.market.snapshots.snapshot_network import (
    ALICE,
    BOB,
    SPACING_S,
    SnapshotNetwork,
    provider_facts,
    seen,
)


def table(network: SnapshotNetwork, member: int = 0) -> dict[str, tuple[int, int]]:
    match = network.members[member].match
    assert match is not None
    assert match.newest_book is not None
    return {row.provider: (row.uptime_ppm, row.reputation_ppm) for row in match.newest_book.table.rows}


def settled(network: SnapshotNetwork) -> None:
    """Everyone has seen what was posted."""
    network.run(50)


def test_the_first_epoch_is_posted_as_soon_as_a_quorum_is_up() -> None:
    network = SnapshotNetwork()
    network.start(*network.members[:2])
    assert not network.run_until_posted(1, ms=5_000)
    network.start(network.members[2])
    assert network.run_until_posted(1, ms=500)
    settled(network)
    assert table(network) == {ALICE: (990_000, 500_000)}


def test_an_empty_network_has_an_empty_table() -> None:
    network = SnapshotNetwork()
    network.providers = ()
    network.start()
    assert network.run_until_posted(1)
    assert (int(network.posted[0].root, 16), network.posted[0].count) == (0, 0)


def test_whoever_was_not_heard_stands_with_the_newcomers_prior() -> None:
    network = SnapshotNetwork(providers=(provider_facts(ALICE), provider_facts(BOB)))
    network.start()
    network.run_until_posted(1)
    settled(network)
    assert table(network)[BOB] == (NEWCOMER_UPTIME_PPM, NEWCOMER_REPUTATION_PPM)


def test_all_validators_hold_the_same_book_and_it_is_the_one_posted() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    settled(network)
    books = {member.match.newest_book for member in network.members if member.match is not None}
    assert len(books) == 1
    (book,) = books
    assert book is not None
    assert is_book_of(book, network.posted[0])


def test_a_provider_that_comes_makes_an_epoch_when_the_spacing_is_over() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    network.run(2_000)
    network.mine(providers=(provider_facts(ALICE), provider_facts(BOB)))
    assert not network.run_until_posted(2, ms=(SPACING_S - 3) * 1_000)
    assert network.run_until_posted(2, ms=4_000)
    settled(network)
    assert set(table(network)) == {ALICE, BOB}
    assert network.posted[1].posted_at - network.posted[0].posted_at >= SPACING_S


def test_a_provider_that_goes_leaves_the_table() -> None:
    network = SnapshotNetwork(providers=(provider_facts(ALICE), provider_facts(BOB)))
    network.start()
    network.run_until_posted(1)
    network.mine(providers=(provider_facts(BOB),))
    network.run_until_posted(2)
    settled(network)
    assert set(table(network)) == {BOB}


def test_a_number_that_moves_by_less_than_a_percent_makes_no_epoch_before_a_day_is_over() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    for member in network.members:
        member.rows = (seen(uptime_ppm=980_001),)
    assert not network.run_until_posted(2, ms=8 * SPACING_S * 1_000)
    network.now_ms += 86_400_000
    assert network.run_until_posted(2, ms=3_000)


def test_a_percent_waits_for_six_spacings_and_ten_percent_for_one() -> None:
    for uptime_ppm, spacings in ((980_000, 6), (890_000, 1)):
        network = SnapshotNetwork()
        network.start()
        network.run_until_posted(1)
        for member in network.members:
            member.rows = (seen(uptime_ppm=uptime_ppm),)
        assert network.run_until_posted(2, ms=10 * SPACING_S * 1_000)
        waited_s = network.posted[1].posted_at - network.posted[0].posted_at
        assert spacings * SPACING_S <= waited_s <= spacings * SPACING_S + 3


def test_one_validator_alone_makes_no_epochs_by_what_it_says_it_sees() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    network.members[0].rows = (seen(uptime_ppm=1),)
    assert not network.run_until_posted(2, ms=8 * SPACING_S * 1_000)
    published = [e for e in network.members[0].entries if isinstance(e.message, Observations)]
    assert len(published) == 2


def test_a_validator_that_sees_otherwise_for_good_wants_one_epoch_only() -> None:
    network = SnapshotNetwork()
    network.members[0].rows = (seen(uptime_ppm=1),)
    network.start()
    network.run_until_posted(1)
    network.run(8 * SPACING_S * 1_000)
    assert [record.epoch for record in network.posted] == [1]
    published = [e for e in network.members[0].entries if isinstance(e.message, Observations)]
    assert len(published) == 1


def test_when_more_than_a_third_want_an_epoch_the_others_publish_what_they_see_then() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    for member in network.members[:2]:
        member.rows = (seen(uptime_ppm=500_000),)
    assert network.run_until_posted(2, ms=2 * SPACING_S * 1_000)
    settled(network)
    assert table(network)[ALICE][0] == 500_000, "the lower median of two and two"


def test_epochs_follow_each_other_no_faster_than_the_spacing() -> None:
    network = SnapshotNetwork()
    network.start()
    for step in range(40):
        for member in network.members:
            member.rows = (seen(uptime_ppm=990_000 - 20_000 * step),)
        network.run(1_000)
    times = [record.posted_at for record in network.posted]
    assert len(times) >= 3
    assert all(later - earlier >= SPACING_S for earlier, later in pairwise(times))
    assert "TOO_EARLY" not in network.refused_posts


def test_nothing_is_sent_while_nothing_happens() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    network.run(2_000)
    before = network.sent
    network.run(60_000)
    assert network.sent == before


def test_the_posted_certificate_is_by_the_leader_and_others_do_not_repeat_it() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    settled(network)
    assert sum(member.posts for member in network.members) == 1


def test_if_the_leader_cannot_reach_the_chain_the_next_in_rank_posts() -> None:
    network = SnapshotNetwork()
    network.start()
    lost: list[int] = []
    post = network.post

    def first_is_lost(certificate: SnapshotCertificate) -> None:
        lost.append(network.now_ms)
        if len(lost) > 1:
            post(certificate)

    network.post = first_is_lost  # type: ignore[method-assign]
    assert network.run_until_posted(1, ms=1_000)
    assert 80 <= lost[1] - lost[0] <= 200, "one step of the ranks later"


def test_votes_count_by_the_weights_at_the_time_of_posting() -> None:
    """While the certificate is on its way the stakes change: it is made anew with those who weigh then."""
    network = SnapshotNetwork((10, 10, 10, 10))
    network.start(*network.members[:3])
    network.weights[network.members[3].address] = 16
    network.mine()
    assert not network.run_until_posted(1, ms=5_000), "30 of 46 is no quorum"
    network.weights[network.members[3].address] = 14
    network.mine()
    assert network.run_until_posted(1, ms=10_000), "30 of 44 is one"


def test_a_validator_without_weight_signs_nothing_and_learns_the_table() -> None:
    network = SnapshotNetwork((1, 1, 1, 0))
    network.start()
    network.run_until_posted(1)
    network.run(1_000)
    stranger = network.members[3]
    assert stranger.entries == []
    assert table(network, 3) == table(network, 0)


def test_a_validator_that_comes_later_fetches_the_book_and_takes_part() -> None:
    network = SnapshotNetwork()
    late = network.members[3]
    network.start(*network.members[:3])
    network.run_until_posted(1)
    network.run(1_000)
    network.start(late)
    network.run(1_000)
    assert table(network, 3) == table(network, 0)
    network.mine(providers=(provider_facts(BOB),))
    network.run_until_posted(2)
    settled(network)
    assert any(entry.message.epoch == 2 for entry in late.entries)


def test_an_epoch_that_a_reorg_takes_back_is_posted_again_and_nothing_is_signed_twice() -> None:
    network = SnapshotNetwork()
    network.start()
    network.run_until_posted(1)
    settled(network)
    first = network.posted.pop()
    network.mine()
    assert network.run_until_posted(1, ms=5_000)
    assert network.posted[0].root == first.root
    for member in network.members:
        signed = [(entry.message.epoch, getattr(entry.message, "round", None)) for entry in member.entries]
        assert len(signed) == len(set(signed))
