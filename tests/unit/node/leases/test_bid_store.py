from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sparewatt.node.leases import bid_store
from sparewatt.node.leases.bid_store import BidStore, StoredBid
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import BidPlan, LeaseRules, OrderedLease, decide
from sparewatt.node.leases.reservations import ReservationState
from sparewatt.protocol.contracts.message_json import write_message
from tests.unit.node.leases.lease_world import MACHINE, NOW_UNIX_S, RENTER, lookup, market, policy, specification


def stored(nonce: int = 0) -> StoredBid:
    order = OrderedLease(RENTER, policy(), specification(), "nginx")
    plan = decide(order, rules=LeaseRules(), machine=MACHINE, reserved=LeaseCapacity(), is_paused=False)
    assert isinstance(plan, BidPlan)
    return StoredBid(
        lookup=lookup(nonce=nonce),
        facts=market(),
        price_uusd=plan.price_uusd,
        terms=write_message(plan.terms),
        salt="0x" + "5a" * 32,
        seen_unix_s=NOW_UNIX_S,
    )


def test_a_bid_is_read_as_it_was_written(tmp_path: Path) -> None:
    bid = stored()
    BidStore(tmp_path).write(bid)
    assert BidStore(tmp_path).read_all(unix_s=NOW_UNIX_S) == [bid]
    assert (bid.policy(), bid.specification()) == (policy(), specification())


def test_a_bid_is_replaced_and_removed(tmp_path: Path) -> None:
    store, bid = BidStore(tmp_path), stored()
    store.write(bid)
    held = msgspec.structs.replace(bid, state=ReservationState.HELD, term=3)
    store.write(held)
    store.write(stored(1))
    assert {each.state for each in store.read_all(unix_s=NOW_UNIX_S)} == {
        ReservationState.HELD,
        ReservationState.BIDDING,
    }
    store.remove(bid.key)
    store.remove(bid.key)
    assert [each.lookup.renter_nonce for each in store.read_all(unix_s=NOW_UNIX_S)] == [1]


def test_nobody_else_can_read_a_salt(tmp_path: Path) -> None:
    BidStore(tmp_path).write(stored())
    (file,) = (tmp_path / "leases" / "bids").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o022 == 0


def test_what_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    store, bid = BidStore(tmp_path), stored()
    store.write(bid)
    folder = tmp_path / "leases" / "bids"
    (folder / "torn.json").write_bytes(msgspec.json.encode(bid)[:-9])
    (folder / "false.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(bid, terms={"gpus": 1})))
    (folder / "long.json").write_bytes(b" " * (bid_store.FILE_BYTES_MAX + 1))
    assert store.read_all(unix_s=NOW_UNIX_S) == [bid]
    assert len(list(folder.iterdir())) == 4


def test_an_empty_directory_has_no_bids(tmp_path: Path) -> None:
    assert BidStore(tmp_path).read_all(unix_s=NOW_UNIX_S) == []
    assert BidStore(tmp_path).read_receipts((bytes(32), 0)) == []


def test_receipts_of_the_newest_attempts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bid_store, "RECEIPTS_KEPT_MAX", 5)
    store = BidStore(tmp_path)
    for attempt in range(8):
        store.write_receipts((bytes(32), attempt), [{"attempt": attempt}])
    assert len(list((tmp_path / "leases" / "receipts").iterdir())) == 5
    assert store.read_receipts((bytes(32), 7)) == [{"attempt": 7}]
    assert store.read_receipts((bytes(32), 2)) == []


def test_receipts_beyond_all_bounds_are_not_written(tmp_path: Path) -> None:
    store = BidStore(tmp_path)
    store.write_receipts((bytes(32), 0), [{"list": "x" * bid_store.FILE_BYTES_MAX}])
    assert store.read_receipts((bytes(32), 0)) == []
