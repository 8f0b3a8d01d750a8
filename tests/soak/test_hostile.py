"""Hostile clients in numbers: who else is being served waits no longer than before, and nothing of it stays.

`make soak-hostile`; writes docs/measurements/hostile.md. HOSTILE_STALLED, HOSTILE_HALF_OPEN, HOSTILE_BODY_BYTES and
HOSTILE_ACT_S change the numbers; HOSTILE_ONLY="stalled bursts" plays the attacks whose names have one of these words,
and writes no report. HOSTILE_REALTIME=0 for no priority of the honest client, which root gives it.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.settings import ClientTimeouts
from tests.integration.asking import ask
from tests.integration.hostile.loiterers import half_open, is_over, stall
from tests.integration.hostile.target import Target
from tests.processes import wait_until
from tests.soak import cores
from tests.soak.attacks import ATTACKS, Attack, huge_body
from tests.soak.bystander import PAUSE_S, Bystander, Waits, bystander
from tests.soak.hostile import (
    CALM,
    SLOTS,
    kernel_socket_bytes,
    open_files,
    raise_open_files,
    roomy_network,
    rss_bytes,
    say,
    tasks,
)

STALLED = int(os.environ.get("HOSTILE_STALLED", "1000"))
HALF_OPEN = int(os.environ.get("HOSTILE_HALF_OPEN", "10000"))
BODY_BYTES = int(os.environ.get("HOSTILE_BODY_BYTES", str(1 << 30)))
ACT_S = float(os.environ.get("HOSTILE_ACT_S", "20"))
"""How long an attack goes on at least, and how long it is quiet before it."""
ONLY = tuple(os.environ.get("HOSTILE_ONLY", "").split())

FREED_S_MAX = 25.0
CEILING_S = 120.0
BYTES_PER_STALLED_MAX = 512 << 10
"""A link's window, what the transport keeps, and a job's own."""

TAKEN_BYTES_MAX = REQUEST_BODY_BYTES_MAX + (32 << 20)
"""Of a body that is refused: the limit, what is dropped so that the refusal is heard, and what sockets hold."""

RATIO_MAX = 2.0
DECODE_TPS = 0
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "hostile.md"


@dataclass(frozen=True, slots=True)
class Act:
    """One attack, as the honest client saw it."""

    name: str
    quiet: Waits
    beside: Waits

    @property
    def ratio(self) -> float:
        return self.beside.p99_ms / self.quiet.p99_ms

    def line(self) -> str:
        return f"| {self.name} | {self.quiet} | {self.beside} | {self.ratio:.1f} | {self.beside.count:,} |"


@dataclass(slots=True)
class Findings:
    acts: list[Act] = field(default_factory=list)
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, measured: str, wanted: str = "", *, holds: bool = True) -> None:
        say(f"{what}: {measured}" + (f" (wanted: {wanted})" if wanted else ""))
        self.rows.append((what, measured, wanted))
        if not holds:
            self.wrong.append(f"{what}: {measured}, wanted {wanted}")

    def add(self, act: Act) -> None:
        say(f"{act.name}: p50 / p99 {act.quiet} before, {act.beside} beside it, {act.ratio:.1f} times")
        self.acts.append(act)
        if not act.ratio <= RATIO_MAX:
            self.wrong.append(f"others' p99 beside {act.name}: {act.ratio:.1f} times, wanted ≤ {RATIO_MAX}")


@dataclass(frozen=True, slots=True)
class Stage:
    target: Target
    other: Bystander
    findings: Findings

    @property
    def pid(self) -> int:
        return self.target.network.pid

    @contextmanager
    def act(self, name: str) -> Iterator[None]:
        """Whatever happens in it, the honest client is measured before and beside it."""
        quiet_s = time.monotonic()
        time.sleep(ACT_S)
        began_s = time.monotonic()
        yield
        self.other.check()
        self.other.catch_up()
        quiet, beside = self.other.between(quiet_s, began_s), self.other.between(began_s, time.monotonic())
        self.findings.add(Act(name, quiet, beside))


def nothing(stage: Stage) -> None:
    """How much two quiet times differ: what is less than that says nothing."""
    with stage.act("nothing"):
        time.sleep(ACT_S)


def stalled_readers(stage: Stage) -> None:
    files, rss, kernel = open_files(stage.pid), rss_bytes(stage.pid), kernel_socket_bytes()
    with stage.act(f"{STALLED:,} stalled readers"):
        stalled = stall(stage.target, STALLED, key=stage.target.key)
        try:
            taken_bytes = rss_bytes(stage.pid) - rss
            in_kernel = kernel_socket_bytes() - kernel
            wait_until(lambda: open_files(stage.pid) <= files, "stalled readers are held", ceiling_s=CEILING_S)
            freed_s = time.monotonic() - stalled.since_s
        finally:
            stalled.close()
    note = stage.findings.note
    note("stalled readers, all freed after", f"{freed_s:.1f} s", f"≤ {FREED_S_MAX:.0f} s", holds=freed_s <= FREED_S_MAX)
    per_reader = taken_bytes / STALLED
    note(
        "gateway's memory for each of them",
        f"{per_reader / 1024:.0f} KiB",
        f"≤ {BYTES_PER_STALLED_MAX >> 10} KiB",
        holds=per_reader <= BYTES_PER_STALLED_MAX,
    )
    note("kernel's memory for all of them", f"{in_kernel / 1e6:.0f} MB")


def half_open_connections(stage: Stage) -> None:
    count = min(HALF_OPEN, raise_open_files() - 500)
    rss = rss_bytes(stage.pid)
    with stage.act(f"{count:,} half-open connections"):
        held = half_open(stage.target.network, count)
        since_s = time.monotonic()
        per_connection = (rss_bytes(stage.pid) - rss) / count
        wait_until(lambda: all(map(is_over, held[::2])), "heads that never end are waited for", ceiling_s=CEILING_S)
        given_up_s = time.monotonic() - since_s
        for each in held:
            each.close()
    note = stage.findings.note
    note("gateway's memory for each half-open connection", f"{per_connection / 1024:.1f} KiB")
    head_s = ClientTimeouts().head_s
    note("heads that never end, all given up after", f"{given_up_s:.1f} s", f"{head_s:.0f} s and a little")


def huge_bodies(stage: Stage) -> None:
    rss, taken, statuses = rss_bytes(stage.pid), 0, Counter[int]()
    with stage.act(f"bodies of {BODY_BYTES >> 20:,} MiB"):
        until_s = time.monotonic() + ACT_S
        while time.monotonic() < until_s:
            status, sent = huge_body(stage.target, BODY_BYTES)
            statuses[status] += 1
            taken = max(taken, sent)
    note = stage.findings.note
    most = min(BODY_BYTES, TAKEN_BYTES_MAX)
    note(
        f"of a body of {BODY_BYTES >> 20:,} MiB taken, most",
        f"{taken >> 20} MiB",
        f"≤ {most >> 20} MiB",
        holds=taken <= most,
    )
    note("answered with", told(statuses), "413, or a closed connection", holds=set(statuses) <= {0, 413})
    note("gateway's memory after it", f"{(rss_bytes(stage.pid) - rss) / 1e6:+.0f} MB")


def attacked(stage: Stage, attack: Attack) -> None:
    statuses: Counter[int] = Counter()
    rounds = attack.rounds(stage.target)
    with stage.act(attack.name):
        until_s = time.monotonic() + ACT_S
        while time.monotonic() < until_s:
            statuses[next(rounds)] += 1
    fits = set(statuses) <= attack.statuses
    stage.findings.note(f"{attack.name}: answers", told(statuses), "no 5xx", holds=fits)


def told(statuses: Counter[int]) -> str:
    return ", ".join(f"{count:,} x {status or 'closed'}" for status, count in sorted(statuses.items()))


ACTS: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("nothing", nothing),
    ("stalled readers", stalled_readers),
    ("half-open connections", half_open_connections),
    ("huge bodies", huge_bodies),
    *((attack.name, partial(attacked, attack=attack)) for attack in ATTACKS),
)


def test_others_are_served_whatever_some_do(tmp_path: Path) -> None:
    raise_open_files()
    findings = Findings()
    nodes = -(-STALLED // (SLOTS - 20)) + 1
    with roomy_network(tmp_path, nodes=nodes, decode_tps=DECODE_TPS, is_split=True) as network:
        target = Target(network, network.api_key.encode(), network.api_key.encode())
        files, before = open_files(network.pid), tasks(network)
        calm = Target(replace(network, model=CALM), target.key, target.smuggler)
        with bystander(calm, tmp_path) as other:
            stage = Stage(target, other, findings)
            cores.giving_way(lambda: play(stage, nodes=nodes))
        wait_until(lambda: open_files(network.pid) <= files, "something stays open", ceiling_s=CEILING_S)
        wait_until(lambda: tasks(network) <= before, "a task goes on", ceiling_s=CEILING_S)
        findings.note("gateway's open files before / after", f"{files} / {open_files(network.pid)}", "not more")
        findings.note("its event loop's tasks before / after", f"{before} / {tasks(network)}", "not more")
        log = network.output.read_text()
        findings.note("tracebacks in its log", str(log.count("Traceback")), "0", holds="Traceback" not in log)
        assert ask(network, "GET", "/readyz").status == 200
    write_report(findings, nodes=nodes)
    if findings.wrong:
        pytest.fail("\n".join(findings.wrong))


def play(stage: Stage, *, nodes: int) -> None:
    """The report is there after every act."""
    for name, act in ACTS:
        if not ONLY or any(word in name for word in ONLY):
            act(stage)
            write_report(stage.findings, nodes=nodes)


def write_report(findings: Findings, *, nodes: int) -> None:
    """Some attacks alone make none: it says what all of them do."""
    if not ONLY:
        REPORT.write_text(report(findings, nodes=nodes))


def report(findings: Findings, *, nodes: int) -> str:
    acts = "\n".join(act.line() for act in findings.acts)
    rows = "\n".join(f"| {what} | {measured} | {wanted} |" for what, measured, wanted in findings.rows)
    return f"""# Hostile clients

Made by `make soak-hostile` (tests/soak/test_hostile.py) on {os.cpu_count()} cores, Python {platform.python_version()},
load {os.getloadavg()[0]:.1f} at the end, everything on one machine. Real processes: a gateway, which {cores.told()};
an honest client that asks a short question every {PAUSE_S * 1000:.0f} ms over one connection, and a node that serves
it alone; attackers and {nodes} nodes for them, at the lowest priority{cores.ahead()}.
Nodes run the deterministic engine. Each attack goes on for at least {ACT_S:.0f} s, as fast as one process can, after as
long a quiet time that it is compared with.
A stalled reader asks for a stream of a megabyte and reads nothing of it.

| attack | honest client's p50 / p99 before | beside it | p99, times (wanted: ≤ {RATIO_MAX:.0f}) | its answers |
| --- | --- | --- | ---: | ---: |
{acts}

| what | measured | wanted |
| --- | --- | --- |
{rows}
"""
