"""The tables of `make bench-gateway`, as Markdown. Lost goals are reported like met ones."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import environment
from bench.gateway.bookkeeping import LedgerCounts
from bench.gateway.judging import (
    OVERRUN_MS_MAX,
    GoalResult,
    Samples,
    Value,
    cpu_us_per_request,
    cpu_us_per_token,
    is_disturbed,
    judge,
    memory_mb,
    per_s,
    time_ms,
    whole_p50,
)
from bench.gateway.measure import IDLE, IDLE_S, TOO_SLOW_FOR
from bench.gateway.processes import SETTLE_S_MAX
from bench.gateway.sample import Sample
from bench.gateway.scenarios import MEMORY, SCENARIOS, Scenario
from bench.gateway.targets import DIRECT, NGINX, SGLANG, Target

BEGIN_MARK, END_MARK = "<!-- bench-gateway -->", "<!-- /bench-gateway -->"


@dataclass(frozen=True, slots=True)
class Run:
    """The content of a report."""

    samples: Samples
    targets: Sequence[Target]
    rounds: int
    nodes: int
    is_realtime: bool
    noise: str | None
    """Why it should not count; None if it does."""
    booked: Mapping[str, LedgerCounts]
    skipped: Sequence[str] = ()


AHEAD = "with real-time priority (`SCHED_FIFO`); all else waits"
METHOD = """# The gateway beside other proxies

Made by `make bench-gateway` on {cores} cores ({cpu}), Linux {kernel}, Python {python}, commit {commit}.
{environment}
Rounds: {rounds}. Figures are medians; ratios to goals are of each round by itself, then their median.{noise}

{goals}

Losses are losses; `rounds` are the single rounds behind the median.

## What is measured

Every target gets one core to itself (core 0). Model server, load generator and our nodes share core 1. While it is
measured, a target and all on core 1 run {ahead}.
One C model server (`bench/gateway/backend.c`) serves all peers, one C generator (`load.c`) asks all targets: over
keep-alive connections, with 2 kB requests of which no two begin alike. Every token is the moment at which it was made,
so its way is measured and not inferred. Workloads are outermost, targets innermost; between two, all must come to rest.
A result counts only without errors, with 2xx alone and 64 tokens in every stream, and it is measured again when
something else had the generator's core for {overrun:g} ms. Processor time is user and system
time of a target's whole process tree, until it has come to rest: what it puts off counts.

**Ours** runs as users run it: `sparewatt gateway run` with an API key, rate limits (set too high to bite), an account
that pays, books and journal on a real Postgres, matching over {nodes:,} nodes, metering, failover. Its nodes are no
HTTP servers but links: {nodes:,} WebSockets with keys and handshakes of their own, from one stand-in process
(`bench/gateway/nodes.py`) that makes the same bytes as the C model server, sends heartbeats every 5 s, and signs
receipts on sheets. Cards, speeds and prices are those of the simulator's fleet; who serves is the matcher's choice.
**Only the gateway's processor time and memory count as ours**; nodes and Postgres are listed apart. A node sends the
tokens of one step as one message; with fewer streams than nodes hardly any two share one. Under `S3-shared` they do:
ours is asked for a model that only a few large nodes have, peers as under S3; no goal is judged by it. `sparewatt-2` is
a gateway of two processes on both cores, which they share with all that asks and serves them: N64 alone is asked of it.
Postgres comes after all of these, and before whatever else the machine does.

**Not like for like**: nginx forwards bytes; vllm-router and sglang-router parse, retry and export metrics; LiteLLM
looks up keys and budgets and calls back. None of them, as run here, keeps books or holds links to nodes. LiteLLM is
tuned (httptools, OpenTelemetry installed, production mode) and is left out where it collapses ({too_slow}):
its streams are judged at S1.
"""


def report(run: Run) -> str:
    judged = judge(run.samples)
    parts = [
        METHOD.format(
            cores=os.cpu_count(),
            cpu=_cpu_name(),
            kernel=platform.release().partition("-")[0],
            python=platform.python_version(),
            commit=_commit(),
            environment=environment.describe(),
            rounds=run.rounds,
            noise=f"\n\n**This run does not count.** {run.noise}" if run.noise else "",
            goals=goals_table(judged),
            ahead=AHEAD if run.is_realtime else "at ordinary priority",
            nodes=run.nodes,
            overrun=OVERRUN_MS_MAX,
            too_slow=", ".join(next(iter(TOO_SLOW_FOR.values()))),
        ),
        "## Versions\n\n" + _versions(run),
        *(_scenario_section(run, scenario) for scenario in SCENARIOS),
        _memory_section(run),
        _apart_section(run),
        _remarks_section(run),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def goals_table(judged: Sequence[GoalResult]) -> str:
    rows = ["| what | goal | measured | | rounds |", "| --- | --- | --- | --- | --- |"]
    for one in judged:
        measured = "" if one.measured is None else f"{_number(one.measured)} {one.goal.unit}"
        verdict = one.verdict if one.verdict == "met" else f"**{one.verdict}**"
        each = ", ".join(map(_number, one.rounds))
        rows.append(f"| {one.goal.what} | {one.goal.in_words} | {measured} | {verdict} | {each} |")
    return "\n".join(rows)


def summary_table(judged: Sequence[GoalResult]) -> str:
    """The short table of `docs/measurements/README.md`."""
    rows = ["| the gateway beside other proxies | goal | measured | |", "| --- | --- | --- | --- |"]
    for one in judged:
        measured = "not measured" if one.measured is None else f"{_number(one.measured)} {one.goal.unit}"
        verdict = "" if one.verdict == "not measured" else one.verdict
        rows.append(f"| {one.goal.what} | {one.goal.in_words} | {measured} | {verdict} |")
    return "\n".join(rows)


def between_marks(text: str, table: str) -> str:
    """`text` with the table in its place. Raises ValueError when it has no such place."""
    before, begun, rest = text.partition(BEGIN_MARK)
    _, ended, after = rest.partition(END_MARK)
    if not begun or not ended:
        raise ValueError(f"there is no place between {BEGIN_MARK} and {END_MARK}")
    return f"{before}{BEGIN_MARK}\n{table}\n{END_MARK}{after}"


def as_json(run: Run) -> dict[str, Any]:
    return {
        "commit": _commit(),
        "environment": environment.describe(),
        "machine": {"cores": os.cpu_count(), "cpu": _cpu_name(), "kernel": platform.release()},
        "realtime": run.is_realtime,
        "noise": run.noise,
        "rounds": run.rounds,
        "nodes": run.nodes,
        "versions": {target.name: target.version for target in run.targets},
        "goals": [
            {
                "what": one.goal.what,
                "goal": one.goal.in_words,
                "measured": one.measured,
                "verdict": one.verdict,
                "rounds": list(one.rounds),
            }
            for one in judge(run.samples)
        ],
        "booked": {name: asdict(booked) for name, booked in run.booked.items()},
        "skipped": list(run.skipped),
        "samples": [asdict(sample) for sample in run.samples.every],
    }


# sections

_COLUMNS: tuple[tuple[str, Value], ...] = (
    ("answers/s", per_s),
    ("CPU µs/request", cpu_us_per_request),
    ("CPU µs/token", cpu_us_per_token),
)
_TIMES = (("whole answer", "latency_ms"), ("first token", "first_token_ms"), ("token under way", "token_ms"))


def _scenario_section(run: Run, scenario: Scenario) -> str:
    names = [target.name for target in run.targets if run.samples.has(scenario.name, target.name)]
    if not names:
        return ""
    times = _TIMES if scenario.is_stream else _TIMES[:1]
    columns = _COLUMNS if scenario.is_stream else _COLUMNS[:2]
    columns = columns[1:] if scenario.rate else columns
    against, value = _compared(scenario)
    heads = [
        "target",
        *(title for title, _ in columns),
        *(f"{title} p50 / p99 ms" for title, _ in times),
        *(f"{against} / {other}" for other in (NGINX, SGLANG)),
    ]
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name in names:
        cells = [_cell(run.samples.median(scenario.name, name, column)) for _, column in columns]
        cells += [_pair(run.samples, scenario.name, name, series) for _, series in times]
        cells += [_ratio(run.samples, scenario.name, name, other, value) for other in (NGINX, SGLANG)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return f"## {scenario.name}: {scenario.title}, {scenario.seconds:g} s\n\n" + "\n".join(rows)


def _compared(scenario: Scenario) -> tuple[str, Value]:
    """The figures by which targets are compared under a workload."""
    if scenario.pace_ms:
        return "CPU µs/token", cpu_us_per_token
    if scenario.rate or scenario.is_stream:
        return "whole answer p50", whole_p50
    return "answers/s", per_s


def _memory_section(run: Run) -> str:
    found = [(target.name, run.samples.median(MEMORY.name, target.name, memory_mb)) for target in run.targets]
    rows = [f"| {name} | {_cell(value)} |" for name, value in found if value is not None]
    if not rows:
        return ""
    head = "Proportional set size, after less before, once per target and before all else."
    return f"## Memory of {MEMORY.title}\n\n{head}\n\n| target | MB |\n| --- | --- |\n" + "\n".join(rows)


def _apart_section(run: Run) -> str:
    """Processor time of our nodes and database, which is not part of the gateway's figures."""
    rows = []
    for target in run.targets:
        if not target.helpers:
            continue
        for scenario in (IDLE, *(scenario.name for scenario in SCENARIOS)):
            found = list(run.samples.clean(scenario, target.name).values())
            if found:
                cells = [
                    f"{sum(getattr(sample, name) for sample in found) / len(found):.2f}"
                    for name in ("cpu_s", "helper_cpu_s", "database_cpu_s")
                ]
                rows.append(f"| {target.name} | {scenario} | {' | '.join(cells)} |")
    if not rows:
        return ""
    head = (
        f"Processor seconds of a whole run, mean of the rounds; `{IDLE}` is {IDLE_S:g} s without a request, in which"
        f" heartbeats of {run.nodes:,} nodes come and go.\n\n"
        "| target | workload | gateway | nodes | Postgres |\n| --- | --- | --- | --- | --- |\n"
    )
    books = [
        f"- {name}: afterwards {booked.jobs:,} jobs and {booked.receipts:,} receipts stood in the books, in order."
        for name, booked in run.booked.items()
    ]
    return "## Beside the gateway\n\n" + head + "\n".join([*rows, "", *books])


def _remarks_section(run: Run) -> str:
    lines = [f"- {_which(sample)} does not count: {', '.join(sample.faults)}." for sample in run.samples.faulty()]
    lines += [
        f"- {_which(sample)} does not count: something else ran for {sample.overrun_ms:.0f} ms."
        for sample in run.samples.every
        if is_disturbed(sample)
    ]
    lines += [
        f"- After {_which(sample)} not everything came to rest within {SETTLE_S_MAX:g} s."
        for sample in run.samples.every
        if not sample.settled
    ]
    lines += [f"- {line}" for line in run.skipped]
    return "## Remarks\n\n" + "\n".join(lines) if lines else ""


def _which(sample: Sample) -> str:
    return f"{sample.target} under {sample.scenario} in round {sample.round + 1}"


def _versions(run: Run) -> str:
    found = [f"{target.name} {target.version}" for target in run.targets if target.name != DIRECT]
    return f"{', '.join(found)}; direct is the model server itself."


# cells


def _cell(value: float | None) -> str:
    return "" if value is None else _number(value)


def _pair(samples: Samples, scenario: str, target: str, series: str) -> str:
    p50 = samples.median(scenario, target, time_ms(series, "p50"))
    p99 = samples.median(scenario, target, time_ms(series, "p99"))
    return "" if p50 is None or p99 is None else f"{_number(p50)} / {_number(p99)}"


def _ratio(samples: Samples, scenario: str, target: str, other: str, value: Value) -> str:
    mine, its = samples.median(scenario, target, value), samples.median(scenario, other, value)
    return "" if mine is None or not its else _number(mine / its)


def _number(value: float) -> str:
    """Three significant digits, or all before the decimal point."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    argv = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(argv, check=False, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"
