"""Hostile clients in numbers: who else is being served waits no longer than before, and nothing of it stays.

Run by `make soak`; writes docs/measurements/hostile.md. HOSTILE_STALLED, HOSTILE_HALF_OPEN and HOSTILE_BODY_BYTES
change the numbers.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.asking import ask
from tests.integration.hostile.corpus import CASES
from tests.integration.hostile.loiterers import half_open, stall
from tests.integration.hostile.raw import wire_to
from tests.integration.hostile.target import Target
from tests.processes import wait_until
from tests.soak.hostile import (
    QUIET_S,
    SLOTS,
    Bystander,
    bystander,
    kernel_socket_bytes,
    open_files,
    raise_open_files,
    roomy_network,
    rss_bytes,
)

STALLED = int(os.environ.get("HOSTILE_STALLED", "1000"))
HALF_OPEN = int(os.environ.get("HOSTILE_HALF_OPEN", "10000"))
BODY_BYTES = int(os.environ.get("HOSTILE_BODY_BYTES", str(1 << 30)))
FREED_S_MAX = 25.0
CEILING_S = 120.0
BYTES_PER_STALLED_MAX = 512 << 10
"""A link's window, what the transport keeps, and a job's own."""

RATIO_MAX = 2.0
DECODE_TPS = 0
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "hostile.md"


@dataclass(slots=True)
class Findings:
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, measured: str, wanted: str = "", *, holds: bool = True) -> None:
        self.rows.append((what, measured, wanted))
        if not holds:
            self.wrong.append(f"{what}: {measured}, wanted {wanted}")


@dataclass(slots=True)
class Stage:
    target: Target
    other: Bystander
    findings: Findings
    quiet_ms: float = 0.0

    @property
    def pid(self) -> int:
        return self.target.network.pid

    @contextmanager
    def act(self, name: str) -> Iterator[None]:
        """Whatever happens in it, others are measured by themselves."""
        self.other.mark(name)
        yield
        wait_until(lambda: len(self.other.waits_s[name]) > 100, f"others are not served: {name}", ceiling_s=CEILING_S)
        measured = self.other.measured(name)
        ratio = measured / self.quiet_ms
        told = f"{measured:.0f} ms, {ratio:.1f} times"
        self.findings.note(f"others' p99 beside {name}", told, f"≤ {RATIO_MAX} times", holds=ratio <= RATIO_MAX)


def be_quiet(stage: Stage) -> None:
    stage.other.mark("quiet")
    time.sleep(QUIET_S)
    stage.quiet_ms = stage.other.measured("quiet")
    stage.findings.note("others' p99 before", f"{stage.quiet_ms:.0f} ms")


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
        per_connection = (rss_bytes(stage.pid) - rss) / count
        time.sleep(QUIET_S)
        for each in held:
            each.close()
    stage.findings.note("gateway's memory for each of them", f"{per_connection / 1024:.1f} KiB")


def a_huge_body(stage: Stage) -> None:
    """Sent for as long as somebody takes it, in chunks, so that its size is not announced."""
    piece = b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20))
    sent, rss = 0, rss_bytes(stage.pid)
    with stage.act("a huge body"), wire_to(stage.target.network, timeout_s=60) as wire:
        wire.send(stage.target.head(b"Transfer-Encoding: chunked"))
        while sent < BODY_BYTES and wire.send(piece):
            sent += 1 << 20
        reply = wire.reply()
    status = reply.status if reply is not None else 0
    note = stage.findings.note
    note(
        f"a body of {BODY_BYTES >> 20:,} MiB: taken until refused",
        f"{sent >> 20} MiB",
        "< 64 MiB",
        holds=sent < 64 << 20,
    )
    note("and refused with", str(status or "a closed connection"), "413", holds=status in {0, 413})
    note("gateway's memory after it", f"{(rss_bytes(stage.pid) - rss) / 1e6:+.0f} MB")


def the_corpus(stage: Stage) -> None:
    broken = []
    with stage.act(f"the corpus of {len(CASES)} hostile requests, ten times"):
        for case in CASES * 10:
            with suppress(OSError, AssertionError), wire_to(stage.target.network, timeout_s=0.5) as wire:
                wire.send(case.make(stage.target))
                reply = wire.reply()
                if reply is not None and reply.status >= 500 and reply.status not in {501, 505}:
                    broken.append(case.name)
    stage.findings.note("of which answered with a 5xx", str(len(broken)), "0", holds=not broken)


ACTS: tuple[Callable[[Stage], None], ...] = (
    be_quiet,
    stalled_readers,
    half_open_connections,
    a_huge_body,
    the_corpus,
)


def test_others_are_served_whatever_some_do(tmp_path: Path) -> None:
    raise_open_files()
    findings = Findings()
    nodes = -(-STALLED // (SLOTS - 20)) + 1
    with roomy_network(tmp_path, nodes=nodes, decode_tps=DECODE_TPS) as network:
        target = Target(network, network.api_key.encode(), network.api_key.encode())
        files = open_files(network.pid)
        with bystander(target) as other:
            stage = Stage(target, other, findings)
            for act in ACTS:
                act(stage)
                REPORT.write_text(report(findings, nodes=nodes))
            assert other.errors == []
        wait_until(lambda: open_files(network.pid) <= files + 1, "something stays open", ceiling_s=CEILING_S)
        findings.note("gateway's open files before / after", f"{files} / {open_files(network.pid)}", "the same")
        log = (network.output).read_text()
        findings.note("tracebacks in its log", str(log.count("Traceback")), "0", holds="Traceback" not in log)
        assert ask(network, "GET", "/readyz").status == 200
    REPORT.write_text(report(findings, nodes=nodes))
    if findings.wrong:
        pytest.fail("\n".join(findings.wrong))


def report(findings: Findings, *, nodes: int) -> str:
    rows = "\n".join(f"| {what} | {measured} | {wanted} |" for what, measured, wanted in findings.rows)
    return f"""# Hostile clients

Made by `make soak` (tests/soak/test_hostile.py) on {os.cpu_count()} cores, Python {platform.python_version()}, load
{os.getloadavg()[0]:.1f} at the end, everything on one machine. Real processes: a gateway, {nodes} nodes on the
deterministic engine. Another client asks short questions all the while, over one connection; what it waits for an
answer is compared with before. A stalled reader asks for a stream of megabytes and reads nothing of it.

| what | measured | wanted |
| --- | --- | --- |
{rows}
"""
