"""Leases in real containers, ordered, used and closed for many minutes while parts of their network are killed.

Run by `make soak-leases`, as root, with podman; writes docs/measurements/leases-kills.md. LEASES_MINUTES is its length
(30), LEASES_SEED the order of things (1). After every kill each lease must have one program, or an end with a reason
and none; the books must agree with the chain. At the end, by the chain's events alone: every deposit is paid out or
refunded, and every second that a lease ran was paid.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill

import psutil
import pytest
from bench.environment import describe

from tests.integration.lease_kills import LeaseMeter, LeasingNetwork, differences, leasing_network, meters_of
from tests.podman import why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MINUTES = float(os.environ.get("LEASES_MINUTES", "30"))
SEED = int(os.environ.get("LEASES_SEED", "1"))
NODES = 3
LIVE_MAX = 4
ORDERS_MAX = 55
"""An account may place 60 in an hour."""
CALM_S = (0.0, 6.0)
"""Between what a renter does and the next kill: at random."""
FROZEN_S = 14.0
"""Longer than `downS`: a stand-in takes over, and the frozen agent wakes with a container that is no longer its."""
WIDTH, WRONG_CHARS_MAX = 120, 4_000
SUMS = {
    "deposited": "deposits",
    "compensated": "compensation out of bonds",
    "settled": "paid for time, fees included",
    "fees": "of that, fees",
    "refunded": "refunded",
}
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "leases-kills.md"


@dataclass
class Soak:
    leasing: LeasingNetwork
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    settled_s: dict[str, list[float]] = field(default_factory=dict)
    """By what was killed: how long until everything was as it should be."""
    acts: Counter[str] = field(default_factory=Counter)
    unmonitored: set[str] = field(default_factory=set)
    """Leases whose monitor was killed: it also writes their log."""

    # what a renter does

    def live(self) -> list[str]:
        return [name for name in self.leasing.names if self.leasing.state(name) in {"active", "paused"}]

    def close(self, name: str) -> None:
        self.acts["close"] += 1
        self.leasing.act(name, "close")

    def rent(self) -> None:
        live = self.live()
        if len(live) < 2 or (len(live) < LIVE_MAX and self.rng.random() < 0.5):
            if len(self.leasing.names) < ORDERS_MAX:
                self.acts["order"] += 1
                self.leasing.order(f"soak-{len(self.leasing.names)}")
        elif self.rng.random() < 0.4 and len(self.leasing.names) < ORDERS_MAX:
            self.close(self.rng.choice(live))
        elif legible := [name for name in live if name not in self.unmonitored]:
            self.acts["look"] += 1
            self.look(self.rng.choice(legible))

    def look(self, name: str) -> None:
        """Its log, through gateway and agent: what its program said."""

        def says() -> bool:
            reply = self.leasing.ask("GET", f"/v1/leases/{name}/logs")
            return reply is not None and reply.status == 200 and name.encode() in reply.body

        wait_until(says, f"the log of {name} is not read", ceiling_s=60)

    # what is killed

    def kill_agent(self) -> None:
        self.leasing.kill("node\0join", which=self.rng.randrange(NODES))

    def kill_agent_and_containers(self) -> None:
        """Everything of a machine, but for its engine: the agents of all nodes are one machine's."""
        programs = [program for name in self.live() for program in self.leasing.programs(name)]
        self.kill_agent()
        for each in programs:
            _kill(each)

    def kill_program(self) -> None:
        """A renter's program that ends is no failure of its provider; it is started again."""
        programs = [program for name in self.live() for program in self.leasing.programs(name)]
        if programs:
            _kill(self.rng.choice(programs))

    def kill_monitor(self) -> None:
        monitors = {name: each for name in self.live() if (each := self.leasing.monitor(name)) is not None}
        if monitors:
            name = self.rng.choice(list(monitors))
            self.unmonitored.add(name)
            _kill(monitors[name])

    def freeze_agent(self) -> None:
        found = self.leasing.pids("node\0join")
        pid = found[self.rng.randrange(len(found))]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        os.kill(pid, signal.SIGCONT)

    def victims(self) -> dict[str, Callable[[], object]]:
        kill = self.leasing.kill
        return {
            "an agent": self.kill_agent,
            "an agent and all programs in containers": self.kill_agent_and_containers,
            f"an agent, frozen for {FROZEN_S:.0f} s instead": self.freeze_agent,
            "a program in a container": self.kill_program,
            "a container's monitor (conmon)": self.kill_monitor,
            "the engine (podman)": self.leasing.restart_engine,
            "a validator": lambda: kill("validator\0run", which=self.rng.randrange(4)),
            "the gateway": lambda: kill("gateway\0run"),
            "the chain's process": lambda: kill("chain\0run"),
            "anvil": lambda: kill("anvil", "--chain-id"),
            "Postgres": self.leasing.kill_postgres,
        }

    def round(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.rent()
        time.sleep(self.rng.uniform(*CALM_S))
        name, kill = self.rng.choice(list(self.victims().items()))
        kill()
        began_s = time.monotonic()
        self.kills[name] += 1
        try:
            self.leasing.wait_until_settled()
            self.leasing.wait_until_audited()
        except AssertionError as error:
            error.add_note(f"after kill {self.kills.total()}, of {name}")
            raise
        took_s = time.monotonic() - began_s
        self.settled_s.setdefault(name, []).append(took_s)
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {name}: settled after {took_s:.1f} s\n")


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        process.kill()


def test_no_lease_is_lost_or_doubled_and_no_money_unaccounted_though_anything_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with leasing_network(tmp_path_factory.mktemp("s"), nodes=NODES) as leasing:
        soak = Soak(leasing, random.Random(SEED))
        began_s, failure = time.monotonic(), ""
        try:
            while time.monotonic() - began_s < 60 * MINUTES:
                soak.round()
        except AssertionError as error:
            failure = "\n".join([str(error), *getattr(error, "__notes__", [])])
            raise
        finally:
            minutes = (time.monotonic() - began_s) / 60
            meters, ends, wrong = _close_all(soak) if not failure else ({}, Counter(), [failure])
            REPORT.write_text(report(soak, meters, ends, wrong, minutes=minutes))
        assert not wrong, wrong


def _close_all(soak: Soak) -> tuple[dict[str, LeaseMeter], Counter[str], list[str]]:
    leasing = soak.leasing
    for name in soak.live():
        leasing.act(name, "close")
    leasing.wait_until_settled()
    leasing.wait_until_audited()
    ends: Counter[str] = Counter()
    for name in leasing.names:
        lease = leasing.lease(name)
        assert lease is not None
        ends[lease["ending"]["reason"] if lease["ending"] else lease["phase"]] += 1
    meters = meters_of(leasing.chain_events())
    lost = {reason: count for reason, count in ends.items() if reason not in {"RENTER", "EXPIRED", "unmatched"}}
    wrong = [*differences(meters), *(f"{count} leases ended by {reason}" for reason, count in lost.items())]
    return meters, ends, wrong


def report(soak: Soak, meters: dict[str, LeaseMeter], ends: Counter[str], wrong: list[str], *, minutes: float) -> str:
    happened = (
        f"{minutes:.0f} minutes of leases in real containers (podman) on a network as `sparewatt up` makes it: {NODES} "
        f"nodes, four validators, the local chain. {len(soak.leasing.names)} leases were ordered, up to {LIVE_MAX} at "
        f"a time, {soak.acts['close']} closed in between, {soak.acts['look']} logs read. {soak.kills.total()} times "
        "something was killed (SIGKILL); after each kill every lease had to have exactly one program, or an end with a "
        "reason and none, and `ledger audit` had to agree with the chain to the unit."
    )
    load = f"The machine had {os.cpu_count()} cores and a load average of {os.getloadavg()[2]:.1f} at the end."
    lines = [
        *("# Leases while their network is killed", "", fill(happened, WIDTH), "", describe(), load, ""),
        *("| killed | times | until all was as it should be, median | longest |", "| --- | --- | --- | --- |"),
        *(
            f"| {name} | {len(times)} | {statistics.median(times):.1f} s | {max(times):.1f} s |"
            for name, times in sorted(soak.settled_s.items())
        ),
        *("", *_money_lines(meters, ends), ""),
        "Nothing was lost." if not wrong else "**Lost:** " + "\n\n".join(wrong)[:WRONG_CHARS_MAX],
        *("", f"Command: `make soak-leases` (LEASES_SEED={SEED}, LEASES_MINUTES={MINUTES:g}).", ""),
    ]
    return "\n".join(lines)


def _money_lines(meters: dict[str, LeaseMeter], ends: Counter[str]) -> list[str]:
    """By the chain's events."""
    sums = {name: sum(getattr(meter, name) for meter in meters.values()) for name in SUMS}
    left = sums["deposited"] + sums["compensated"] - sums["settled"] - sums["refunded"]
    rows = [f"| {words} | {sums[name]:,} |" for name, words in SUMS.items()]
    exact = sum(meter.is_exact and meter.has_ended for meter in meters.values())
    told = (
        f"{exact} leases kept their provider: each paid exactly its seconds between start and stop, by the times of "
        f"the blocks. {len(meters) - exact} changed it: these may pay less, since a provider "
        "that is signed down is paid until it was last heard. "
        f"Ends: {', '.join(f'{count} by {reason}' for reason, count in sorted(ends.items())) or 'none'}."
    )
    head = ["What the chain's events say of all leases together:", "", "| | µUSD |", "| --- | --- |"]
    return [*head, *rows, f"| unaccounted for | {left:,} |", "", fill(told, WIDTH)]
