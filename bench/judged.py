"""The judged table of the simulator: every figure of docs/measurements/simulator.md from one command.

Run `make bench-simulator ARGS="--azure FILE --mooncake FILE"`. Each run is one policy on one fleet. Results are
cached under --work, so that an interrupted run can be continued. The tables go between the marks of --report.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.sim.scenario import FaultRates
from sparewatt.sim.study import StudyConfig, make_case, run_bound, run_oracle, run_scheduler
from sparewatt.sim.traffic import TraceRequest, read_trace

BEGIN, END = "<!-- judged: begin -->", "<!-- judged: end -->"
RATES = (65.0, 135.0, 230.0)
NODES = 500
DEFAULT_S = HealthRules().heartbeat_s
KIND = "neuralgrid-kind"
REFERENCE = {65.0: (4.03, 9.23), 135.0: (5.57, 21.2), 230.0: (9.61, 29.7)}
"""By rate: mean seconds of the oracle, and of NeuralGrid in its most favourable interpretation."""
BOUND_S = 1.65
SEEDS = (1, 2)
TIMES_MIN = 2.0
"""How much faster than that NeuralGrid."""


@dataclass(frozen=True, slots=True)
class Run:
    """One policy (or `oracle`, or `bound`) on one fleet."""

    policy: str
    trace: str = "azure"
    nodes: int = NODES
    rate: float = 135.0
    gateways: int = 1
    heartbeat_s: float = DEFAULT_S
    seed: int = 1
    liars: float = 0.0
    garbage: float = 0.0
    duration_s: float = StudyConfig().duration_s

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in asdict(self).values())

    @property
    def config(self) -> StudyConfig:
        return StudyConfig(
            nodes=self.nodes,
            rate=self.rate,
            duration_s=self.duration_s,
            gateways=self.gateways,
            heartbeat_s=self.heartbeat_s,
            faults=FaultRates(liars=self.liars, garbage=self.garbage),
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: `balanced` compared with the oracle, over all seeds."""

    trace: str
    nodes: int
    rate: float
    gateways: int
    heartbeat_s: float
    gap_max: float
    slo_points_max: float | None
    against_kind: bool = True

    def runs(self, policy: str) -> list[Run]:
        """The oracle needs no heartbeat: one run serves rows that differ only in that."""
        heartbeat_s = DEFAULT_S if policy == "oracle" else self.heartbeat_s
        return [Run(policy, self.trace, self.nodes, self.rate, self.gateways, heartbeat_s, seed) for seed in SEEDS]


ROWS = (
    *(Row("azure", 500, rate, 1, DEFAULT_S, 0.10, 2.0) for rate in RATES),
    *(Row("azure", 500, rate, 8, 1.0, 0.20, 5.0, against_kind=False) for rate in RATES),
    *(Row("azure", 500, rate, 8, DEFAULT_S, 0.27, 5.0) for rate in RATES),
    Row("mooncake", 300, 17.0, 1, DEFAULT_S, 0.10, None),
    Row("mooncake", 300, 17.0, 8, DEFAULT_S, 0.45, None),
)
LIAR_SEEDS = {500: SEEDS, 200: (1, 2, 3)}
LIAR_FLEETS = ((500, 135.0), (200, 54.0))
GARBAGE = 0.1


@dataclass(slots=True)
class Bench:
    traces: dict[str, Path]
    work: Path
    duration_s: float
    others_s: float
    found: dict[Run, dict[str, float]] = field(default_factory=dict)

    def timed(self, run: Run) -> Run:
        """With its duration: queues grow with time, and under a light load they need a long run to do so."""
        is_long = run.trace == "azure" and (run.gateways == 1 or run.rate == min(RATES))
        return replace(run, duration_s=self.duration_s if is_long else self.others_s)

    def read_cached(self, runs: Iterable[Run]) -> None:
        """Load cached results; runs nothing."""
        for run in runs:
            cached = self.work / f"{self.timed(run).name}.json"
            if cached.exists():
                self.found[run] = json.loads(cached.read_text(encoding="utf-8"))

    def run_all(self, runs: Iterable[Run], *, jobs: int) -> None:
        todo = list(dict.fromkeys(runs))
        with ProcessPoolExecutor(jobs) as pool:
            timed = [self.timed(run) for run in todo]
            done = pool.map(run_cached, timed, [self.traces[run.trace] for run in todo], [self.work] * len(todo))
            for number, (run, numbers) in enumerate(zip(todo, done, strict=True), 1):
                self.found[run] = numbers
                print(f"{number}/{len(todo)} {run.name}: {numbers['e2e_mean']:.2f} s", file=sys.stderr, flush=True)

    def pairs(self, ones: Sequence[Run], others: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Of two lists of runs, those seeds for which both have a result."""
        both = [pair for pair in zip(ones, others, strict=True) if all(run in self.found for run in pair)]
        return [one for one, _ in both], [other for _, other in both]

    def mean(self, runs: Sequence[Run], figure: str = "e2e_mean") -> float:
        """Over the seeds with a result; NaN if there is none."""
        found = [self.found[run][figure] for run in runs if run in self.found]
        return statistics.fmean(found) if found else math.nan

    def each(self, runs: Sequence[Run]) -> str:
        return ", ".join(f"{self.found[run]['e2e_mean']:.2f}" for run in runs if run in self.found)


def run_cached(run: Run, trace: Path, work: Path) -> dict[str, float]:
    """The numbers of a run, from the cache if they are there."""
    cached = work / f"{run.name}.json"
    if not cached.exists():
        cached.write_text(json.dumps(run_one(run, trace)), encoding="utf-8")
    found: dict[str, float] = json.loads(cached.read_text(encoding="utf-8"))
    return found


def run_one(run: Run, trace: Path) -> dict[str, float]:
    case = make_case(run.config, requests_of(trace), seed=run.seed)
    match run.policy:
        case "oracle":
            numbers = run_oracle(case).summary
        case "bound":
            numbers = run_bound(case)
        case _:
            numbers = run_scheduler(case, run.policy).summary
    return numbers.as_dict(with_garbage=True)


@cache
def requests_of(trace: Path) -> list[TraceRequest]:
    return read_trace(trace)


# what is run


def all_runs() -> list[Run]:
    """Seed by seed, the reference's rows first: an interrupted table has fewer seeds or fewer rows."""
    rows = [run for row in ROWS for policy in ("oracle", "balanced") for run in row.runs(policy)]
    kinds = [run for row in ROWS if row.against_kind for run in row.runs(KIND)]
    bounds = [run for row in ROWS[: len(RATES)] for run in row.runs("bound")]
    found = [*rows, *bounds, *liar_runs(), *garbage_runs(), *kinds]
    return sorted(found, key=lambda run: (run.seed, run.gateways, run.nodes != NODES, run.liars + run.garbage))


def liar_runs() -> list[Run]:
    return [run for fleet in LIAR_FLEETS for pair in liar_pairs(*fleet) for run in pair]


def liar_pairs(nodes: int, rate: float) -> list[tuple[Run, Run]]:
    return [
        (
            Run("balanced", nodes=nodes, rate=rate, seed=seed),
            Run("balanced", nodes=nodes, rate=rate, seed=seed, liars=0.3),
        )
        for seed in LIAR_SEEDS[nodes]
    ]


def garbage_runs() -> list[Run]:
    return [Run("balanced", seed=seed, garbage=GARBAGE) for seed in SEEDS]


# the tables


def tables(bench: Bench) -> str:
    return "\n\n".join([reference_table(bench), judged_table(bench), liar_table(bench), garbage_lines(bench)])


def reference_table(bench: Bench) -> str:
    lines = [
        "| requests/s | oracle (reference) | seed's best reading (reference) | its failed jobs | bound (reference) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in ROWS[: len(RATES)]:
        oracle_s, kind_s, bound_s = (bench.mean(row.runs(name)) for name in ("oracle", KIND, "bound"))
        wanted_s, kind_wanted_s = REFERENCE[row.rate]
        failed = bench.mean(row.runs(KIND), "failed")
        lines.append(
            f"| {row.rate:.0f} | {oracle_s:.2f} s ({wanted_s}, {oracle_s / wanted_s - 1:+.0%}) "
            f"| {kind_s:.2f} s ({kind_wanted_s}, {kind_s / kind_wanted_s - 1:+.0%}) "
            f"| {failed:.2%} | {bound_s:.2f} s ({BOUND_S}, {bound_s / BOUND_S - 1:+.0%}) |"
        )
    return "\n".join(lines)


def judged_table(bench: Bench) -> str:
    names = (
        *("trace", "gateways", "heartbeat", "requests/s", "balanced (each seed)", "oracle", "over the oracle"),
        *("SLO points below", "failed", "seed's best reading", "goal"),
    )
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    return "\n".join([*lines, *(judged_line(bench, row) for row in ROWS)])


def judged_line(bench: Bench, row: Row) -> str:
    ours, oracle = bench.pairs(row.runs("balanced"), row.runs("oracle"))
    if math.isnan(bench.mean(ours) + bench.mean(oracle)):
        return f"| {row.trace} | {row.gateways} | {row.heartbeat_s:.0f} s | {row.rate:.0f} | not run | | | | | | |"
    mean_s, oracle_s = bench.mean(ours), bench.mean(oracle)
    gap = mean_s / oracle_s - 1
    points = 100 * (bench.mean(oracle, "slo") - bench.mean(ours, "slo"))
    times = bench.mean(row.runs(KIND)) / mean_s
    is_met = gap <= row.gap_max and points <= (row.slo_points_max or 100.0) and not times < TIMES_MIN
    goal = "no goal" if row.slo_points_max is None else f"≤ {row.slo_points_max:.0f}"
    return (
        f"| {row.trace} | {row.gateways} | {row.heartbeat_s:.0f} s | {row.rate:.0f} "
        f"| {mean_s:.2f} s ({bench.each(ours)}) | {oracle_s:.2f} s "
        f"| {gap:+.1%} (≤ {row.gap_max:.0%}) | {points:+.1f} ({goal}) "
        f"| {bench.mean(ours, 'failed'):.3%} | {'not run' if math.isnan(times) else f'{times:.1f}x'} "
        f"| {'met' if is_met else '**missed**'} |"
    )


def liar_table(bench: Bench) -> str:
    lines = [
        "| 30 % claim 5x their speed | honest fleet | with liars | difference (goal: within 5 %) |",
        "| --- | --- | --- | --- |",
    ]
    for nodes, rate in LIAR_FLEETS:
        honest, lying = bench.pairs(*(list(runs) for runs in zip(*liar_pairs(nodes, rate), strict=True)))
        before_s, after_s = bench.mean(honest), bench.mean(lying)
        lines.append(
            f"| {nodes} nodes, {rate:.0f} requests/s | {before_s:.2f} s ({bench.each(honest)}) "
            f"| {after_s:.2f} s ({bench.each(lying)}) | {after_s / before_s - 1:+.1%} |"
        )
    return "\n".join(lines)


def garbage_lines(bench: Bench) -> str:
    runs = garbage_runs()
    nonsense, failed = bench.mean(runs, "garbage"), bench.mean(runs, "failed")
    if math.isnan(nonsense):
        return "Garbage: not run."
    return (
        f"{GARBAGE:.0%} of nodes answer garbage (135 requests/s, 1 gateway): {nonsense:.1%} of answers are nonsense, "
        f"{failed:.1%} of jobs failed (nonsense counts), mean {bench.mean(runs):.2f} s."
    )


def put_between_marks(report: Path, text: str) -> None:
    before, _, rest = report.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    report.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, required=True, help="the Azure conversation trace (csv.gz)")
    parser.add_argument("--mooncake", type=Path, required=True, help="the Mooncake conversation trace (jsonl.gz)")
    parser.add_argument("--work", type=Path, default=Path(".venv/judged"), help="cache of single runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--duration", type=float, default=StudyConfig().duration_s, help="measured seconds of each run")
    parser.add_argument("--others", type=float, help="the same for rows that take long")
    parser.add_argument("--only-kept", action="store_true", help="run nothing: tables of what was run before")
    parser.add_argument("--report", type=Path, help="put the tables between the marks of this file")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        {"azure": given.azure, "mooncake": given.mooncake}, given.work, given.duration, given.others or given.duration
    )
    if given.only_kept:
        bench.read_cached(all_runs())
    else:
        bench.run_all(all_runs(), jobs=given.jobs)
    text = tables(bench).replace("nan s", "not run").replace("+nan%", "").replace("nan%", "")
    print(text)
    if given.report is not None:
        put_between_marks(given.report, text)


if __name__ == "__main__":
    main()
