"""A lease that runs while what it stands on is killed: its program does not notice, and no money is unaccounted for.

The agent alone is killed in `test_leased_container.py`; everything at random, for half an hour, in
`tests/soak/test_leases.py`. Names of leases are words that no other process of the machine has in its command.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.integration.lease_kills import LeasingNetwork, differences, leasing_network, meters_of
from tests.podman import why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
NODES = 2
KEPT = "kept"
STALLED_S = 3.0
"""So long a local chain goes on without being saved: longer than its blocks would take to be final."""


@pytest.fixture(scope="module")
def leasing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeasingNetwork]:
    with leasing_network(tmp_path_factory.mktemp("k"), nodes=NODES) as started:
        started.order(KEPT)
        started.wait_until_settled()
        yield started


@pytest.fixture
def program(leasing: LeasingNetwork) -> psutil.Process:
    (found,) = leasing.programs(KEPT)
    return found


def close_if_placed(leasing: LeasingNetwork, name: str) -> None:
    """An auction may find nobody while validators and agents are away; the order says so, and has its deposit back."""
    if leasing.state(name) == "active":
        leasing.act(name, "close")
        leasing.wait_until_settled()


def test_postgres_the_gateway_and_a_validator_die_and_nobody_in_the_lease_notices(
    leasing: LeasingNetwork, program: psutil.Process
) -> None:
    assert leasing.kill_postgres()
    leasing.order("during")
    leasing.wait_until_settled()
    assert leasing.kill("gateway\0run")
    assert leasing.kill("validator\0run")
    leasing.wait_until_settled()
    leasing.wait_until_audited()
    assert leasing.programs(KEPT) == [program]
    close_if_placed(leasing, "during")


def test_the_engine_dies_and_the_program_goes_on(leasing: LeasingNetwork, program: psutil.Process) -> None:
    leasing.engine.kill()
    leasing.order("meanwhile")  # its agent cannot start it yet, or the next candidate's
    leasing.engine.start()
    leasing.wait_until_settled()
    assert leasing.programs(KEPT) == [program]
    close_if_placed(leasing, "meanwhile")


def test_who_pays_for_a_program_that_cannot_be_started_is_told_and_gets_the_rest_back(leasing: LeasingNetwork) -> None:
    """Its provider may be lying: it says that the image cannot be had, holds the machine, and is paid."""
    leasing.order("idle", image="localhost/nowhere:1")
    wait_until(lambda: warning_of(leasing, "idle") is not None, "nobody is warned", ceiling_s=60)
    lease = leasing.lease("idle") or {}
    assert (lease["order"]["lease"]["state"], lease["program"]["phase"]) == ("active", "failed")
    assert lease["program"]["confirmed_running"] is False, "its key signed that nothing runs"
    assert warning_of(leasing, KEPT) is None
    leasing.act("idle", "close")
    leasing.wait_until_settled()
    assert ((leasing.lease("idle") or {})["ending"] or {})["reason"] == "RENTER"


def warning_of(leasing: LeasingNetwork, name: str) -> str | None:
    program = (leasing.lease(name) or {}).get("program")
    found: str | None = program["warning"] if program is not None else None
    return found


def test_a_machine_stops_and_a_stand_in_goes_on_also_when_the_first_comes_back(leasing: LeasingNetwork) -> None:
    """It comes back with a program that is no longer its own to run."""
    leasing.order("moved")
    leasing.wait_until_settled()
    (first,), agent = leasing.programs("moved"), leasing.agent_of("moved")
    os.kill(agent, signal.SIGSTOP)
    try:
        first.kill()
        wait_until(lambda: bool(leasing.programs("moved")), "no stand-in runs", ceiling_s=60)
        (second,) = leasing.programs("moved")
    finally:
        os.kill(agent, signal.SIGCONT)
    leasing.wait_until_settled()
    assert leasing.programs("moved") == [second]
    assert leasing.agent_of("moved") != agent
    leasing.act("moved", "close")
    leasing.wait_until_settled()
    leasing.wait_until_audited()


def test_what_was_closed_and_final_is_what_the_chain_has_though_it_loses_its_last_seconds(
    leasing: LeasingNetwork,
) -> None:
    """What a lease is charged depends on the block that closes it: closed again later, it costs more.

    Whoever saves the chain stands still meanwhile, so a block that counted as final by its depth would be lost.
    """
    leasing.order("charged")
    leasing.wait_until_settled()
    os.kill(leasing.network.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(leasing.act, "charged", "close")
            wait_until(lambda: leasing.state("charged") == "closed", "it is not closed")
            until_s = time.monotonic() + STALLED_S
            wait_until(lambda: closing.done() or time.monotonic() > until_s, "time stands still")
            assert not closing.done(), "it was told as done, and can still be lost"
            assert leasing.kill("anvil", "--chain-id")
            os.kill(leasing.network.pid, signal.SIGCONT)
            closing.result()
    finally:
        os.kill(leasing.network.pid, signal.SIGCONT)
    leasing.wait_until_settled()
    leasing.wait_until_audited()


def test_all_that_came_in_went_out_and_every_second_was_paid(leasing: LeasingNetwork) -> None:
    leasing.act(KEPT, "close")
    leasing.wait_until_settled()
    leasing.wait_until_audited()
    meters = meters_of(leasing.chain_events())
    assert len(meters) == len(leasing.names)
    assert all(meter.has_ended for meter in meters.values())
    assert differences(meters) == []
    assert {name: (leasing.lease(name) or {})["ending"]["reason"] for name in (KEPT, "charged")} == {
        KEPT: "RENTER",
        "charged": "RENTER",
    }
