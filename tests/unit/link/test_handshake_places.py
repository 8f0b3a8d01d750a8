"""Who may be in the handshake at once, and who has to go when the places are full."""

from __future__ import annotations

import pytest

from sparewatt.link import handshake_places
from sparewatt.link.handshake_places import KNOWN_PLACES, HandshakePlace, HandshakePlaces, HandshakeStage

ATTIC, CROWD, ELSEWHERE = "192.0.2.1", "198.51.100.7", "203.0.113.9"


class Door:
    """Places, a clock, and who was evicted."""

    def __init__(self, size: int) -> None:
        self.places = HandshakePlaces(size)
        self.now_s = 0.0
        self.evicted: list[str] = []

    def enter(self, name: str, address: str) -> HandshakePlace | None:
        self.now_s += 1.0
        return self.places.enter(address, now_s=self.now_s, evict=lambda: self.evicted.append(name))

    def take(self, name: str, address: str) -> HandshakePlace:
        place = self.enter(name, address)
        assert place is not None
        return place

    def fill(self, address: str, count: int, *, prefix: str = "s") -> list[HandshakePlace]:
        return [self.take(f"{prefix}{number}", address) for number in range(count)]


def test_while_there_is_room_many_nodes_behind_one_address_are_fine() -> None:
    door = Door(10)
    door.fill(ATTIC, 10)
    assert (len(door.places), door.evicted) == (10, [])


def test_when_the_places_are_full_the_oldest_silent_one_of_the_largest_address_goes() -> None:
    door = Door(5)
    door.take("early", ATTIC)
    door.fill(CROWD, 4)
    door.take("late", ELSEWHERE)
    assert door.evicted == ["s0"]
    assert len(door.places) == 5


def test_a_crowd_that_knocks_again_only_evicts_its_own() -> None:
    door = Door(5)
    door.take("honest", ATTIC)
    door.fill(CROWD, 4)
    door.fill(CROWD, 100, prefix="again")
    assert "honest" not in door.evicted
    assert door.evicted[:5] == ["s0", "s1", "s2", "s3", "again0"]


def test_at_one_address_who_has_said_something_stays_before_who_has_not() -> None:
    door = Door(3)
    speaking = door.take("speaking", CROWD)
    door.places.hear(speaking, is_known=True, now_s=door.now_s)
    door.fill(CROWD, 2)
    door.fill(CROWD, 2, prefix="more")
    assert door.evicted == ["s0", "s1"]


def test_a_node_that_is_registered_stays_before_a_stranger() -> None:
    door = Door(2)
    known, stranger = door.take("known", CROWD), door.take("stranger", CROWD)
    door.places.hear(known, is_known=True, now_s=door.now_s)
    door.places.hear(stranger, is_known=False, now_s=door.now_s)
    door.take("next", CROWD)
    assert (door.evicted, known.stage) == (["stranger"], HandshakeStage.KNOWN)


def test_being_heard_makes_a_socket_young_again() -> None:
    door = Door(2)
    first, second = door.take("first", CROWD), door.take("second", CROWD)
    door.places.hear(second, is_known=False, now_s=10.0)
    door.places.hear(first, is_known=False, now_s=11.0)
    door.take("next", CROWD)
    assert door.evicted == ["second"]


def test_claims_to_be_registered_nodes_take_no_place_from_a_silent_newcomer_elsewhere() -> None:
    """Addresses of nodes are public, so to claim one costs nothing."""
    door = Door(4)
    for place in door.fill(CROWD, 4):
        door.places.hear(place, is_known=True, now_s=door.now_s)
    door.take("honest", ATTIC)
    door.fill(CROWD, 4, prefix="again")
    assert "honest" not in door.evicted


def test_an_address_from_which_a_node_has_joined_comes_back_first() -> None:
    door = Door(6)
    door.places.note_joined(ATTIC)
    door.fill(ATTIC, 3, prefix="back")
    for number in range(20):
        door.take(f"bot{number}", f"203.0.113.{number}")  # as many addresses as sockets
    assert not [name for name in door.evicted if name.startswith("back")]


def test_a_known_address_does_not_hold_more_than_its_first_places_for_free() -> None:
    door = Door(KNOWN_PLACES + 5)
    door.places.note_joined(CROWD)
    door.fill(CROWD, KNOWN_PLACES + 5)
    door.take("honest", ATTIC)
    assert door.evicted == ["s0"]


def test_who_has_signed_is_not_evicted_for_a_newcomer_of_no_smaller_share() -> None:
    door = Door(2)
    for place, account in zip(door.fill(ATTIC, 2), ("acc_1", "acc_2"), strict=True):
        door.places.prove(place, account=account, now_s=door.now_s)
    assert door.enter("next", ATTIC) is None
    assert (door.evicted, len(door.places)) == ([], 2)


def test_an_account_whose_handshakes_fill_the_places_gives_one_up() -> None:
    door = Door(4)
    for number in range(4):
        place = door.take(f"s{number}", f"203.0.113.{number}")
        door.places.prove(place, account="acc_crowd", now_s=door.now_s)
    door.take("honest", ATTIC)
    assert door.evicted == ["s0"]


def test_a_refused_newcomer_leaves_no_trace() -> None:
    door = Door(1)
    door.places.prove(door.take("in", ATTIC), account=None, now_s=1.0)
    for _ in range(50):
        assert door.enter("out", CROWD) is None
    assert not door.places._by_address[CROWD]


def test_who_leaves_makes_room_and_nothing_is_kept_of_it() -> None:
    door = Door(1)
    place = door.take("first", ATTIC)
    door.places.prove(place, account="acc_1", now_s=1.0)
    door.places.leave(place)
    door.places.leave(place)
    door.take("second", CROWD)
    assert door.evicted == []
    assert (dict(door.places._by_address), dict(door.places._by_account)) == ({CROWD: 1}, {})


def test_one_that_was_evicted_may_still_leave_and_prove_without_harm() -> None:
    door = Door(1)
    gone = door.take("gone", CROWD)
    door.take("here", CROWD)
    door.places.prove(gone, account="acc_1", now_s=3.0)
    door.places.leave(gone)
    assert (len(door.places), dict(door.places._by_account)) == (1, {})


def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_places, "ADDRESSES_REMEMBERED_MAX", 2)
    places = HandshakePlaces()
    for address in (ATTIC, CROWD, ATTIC, ELSEWHERE):
        places.note_joined(address)
    assert list(places._joined_from) == [ATTIC, ELSEWHERE]
