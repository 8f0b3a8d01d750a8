from __future__ import annotations

from contextlib import ExitStack

import pytest

from sparewatt.core.errors import RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.leasing.access import stream_places
from sparewatt.leasing.access.stream_places import STREAMS_PER_ACCOUNT, STREAMS_PER_LEASE, StreamPlaces

ME, OTHER = AccountId("acc_me"), AccountId("acc_other")


def test_a_lease_has_so_many_streams_and_another_lease_its_own() -> None:
    places = StreamPlaces()
    with ExitStack() as taken:
        for _ in range(STREAMS_PER_LEASE):
            taken.enter_context(places.taken(ME, "0x1"))
        with pytest.raises(RateLimited, match="one lease"), places.taken(ME, "0x1"):
            pass
        taken.enter_context(places.taken(ME, "0x2"))
    with places.taken(ME, "0x1"):
        pass  # all are free again


def test_an_account_has_so_many_over_all_its_leases_and_others_do_not_notice() -> None:
    places = StreamPlaces()
    with ExitStack() as taken:
        for number in range(STREAMS_PER_ACCOUNT):
            taken.enter_context(places.taken(ME, f"0x{number // 8}"))
        with pytest.raises(RateLimited, match="one account"), places.taken(ME, "0xff"):
            pass
        taken.enter_context(places.taken(OTHER, "0xee"))


def test_a_process_carries_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_places, "STREAMS_PER_PROCESS", 2)
    places = StreamPlaces()
    third = AccountId("acc_third")
    with places.taken(ME, "0x1"), places.taken(OTHER, "0x2"), pytest.raises(RateLimited, match="as many as it can"):
        places.taken(third, "0x3").__enter__()


def test_nothing_is_kept_of_streams_that_are_over() -> None:
    places = StreamPlaces()
    with pytest.raises(ValueError, match="boom"), places.taken(ME, "0x1"):
        raise ValueError("boom")
    assert not places._by_lease
    assert not places._by_account
