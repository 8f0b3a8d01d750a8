"""The judged table of the simulator: every figure of docs/measurements/simulator.md from one command.

Run `make bench-simulator ARGS="--trace azure=FILE --trace mooncake=FILE --unseen code=FILE"`. A trace is one that the
matcher's constants were tuned on, or an unseen one; goals differ. Each run is one policy on one fleet, with what real
adapters report. The oracle is the best of its variants; without one of its secrets it shows what that secret is worth.
Results are cached under --work, so that an interrupted table can be continued. Tables go between the marks of --report.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from sparewatt.sim.results.summary import hostile_figures
from sparewatt.sim.scenario import FaultRates
from sparewatt.sim.schedulers.oracle import Secrets
from sparewatt.sim.study import StudyConfig, make_case, run_bound, run_oracle, run_scheduler
from sparewatt.sim.traffic import TraceRequest, read_trace

BEGIN, END = "<!-- judged: begin -->", "<!-- judged: end -->"
SEEDS = (1, 2)
GATEWAYS = (1, 8)
SIZES = {"azure": (500, 135.0), "mooncake": (300, 17.0), "code": (500, 200.0), "synthetic": (300, 12.0)}
"""By trace: nodes and requests per second; any other trace is run as `azure`."""
SECRETS = {
    "oracle-lengths": Secrets(lengths=False),
    "oracle-news": Secrets(news=False),
    "oracle-blind": Secrets(lengths=False, news=False),
}
"""Oracles that lack something: how long answers will be, what other gateways have just sent, or both."""
POLICIES = {
    1: ("oracle", "balanced", "oracle-lengths", "fast", "least-loaded"),
    8: ("oracle", "balanced", "oracle-lengths", "oracle-news", "oracle-blind"),
}
"""By the number of gateways."""
ASIDES = ("oracle-lengths", "oracle-news", "oracle-blind", "fast", "least-loaded")
MEAN_MAX = {"tuned": {1: 0.05, 8: 0.10}, "unseen": {1: 0.08, 8: 0.12}}
P95_MAX = {1: 0.15, 8: 0.25}
LIARS = HOSTILE = 0.3
LIARS_WITHIN = HOSTILE_WITHIN = 0.05
OUTAGE_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one fleet; the oracles of SECRETS lack something, `bound` is no policy."""

    policy: str
    trace: str
    nodes: int
    rate: float
    gateways: int
    seed: int
    duration_s: float
    liars: float = 0.0
    hostile: float = 0.0
    absent: float = 0.0

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
            faults=FaultRates(liars=self.liars, hostile=self.hostile, absent=self.absent),
        )


@dataclass(slots=True)
class Table:
    traces: dict[str, Path]
    unseen: frozenset[str]
    work: Path
    duration_s: float
    found: dict[Run, dict[str, float]] = field(default_factory=dict)

    def runs(self, policy: str, trace: str, gateways: int, **faults: float) -> list[Run]:
        nodes, rate = SIZES.get(trace, SIZES["azure"])
        if {"hostile", "absent"} & faults.keys():
            rate *= 1.0 - HOSTILE  # as busy as the whole fleet would be
        return [Run(policy, trace, nodes, rate, gateways, seed, self.duration_s, **faults) for seed in SEEDS]

    def all_runs(self) -> list[Run]:
        rows = [
            run
            for trace in self.traces
            for gateways in GATEWAYS
            for policy in POLICIES[gateways]
            for run in self.runs(policy, trace, gateways)
        ]
        first = next(iter(self.traces))
        others = (*self.runs("balanced", first, 1, hostile=HOSTILE), *self.runs("balanced", first, 1, absent=HOSTILE))
        return [*rows, *self.runs("balanced", first, 1, liars=LIARS), *self.runs("bound", first, 1), *others]

    def run_all(self, runs: Iterable[Run], *, jobs: int) -> None:
        todo = list(dict.fromkeys(runs))
        with ProcessPoolExecutor(jobs) as pool:
            done = pool.map(run_cached, todo, [self.traces[run.trace] for run in todo], [self.work] * len(todo))
            for number, (run, numbers) in enumerate(zip(todo, done, strict=True), 1):
                self.found[run] = numbers
                print(f"{number}/{len(todo)} {run.name}: {numbers['e2e_mean']:.2f} s", file=sys.stderr, flush=True)

    def mean(self, runs: Sequence[Run], figure: str = "e2e_mean") -> float:
        found = [self.found[run][figure] for run in runs if run in self.found]
        return statistics.fmean(found) if found else math.nan

    def gap(self, policy: str, trace: str, gateways: int, figure: str = "e2e_mean") -> float:
        """Over the oracle."""
        oracle = self.mean(self.runs("oracle", trace, gateways), figure)
        return self.mean(self.runs(policy, trace, gateways), figure) / oracle - 1.0

    def text(self) -> str:
        return f"{self._judged()}\n\n{self._liars()}\n\n{self._hostile()}"

    def _judged(self) -> str:
        heads = (
            *("trace", "gateways", "requests/s", "oracle mean s", "balanced: mean", "p95", "goals", "each seed"),
            *("oracle without lengths", "without news", "without both", "fast", "least-loaded"),
        )
        lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        return "\n".join([*lines, *(self._line(trace, gateways) for trace in self.traces for gateways in GATEWAYS)])

    def _line(self, trace: str, gateways: int) -> str:
        kind = "unseen" if trace in self.unseen else "tuned"
        mean_max, p95_max = MEAN_MAX[kind][gateways], P95_MAX[gateways]
        mean, p95 = self.gap("balanced", trace, gateways), self.gap("balanced", trace, gateways, "e2e_p95")
        goal = "met" if mean <= mean_max and p95 <= p95_max else "**missed**"
        cells = (
            f"{trace} ({kind})",
            str(gateways),
            f"{SIZES.get(trace, SIZES['azure'])[1]:.0f}",
            f"{self.mean(self.runs('oracle', trace, gateways)):.2f}",
            f"{mean:+.1%}",
            f"{p95:+.1%}",
            f"≤ {mean_max:.0%} / {p95_max:.0%}: {goal}",
            self._each_seed(trace, gateways),
            *(self._aside(policy, trace, gateways) for policy in ASIDES),
        )
        return f"| {' | '.join(cells)} |"

    def _aside(self, policy: str, trace: str, gateways: int) -> str:
        gap = self.gap(policy, trace, gateways)
        return "" if math.isnan(gap) else f"{gap:+.1%}"

    def _each_seed(self, trace: str, gateways: int) -> str:
        pairs = zip(self.runs("balanced", trace, gateways), self.runs("oracle", trace, gateways), strict=True)
        return ", ".join(
            f"{self.found[ours]['e2e_mean'] / self.found[oracle]['e2e_mean'] - 1:+.1%}"
            for ours, oracle in pairs
            if ours in self.found and oracle in self.found
        )

    def _liars(self) -> str:
        trace = next(iter(self.traces))
        honest, lying = (
            self.mean(self.runs("balanced", trace, 1)),
            self.mean(self.runs("balanced", trace, 1, liars=LIARS)),
        )
        bound = self.mean(self.runs("bound", trace, 1))
        return (
            f"{LIARS:.0%} of the nodes claim five times their speed ({trace}, 1 gateway): {lying:.2f} s, honest fleet "
            f"{honest:.2f} s, {lying / honest - 1:+.1%} (goal: within {LIARS_WITHIN:.0%}). Every job alone on its best "
            f"machine: {bound:.2f} s."
        )

    def _hostile(self) -> str:
        trace = next(iter(self.traces))
        there, gone = (self.runs("balanced", trace, 1, **{fault: HOSTILE}) for fault in ("hostile", "absent"))
        beside, alone = self.mean(there, "real_mean_s"), self.mean(gone, "real_mean_s")
        outage_s = max((self.found[run]["outage_s"] for run in there if run in self.found), default=math.nan)
        return (
            f"{HOSTILE:.0%} of the nodes are hostile: newcomers that claim to be by far the fastest at no price, and "
            "refuse, say nothing, stall, answer nonsense, or refuse after ten good jobs "
            f"({trace}, 1 gateway). Real answers take {beside:.2f} s, without those nodes {alone:.2f} s, "
            f"{beside / alone - 1:+.1%} (goal: within {HOSTILE_WITHIN:.0%}). No model was unavailable for more than "
            f"{outage_s:.1f} s (goal: {OUTAGE_S_MAX:.0f}). {self.mean(there, 'nonsense'):.1%} of the jobs were "
            "answered with nonsense, which only a check of answers can find."
        )


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
        case policy if policy in SECRETS:
            numbers = run_oracle(case, secrets=SECRETS[policy]).summary
        case "bound":
            numbers = run_bound(case)
        case _:
            done = run_scheduler(case, run.policy)
            return done.summary.as_dict() | hostile_figures(done.measurements, done.jobs)._asdict()
    return numbers.as_dict()


@cache
def requests_of(trace: Path) -> list[TraceRequest]:
    return read_trace(trace)


def put_between_marks(report: Path, text: str) -> None:
    before, _, rest = report.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    report.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    return name, Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=_named, action="append", default=[], metavar="NAME=FILE", help="tuned on")
    parser.add_argument("--unseen", type=_named, action="append", default=[], metavar="NAME=FILE", help="not tuned on")
    parser.add_argument("--work", type=Path, default=Path(".venv/judged"), help="cache of single runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--duration", type=float, default=100.0, help="measured seconds of each run")
    parser.add_argument("--report", type=Path, help="put the tables between the marks of this file")
    given = parser.parse_args()
    if not given.trace + given.unseen:
        parser.error("at least one trace is needed")
    given.work.mkdir(parents=True, exist_ok=True)
    unseen = frozenset(name for name, _ in given.unseen)
    table = Table(dict(given.trace + given.unseen), unseen, given.work, given.duration)
    table.run_all(table.all_runs(), jobs=given.jobs)
    print(table.text())
    if given.report is not None:
        put_between_marks(given.report, table.text())


if __name__ == "__main__":
    main()
