"""One machine's account: agents see each other's promises, bids lapse with their agent, leases do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.liveness import LAPSE_S
from sparewatt.node.leases.machine.machine_account import MachineAccount
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.node.leases.reservations import ReservationState
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer, LeaseLabel
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.leases.machine.agents import CARDS, HALF, MACHINE, address, agent, key

NOTHING = LeaseCapacity()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def dead(_pid: int, _started: float) -> bool:
    return False


def take(account: MachineAccount, number: int, capacity: LeaseCapacity = HALF) -> tuple[str, ...]:
    account.take(key(number), capacity, term=1, cards=CARDS, whole=MACHINE)
    return account.cards[key(number)]


def container_of(node: int, number: int) -> LeaseContainer:
    label = LeaseLabel(lease_id="0x" + key(number)[0].hex(), term=1, attempt=0, node=address(node))
    return LeaseContainer(container_id="c", label=label, state=ContainerState.EXITED)


def test_agents_of_one_machine_together_promise_what_it_has(tmp_path: Path, clock: ManualClock) -> None:
    first, second = agent(tmp_path, 1, clock), agent(tmp_path, 2, clock)
    assert first.reserve(key(1), HALF, whole=MACHINE)
    assert second.reserve(key(1), HALF, whole=MACHINE), "the same order, by another node"
    assert not first.reserve(key(2), HALF, whole=MACHINE)
    first.look()
    assert MACHINE.less(first.taken(MACHINE)) == NOTHING
    assert second.free(key(1))
    assert first.reserve(key(2), HALF, whole=MACHINE)


def test_an_owners_limit_is_beside_what_others_have(tmp_path: Path, clock: ManualClock) -> None:
    first, second = agent(tmp_path, 1, clock), agent(tmp_path, 2, clock)
    second.hold(key(1), HALF, term=1)
    first.look()
    quarter = LeaseCapacity(cpu_milli=2_000)
    assert first.taken(quarter) == NOTHING, "half of the machine is enough for what is offered"
    three_quarters = LeaseCapacity(cpu_milli=6_000)
    assert three_quarters.less(first.taken(three_quarters)) == LeaseCapacity(cpu_milli=4_000)


def test_more_than_the_usual_share_may_be_offered(tmp_path: Path, clock: ManualClock) -> None:
    more = MACHINE._replace(memory_mib=20_000)
    assert agent(tmp_path, 1, clock).reserve(key(1), more, whole=more)


def test_a_card_is_taken_once(tmp_path: Path, clock: ManualClock) -> None:
    first, second = agent(tmp_path, 1, clock), agent(tmp_path, 2, clock)
    assert take(first, 1) == ("0",)
    assert take(first, 1) == ("0",), "again is the same"
    assert take(second, 2) == ("1",)
    with pytest.raises(NoRoom):
        take(second, 3)
    assert first.free(key(1))
    assert take(second, 3) == ("0",)


def test_who_had_no_reservation_finds_only_what_is_free(tmp_path: Path, clock: ManualClock) -> None:
    first, second = agent(tmp_path, 1, clock), agent(tmp_path, 2, clock)
    first.hold(key(1), MACHINE._replace(gpus=0), term=1)
    with pytest.raises(NoRoom, match="other leases"):
        take(second, 2)
    assert not second.entries()


def test_bids_of_a_dead_agent_lapse_and_its_leases_stay(tmp_path: Path, clock: ManualClock) -> None:
    first = agent(tmp_path, 1, clock)
    assert first.reserve(key(1), LeaseCapacity(cpu_milli=1_000), whole=MACHINE)
    first.hold(key(2), LeaseCapacity(cpu_milli=2_000), term=1)
    other = agent(tmp_path, 2, clock, lives=dead)

    def taken() -> int:
        other.look()
        return other.taken(MACHINE).cpu_milli

    assert taken() == 3_000
    clock.advance(LAPSE_S)
    assert taken() == 3_000, "it may be restarting"
    clock.advance(1)
    assert taken() == 2_000
    again = agent(tmp_path, 1, clock)
    again.restore(key(1), LeaseCapacity(cpu_milli=1_000), state=ReservationState.BIDDING, term=0)
    again.restore(key(2), LeaseCapacity(cpu_milli=2_000), state=ReservationState.HELD, term=1)
    assert taken() == 3_000, "its own files know"


def test_a_silent_agent_whose_process_lives_keeps_its_bids(tmp_path: Path, clock: ManualClock) -> None:
    agent(tmp_path, 1, clock).reserve(key(1), HALF, whole=MACHINE)
    other = agent(tmp_path, 2, clock)
    clock.advance(10 * LAPSE_S)
    other.look()
    assert other.taken(MACHINE) == HALF, "as after the machine slept"


def test_a_sign_of_life_from_the_future_is_none(tmp_path: Path, clock: ManualClock) -> None:
    agent(tmp_path, 1, ManualClock(unix_s=clock.unix_s() + 10 * LAPSE_S)).reserve(key(1), HALF, whole=MACHINE)
    other = agent(tmp_path, 2, clock, lives=dead)
    other.look()
    assert other.taken(MACHINE) == NOTHING


def test_a_lease_of_a_dead_agent_is_gone_when_its_container_is(tmp_path: Path, clock: ManualClock) -> None:
    agent(tmp_path, 1, clock).hold(key(1), HALF, term=1)
    other = agent(tmp_path, 2, clock, lives=dead)
    other.look()
    other.note_containers([])
    assert not other.has_orphans(), "its agent lives"
    assert other.taken(MACHINE) == HALF
    clock.advance(LAPSE_S + 1)
    assert other.has_orphans()
    other.note_containers([container_of(1, 1)])
    assert other.taken(MACHINE) == HALF, "its container is there"
    other.note_containers([container_of(2, 1)])
    assert other.taken(MACHINE) == NOTHING
    assert not list(tmp_path.glob(f"{address(1)}*")), "nothing is left of that agent"


def test_who_uses_another_engine_cannot_say_that_a_lease_is_gone(tmp_path: Path, clock: ManualClock) -> None:
    agent(tmp_path, 1, clock).hold(key(1), HALF, term=1)
    other = agent(tmp_path, 2, clock, lives=dead, engine="docker")
    clock.advance(LAPSE_S + 1)
    other.look()
    assert not other.has_orphans()
    other.note_containers([])
    assert other.taken(MACHINE) == HALF


def test_a_corrupt_account_offers_nothing_and_keeps_what_runs(tmp_path: Path, clock: ManualClock) -> None:
    notices: list[str] = []
    own = agent(tmp_path, 1, clock, notify=notices.append)
    assert own.reserve(key(1), LeaseCapacity(cpu_milli=1_000), whole=MACHINE)
    strange = tmp_path / f"{address(7)}.json"
    strange.write_text("{")
    assert not own.reserve(key(2), HALF, whole=MACHINE)
    assert own.taken(MACHINE) == MACHINE
    assert str(strange) in notices[-1]
    own.take(key(1), LeaseCapacity(cpu_milli=1_000), term=1, cards=(), whole=MACHINE)
    assert own.cards[key(1)] == (), "what was promised before is kept"
    with pytest.raises(NoRoom):
        take(own, 3)
    strange.unlink()
    own.look()
    assert own.taken(MACHINE) == LeaseCapacity(cpu_milli=1_000)
    assert len(notices) == 2, "once each"
    other = agent(tmp_path, 2, clock)
    other.look()
    assert other.taken(MACHINE) == LeaseCapacity(cpu_milli=1_000), "and written down now"


def test_a_bid_that_could_not_be_written_is_not_made(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = agent(tmp_path, 1, clock)

    def full(_: Path, __: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        assert not own.reserve(key(1), HALF, whole=MACHINE)
    assert not own.entries()
    assert own.reserve(key(1), HALF, whole=MACHINE)


def test_a_folder_that_vanished_is_written_again(tmp_path: Path, clock: ManualClock) -> None:
    folder = tmp_path / "machine"
    own = agent(folder, 1, clock)
    own.hold(key(1), HALF, term=1)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    own.look()
    other = agent(folder, 2, clock)
    other.look()
    assert other.taken(MACHINE) == HALF


def test_a_node_without_leases_leaves_no_trace(tmp_path: Path, clock: ManualClock) -> None:
    offers = [False]
    own = agent(tmp_path / "machine", 1, clock, is_offering=lambda: offers[0])
    own.look()
    assert not (tmp_path / "machine").exists()
    offers[0] = True
    own.look()
    assert (tmp_path / "machine" / f"{address(1)}.json").exists()
    offers[0] = False
    own.look()
    assert not list((tmp_path / "machine").glob("0x*"))


def test_a_card_that_cannot_be_freed_is_not_offered(tmp_path: Path, clock: ManualClock) -> None:
    own = agent(tmp_path, 1, clock, leasable_gpus=lambda: 1)
    assert MACHINE.less(own.taken(MACHINE)).gpus == 1
    assert not own.reserve(key(1), LeaseCapacity(gpus=2), whole=MACHINE)
    assert own.reserve(key(1), LeaseCapacity(gpus=1), whole=MACHINE)


def test_others_see_on_which_cards_a_server_sits(tmp_path: Path, clock: ManualClock) -> None:
    agent(tmp_path, 1, clock, serving=lambda: ("1",)).look()
    other = agent(tmp_path, 2, clock, lives=dead)
    other.look()
    assert other.cards_served_by_others() == {"1"}
    clock.advance(LAPSE_S + 1)
    assert other.cards_served_by_others() == set()


def test_it_says_who_has_what(tmp_path: Path, clock: ManualClock) -> None:
    first, second = agent(tmp_path, 1, clock), agent(tmp_path, 2, clock)
    take(first, 1)
    second.reserve(key(2), HALF, whole=MACHINE)
    first.look()
    shown = first.status()
    assert [(each["node"], each["is_own"], each["state"], each["cards"]) for each in shown["taken"]] == [
        (address(1), True, "held", ("0",)),
        (address(2), False, "bidding", ()),
    ]
