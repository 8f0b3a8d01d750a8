from __future__ import annotations

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.reservations import RESERVATIONS_MAX, Reservations, ReservationState

WHOLE = LeaseCapacity(gpus=2, cpu_milli=8_000, memory_mib=1_000, disk_mib=1_000)
ONE = LeaseCapacity(gpus=1, cpu_milli=1_000, memory_mib=100, disk_mib=100)
NOTHING = LeaseCapacity()


def key(number: int, attempt: int = 0) -> tuple[bytes, int]:
    return number.to_bytes(32, "big"), attempt


def test_a_gpu_is_promised_once() -> None:
    book = Reservations()
    assert [book.reserve(key(number), ONE, whole=WHOLE) for number in range(3)] == [True, True, False]
    assert book.reserved() == ONE.more(ONE)
    assert book.free(key(0))
    assert book.reserve(key(2), ONE, whole=WHOLE)


def test_the_scarcest_member_decides() -> None:
    book = Reservations()
    assert book.reserve(key(0), LeaseCapacity(memory_mib=901), whole=WHOLE)
    assert not book.reserve(key(1), ONE, whole=WHOLE)
    assert book.reserve(key(2), LeaseCapacity(gpus=2, memory_mib=99), whole=WHOLE)


def test_an_attempt_has_one_reservation() -> None:
    book = Reservations()
    assert book.reserve(key(0), ONE, whole=WHOLE)
    assert not book.reserve(key(0), ONE, whole=WHOLE)
    assert book.reserve(key(0, attempt=1), ONE, whole=WHOLE)


def test_freeing_twice_frees_once() -> None:
    book = Reservations()
    book.reserve(key(0), ONE, whole=WHOLE)
    assert book.free(key(0))
    assert not book.free(key(0))
    assert book.reserved() == NOTHING


def test_a_lease_is_held_although_it_was_given_up() -> None:
    book = Reservations()
    for number in range(2):
        book.reserve(key(number), ONE, whole=WHOLE)
    book.hold(key(9), ONE, term=4)
    held = book.get(key(9))
    assert held is not None
    assert (held.state, held.term) == (ReservationState.HELD, 4)
    assert book.reserved().gpus == 3
    book.free(key(0))
    assert not book.reserve(key(5), ONE, whole=WHOLE), "two are still promised"


def test_what_was_promised_before_a_restart_counts_whatever_is_offered_now() -> None:
    book = Reservations()
    book.restore(key(0), WHOLE, state=ReservationState.HELD, term=1)
    assert not book.reserve(key(1), ONE, whole=WHOLE)
    assert not book.reserve(key(1), ONE, whole=NOTHING)
    assert key(0) in book


def test_reservations_of_nothing_are_bounded() -> None:
    book = Reservations()
    made = [book.reserve(key(number), NOTHING, whole=WHOLE) for number in range(RESERVATIONS_MAX + 5)]
    assert made == [True] * RESERVATIONS_MAX + [False] * 5
