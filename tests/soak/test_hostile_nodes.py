"""Hostile nodes in numbers: each behaviour alone, then half an hour of all of them at once beside hostile clients.

`make soak-hostile-nodes`; writes docs/measurements/hostile_nodes.md. HOSTILE_NODES_S: seconds of the second part, none
for 0. HOSTILE_NODES_ONLY="churn answers-400" plays just these behaviours, and writes no report.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.integration.hostile_nodes.behaviour import FULL, Behaviour, Bounds
from tests.integration.hostile_nodes.catalogue import BEHAVIOURS
from tests.integration.hostile_nodes.honest import OWNERS, AttackedNetwork, attacked_network
from tests.integration.hostile_nodes.judging import Findings, pay_ratio
from tests.integration.hostile_nodes.running import Runner, running, table
from tests.integration.people import sign_up
from tests.processes import end_process, start_process
from tests.soak.hostile import raise_open_files, rss_bytes, say

MIXED_S = float(os.environ.get("HOSTILE_NODES_S", "1800"))
ONLY = tuple(os.environ.get("HOSTILE_NODES_ONLY", "").split())
CHOSEN = tuple(each for each in BEHAVIOURS if not ONLY or each.name in ONLY)
SEED = 18
WARM_UP_ROUNDS = 3
"""So that what is kept of the last requests is there before memory is compared."""
SETTLING = 0.2
"""Of the mixed time: what the largest bodies of hostile clients need at once is not a leak, what is added later is."""
READINGS, READING_S = 100, 0.1
MIXED = replace(FULL, requests=60, pinned=2, churn=100, storm_s=5.0)
BOUNDS = Bounds()
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "hostile_nodes.md"


@dataclass(slots=True)
class Mix:
    """What others noticed of many behaviours at once."""

    found: list[Findings] = field(default_factory=list)
    seconds: float = 0.0
    joined: int = 0
    """Links of nodes that were let in."""
    settled_bytes: int = 0
    """The gateway's memory after a fifth of the time, once the largest bodies had come."""
    memory_bytes: int = 0
    """The gateway's memory at the end."""

    @property
    def asked(self) -> int:
        return sum(len(each.bystanders) for each in self.found)

    @property
    def success(self) -> float:
        judged = sum(len(each.judged) for each in self.found)
        return sum(each.success * len(each.judged) for each in self.found) / max(1, judged)

    @property
    def extra_wait_s(self) -> float:
        return max((each.extra_wait_s for each in self.found), default=0.0)

    @property
    def pay_ratio(self) -> float:
        return pay_ratio(self.found)

    @property
    def grown_bytes(self) -> int:
        return self.memory_bytes - self.settled_bytes

    def rows(self) -> list[tuple[str, str, str, bool]]:
        """What, measured, wanted, and whether it is kept."""
        success, wait_s, paid, grown = self.success, self.extra_wait_s, self.pay_ratio, self.grown_bytes
        return [
            ("others' requests", f"{self.asked:,}", "", True),
            ("behaviours played", f"{len(self.found):,}", "", True),
            ("times that a node joined", f"{self.joined:,}", "", True),
            (
                "others served, after the first ten of each",
                f"{success:.2%}",
                f"≥ {BOUNDS.success_min:.1%}",
                success >= BOUNDS.success_min,
            ),
            (
                "longest wait, beyond that without attacks",
                f"{max(0.0, wait_s):.1f} s",
                f"≤ {BOUNDS.extra_wait_s_max:.0f} s",
                wait_s <= BOUNDS.extra_wait_s_max,
            ),
            (
                "pay of all liars, times an honest node's",
                f"{paid:.2f}",
                f"≤ {BOUNDS.pay_ratio_max}",
                paid <= BOUNDS.pay_ratio_max,
            ),
            (
                "gateway's memory, over the last four fifths of the time",
                f"{self.settled_bytes / 1e6:.1f} {grown / 1e6:+.1f} MB",
                f"< {BOUNDS.memory_bytes_max / 1e6:.0f} MB",
                grown <= BOUNDS.memory_bytes_max,
            ),
        ]


def test_others_hardly_notice_hostile_nodes(tmp_path: Path) -> None:
    raise_open_files()
    alone: list[Findings] = []
    mix = Mix()
    with attacked_network(tmp_path) as attacked:
        asyncio.run(play_alone(attacked, alone))
        write_report(alone, mix)
        if MIXED_S:
            asyncio.run(play_mixed(attacked, mix, tmp_path))
            write_report(alone, mix)
        log = attacked.network.output.read_text(errors="replace")
    wrong = [f"{each.behaviour.name}: {said}" for each in alone for said in each.broken_bounds()]
    wrong += [
        f"mixed: {what}: {measured}, wanted {wanted}" for what, measured, wanted, holds in mix.rows() if not holds
    ]
    wrong += ["a traceback is in the gateway's log"] if "Traceback" in log else []
    if wrong:
        pytest.fail("\n".join(wrong))


async def play_alone(attacked: AttackedNetwork, found: list[Findings]) -> None:
    """Each with the whole gateway for itself, so that what is measured is its own."""
    async with running(attacked, FULL) as runner:
        for _ in range(WARM_UP_ROUNDS):
            await runner.calm()
        for behaviour in CHOSEN:
            found += await runner.play([replace(behaviour, is_alone=True)])
            say(f"{behaviour.name}: {'; '.join(found[-1].broken_bounds()) or 'kept'}")


async def play_mixed(attacked: AttackedNetwork, mix: Mix, folder: Path) -> None:
    """One behaviour after another on every model, by chance, and one more that is about the whole gateway.

    Memory is read when everybody has gone: what a request needs while it is read is not a leak, what stays is.
    """
    rng = random.Random(SEED)
    person = sign_up(attacked.network, "hostile-client@example.org")
    async with running(attacked, MIXED) as runner:
        runner.restarts = False
        joined = joined_nodes(attacked)
        for share in (SETTLING, 1.0 - SETTLING):
            mix.settled_bytes = mix.memory_bytes
            began_s = time.monotonic()
            with hostile_clients(attacked, person.key, folder):
                await play_lanes(runner, attacked, mix, seconds=MIXED_S * share, rng=rng)
            mix.seconds += time.monotonic() - began_s
            mix.memory_bytes = await memory_at_rest(attacked)
        await runner.collect_earnings()
        mix.joined = joined_nodes(attacked) - joined


async def play_lanes(
    runner: Runner, attacked: AttackedNetwork, mix: Mix, *, seconds: float, rng: random.Random
) -> None:
    *others, own = attacked.models
    lanes = [(model, [each for each in CHOSEN if not each.is_alone]) for model in others]
    lanes.append((own, [each for each in CHOSEN if each.is_alone]))  # whose clients would meet another's nonsense
    until_s = time.monotonic() + seconds
    async with asyncio.TaskGroup() as tasks:
        for model, behaviours in (lane for lane in lanes if lane[1]):
            tasks.create_task(
                play_lane(runner, model, behaviours, mix, until_s=until_s, rng=random.Random(rng.random()))
            )


def joined_nodes(attacked: AttackedNetwork) -> int:
    """So far, by the gateway's log."""
    with attacked.network.output.open(encoding="utf-8", errors="replace") as log:
        return sum('"node_joined"' in line for line in log)


async def memory_at_rest(attacked: AttackedNetwork) -> int:
    """The least of many readings: each password that is hashed meanwhile takes 64 MiB for a moment."""
    least = rss_bytes(attacked.network.pid)
    for _ in range(READINGS):
        await asyncio.sleep(READING_S)
        least = min(least, rss_bytes(attacked.network.pid))
    return least


async def play_lane(
    runner: Runner, model: str, behaviours: Sequence[Behaviour], mix: Mix, *, until_s: float, rng: random.Random
) -> None:
    while time.monotonic() < until_s:
        found = await runner.play_one(rng.choice(behaviours), model)
        mix.found.append(found)
        if found.success < BOUNDS.success_min or found.extra_wait_s > BOUNDS.extra_wait_s_max:
            say(f"{found.behaviour.name}: {found.success:.1%} served, {found.extra_wait_s:+.1f} s")


@contextmanager
def hostile_clients(attacked: AttackedNetwork, key: str, folder: Path) -> Iterator[None]:
    """Beside the nodes, with an account of their own."""
    argv = [sys.executable, "-m", "tests.soak.hostile_clients", attacked.network.base_url, key, attacked.models[0]]
    process = start_process(argv, output=folder / "hostile-clients.log")
    try:
        yield
        assert process.poll() is None, (folder / "hostile-clients.log").read_text()
    finally:
        end_process(process, signal.SIGTERM)


def write_report(alone: Sequence[Findings], mix: Mix) -> None:
    """Some behaviours alone make none: it says what all of them do."""
    if not ONLY:
        REPORT.write_text(report(alone, mix))


def report(alone: Sequence[Findings], mix: Mix) -> str:
    rows = "\n".join(f"| {what} | {measured} | {wanted} |" for what, measured, wanted, _ in mix.rows())
    rejoined = [f"{each.rejoin_s:.1f} s" for each in alone if each.rejoin_s is not None]
    return f"""# Hostile nodes

Made by `make soak-hostile-nodes` (tests/soak/test_hostile_nodes.py) on {os.cpu_count()} cores, Python
{platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end, everything on one machine. Real processes: a
gateway with its database, and {len(OWNERS)} honest nodes of as many owners, each with an agent and the deterministic
engine. Hostile nodes speak the real link protocol, joined with the token of an account of their own, and claim to be
the fastest there are. Clients of other accounts ask {FULL.requests} short questions beside each behaviour
(tests/integration/hostile_nodes); {FULL.pinned} more insist on the liar where what it is paid is in question. Wanted:
others served ≥ {BOUNDS.success_min:.1%} after their first ten requests, none waits more than
{BOUNDS.extra_wait_s_max:.0f} s longer, a liar is paid ≤ {BOUNDS.pay_ratio_max} times an honest node for the text that
can be read, and the gateway grows by less than {BOUNDS.memory_bytes_max / 1e6:.0f} MB. Honest nodes, restarted while
{FULL.sockets} silent sockets knock, served again after {", ".join(rejoined) or "(not measured)"}
(wanted: ≤ 10 s).

## Each behaviour

{table(alone)}

## All of them at once

For {mix.seconds / 60:.0f} minutes hostile nodes came and went on {len(BEHAVIOURS)} behaviours, chosen by chance, eight
at a time, beside hostile clients (tests/soak/attacks.py) and honest traffic. The gateway is the one of the first part:
what it keeps of the last requests is full before memory is compared.

| what | measured | wanted |
| --- | --- | --- |
{rows}
"""
