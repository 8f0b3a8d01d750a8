"""What is held for exits, by the events that are seen and the requests that are not."""

from __future__ import annotations

from sparewatt.chain.money.exits import payable_micro, wanted_holds
from sparewatt.core.ids import AccountId
from sparewatt.store.exits import AskedExit, SeenExit

HER, HIS = "0x" + "a" * 40, "0x" + "b" * 40


def requested(address: str, micro: int, *, block: int = 5) -> SeenExit:
    return SeenExit(address, False, micro, 1_000, block)


def paid(address: str, micro: int, *, block: int) -> SeenExit:
    return SeenExit(address, True, micro, None, block)


def asked(address: str, micro: int) -> AskedExit:
    return AskedExit(AccountId("acc_ann"), address, micro)


def test_a_request_is_held_at_first_sight() -> None:
    assert wanted_holds([requested(HER, 7, block=99)], [], final_block=5) == ({HER: 7}, set())


def test_what_was_asked_of_the_network_is_held_before_the_chain_has_it() -> None:
    assert wanted_holds([], [asked(HER, 7)], final_block=5) == ({HER: 7}, set())


def test_of_two_the_larger_is_held_until_the_chain_has_the_newer() -> None:
    assert wanted_holds([requested(HER, 9)], [asked(HER, 7)], final_block=5) == ({HER: 9}, set())
    assert wanted_holds([requested(HER, 3)], [asked(HER, 7)], final_block=5) == ({HER: 7}, set())


def test_a_payment_keeps_its_hold_until_it_is_final() -> None:
    assert wanted_holds([paid(HER, 7, block=6)], [], final_block=5) == ({}, {HER})
    assert wanted_holds([paid(HER, 7, block=5)], [], final_block=5) == ({}, set())


def test_a_new_request_after_a_payment_is_held_anew() -> None:
    assert wanted_holds([paid(HER, 7, block=6)], [asked(HER, 2)], final_block=5) == ({HER: 2}, set())


def test_where_nothing_is_left_to_pay_nothing_is_held() -> None:
    seen = [requested(HER, 7), requested(HIS, 8)]
    assert wanted_holds(seen, [], final_block=5, hopeless=frozenset({HER})) == ({HIS: 8}, set())


def test_an_exit_pays_no_more_than_is_unspent_and_free() -> None:
    assert payable_micro(asked=10, unspent=8, free=9) == 8
    assert payable_micro(asked=10, unspent=12, free=9) == 9
    assert payable_micro(asked=10, unspent=12, free=0) == 0
