"""`sparewatt simulate`: how a network would do, before anybody buys or joins anything."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparewatt.cli import output
from sparewatt.cli.errors import CliError
from sparewatt.cli.param_types import FiniteRange

if TYPE_CHECKING:
    from sparewatt.sim.results.spot_comparison import NetworkRow, SpotRow
    from sparewatt.sim.results.summary import RunSummary
    from sparewatt.sim.study import StudyCase, StudyConfig, StudyResult, StudyRun


FRACTION = FiniteRange(0.0, 1.0)
NODES_MAX, RATE_MAX, DURATION_S_MAX, SEEDS_MAX, JOBS_MAX = 20_000, 10_000.0, 86_400.0, 100, 5_000_000
PROGRESS_AFTER_S, PROGRESS_EVERY_S = 2.0, 0.5
IN_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
OUT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
STDOUT = Path("-")


class SimulationProgress:
    """One line on stderr that says what runs, for anything that takes longer than two seconds."""

    def __init__(self) -> None:
        self._started_s = self._shown_s = time.monotonic()
        self._last = ""
        self._live = sys.stderr.isatty()

    def __call__(self, what: str, share: float) -> None:
        now_s = time.monotonic()
        if now_s - self._started_s < PROGRESS_AFTER_S or now_s - self._shown_s < PROGRESS_EVERY_S:
            return
        self._shown_s = now_s
        if self._live:
            print(f"\r\x1b[Ksimulating {what}: {share:4.0%}", end="", file=sys.stderr, flush=True)
        elif what != self._last:
            print(f"simulating {what}", file=sys.stderr, flush=True)
        self._last = what

    def end(self) -> None:
        if self._live and self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@click.command()
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), default=500, show_default=True, help="Simulated machines.")
@click.option("--rate", type=FiniteRange(0.1, RATE_MAX), default=135.0, show_default=True, help="Requests a second.")
@click.option(
    "--duration", type=FiniteRange(1.0, DURATION_S_MAX), default=300.0, show_default=True,
    help="Measured seconds, after a minute that is not.",
)  # fmt: skip
@click.option(
    "--gateways", type=click.IntRange(1, 8), default=1, show_default=True, help="Entrances, in as many regions."
)
@click.option("--heartbeat", type=FiniteRange(0.1, 600.0), help="Seconds between reports.  [default: the product's]")
@click.option("--mtbf", type=FiniteRange(1.0, 1e9), help="Mean seconds until a home machine breaks.  [default: 4 h]")
@click.option("--liars", type=FRACTION, default=0.0, help="Share of nodes that claim 5x their speed.")
@click.option("--garbage", type=FRACTION, default=0.0, help="Share of nodes that answer 4x fast and worthlessly.")
@click.option("--flaky", type=FRACTION, default=0.0, help="Share of nodes that fail 20 % of their jobs.")
@click.option("--policy", "policies", metavar="A,B,C", help="Which policies to run.  [default: all]")
@click.option("--seeds", type=click.IntRange(1, SEEDS_MAX), default=2, show_default=True, help="Fleets and job lists.")
@click.option("--trace", type=IN_FILE, help="Requests: csv.gz or jsonl.gz with t_ms, input_tokens, output_tokens.")
@click.option("--no-affinity", is_flag=True, help="Do not look at which node has read a prompt's beginning before.")
@click.option(
    "--prefix-ram", type=FiniteRange(0.0, 10_000.0), default=0.0, metavar="GB",
    help="Main memory of every machine for prompts it has read, besides free memory of its card.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=OUT_FILE, metavar="FILE|-", help="Write the numbers here; - for stdout, alone."
)
@click.option("--plot", type=OUT_FILE, help="Write a picture (SVG) here.")
@click.option("--compare-spot", is_flag=True, help="Compare with renting the cards at spot prices.")
def simulate(
    *, nodes: int, rate: float, duration: float, gateways: int, heartbeat: float | None, mtbf: float | None,
    liars: float, garbage: float, flaky: float, policies: str | None, seeds: int, trace: Path | None,
    no_affinity: bool, prefix_ram: float, json_file: Path | None, plot: Path | None, compare_spot: bool,
) -> None:  # fmt: skip
    """Run the shipped matcher over simulated machines, next to other policies, an oracle and a bound.

    Every policy gets the same machines and the same requests. The oracle knows all that policies can only guess; the
    bound is every job alone on its best warm machine. Requests come from a trace, or from a built-in generator.

    \b
    Example:
      sparewatt simulate --nodes 500 --rate 135 --policy balanced,p2c
      sparewatt simulate --liars 0.3 --policy balanced --json liars.json --plot liars.svg
    """
    from sparewatt.inference.matcher.node_row import HealthRules
    from sparewatt.sim.scenario import MTBF_S, FaultRates
    from sparewatt.sim.study import StudyConfig
    from sparewatt.sim.traffic import read_trace

    if liars + garbage + flaky > 1.0:
        raise click.UsageError("--liars, --garbage and --flaky are shares of the same nodes: together at most 1.")
    if rate * duration > JOBS_MAX:
        raise click.UsageError(f"--rate times --duration is at most {JOBS_MAX:,} requests.")
    if plot == STDOUT:
        raise click.UsageError("--plot needs a file.")
    for file in (json_file, plot):
        _check_folder(file)
    question = StudyConfig(
        nodes=nodes,
        rate=rate,
        duration_s=duration,
        gateways=gateways,
        heartbeat_s=heartbeat if heartbeat is not None else HealthRules().heartbeat_s,
        seeds=seeds,
        schedulers=_policies(policies),
        faults=FaultRates(liars=liars, garbage=garbage, flaky=flaky, mtbf_s=mtbf if mtbf is not None else MTBF_S),
        affinity=not no_affinity,
        prefix_ram_gb=prefix_ram,
    )
    requests = read_trace(trace) if trace is not None else None
    progress, renting = SimulationProgress(), SpotComparison() if compare_spot else None
    answer = _study(question, requests, progress, renting)
    _write(answer, json_file=json_file, plot=plot)
    if json_file == STDOUT:
        return
    _print_answer(answer)
    if renting is not None:
        renting.print()


def _study(
    question: StudyConfig, requests: object, progress: SimulationProgress, renting: SpotComparison | None
) -> StudyResult:
    from sparewatt.sim.study import study

    try:
        return study(question, requests, progress=progress, each=renting.add if renting else None)  # type: ignore[arg-type]
    finally:
        progress.end()


def _policies(words: str | None) -> tuple[str, ...]:
    from sparewatt.sim.study import SCHEDULERS

    if words is None:
        return SCHEDULERS
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    unknown = [name for name in names if name not in SCHEDULERS]
    if unknown or not names:
        what = f"There is no policy {unknown[0]!r}." if unknown else "No policy is named."
        raise click.BadParameter(f"{what} Choose from {', '.join(SCHEDULERS)}.", param_hint="'--policy'")
    return names


def _check_folder(file: Path | None) -> None:
    """Better now than after minutes of work."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.UsageError(f"The folder of {file} does not exist.")


def _write(answer: StudyResult, *, json_file: Path | None, plot: Path | None) -> None:
    import json

    from sparewatt.sim.results.plot import draw

    try:
        if json_file == STDOUT:
            output.print_json(answer.as_dict())
        elif json_file is not None:
            json_file.write_text(json.dumps(answer.as_dict(), indent=2) + "\n", encoding="utf-8")
        if plot is not None:
            plot.write_text(draw(answer), encoding="utf-8")
    except OSError as error:
        raise CliError(f"The result could not be written: {error}.") from None


def _print_answer(answer: StudyResult) -> None:
    columns = [
        *output.left("policy"),
        *output.right(
            "first token p50/p99", "mean", "spread", "p50/p99", "SLO", "failed", "$/1M", "warm", "Gini", "gap"
        ),
    ]
    with_garbage = answer.config.faults.garbage > 0
    if with_garbage:
        columns += output.right("garbage")
    named = {**answer.schedulers, "oracle": answer.oracle, "bound": answer.bound}
    output.print_table(columns, [_row(name, runs, with_garbage=with_garbage) for name, runs in named.items()])


def _row(name: str, runs: list[RunSummary], *, with_garbage: bool) -> list[str]:
    from sparewatt.sim.results.summary import mean_of

    numbers = mean_of(runs)
    means = [run.e2e_mean for run in runs]
    row = [
        name,
        f"{numbers.ttft_p50:.2f}/{numbers.ttft_p99:.1f} s",
        f"{numbers.e2e_mean:.2f} s",
        f"±{(max(means) - min(means)) / 2:.2f}",
        f"{numbers.e2e_p50:.2f}/{numbers.e2e_p99:.1f} s",
        f"{numbers.slo:.1%}",
        f"{numbers.failed:.2%}",
        f"${numbers.usd_per_mtok:.3f}",
        f"{numbers.warm_hit:.1%}",
        f"{numbers.gini:.2f}",
        f"{numbers.gap_to_oracle:+.1%}",
    ]
    return [*row, f"{numbers.garbage:.2%}"] if with_garbage else row


class SpotComparison:
    """What `--compare-spot` gathers from every run, and prints."""

    def __init__(self) -> None:
        self._network: dict[str, list[NetworkRow]] = {}
        self._spot: list[SpotRow] = []

    def add(self, name: str, case: StudyCase, run: StudyRun) -> None:
        from sparewatt.sim.results.spot_comparison import network_row, spot_rows

        self._network.setdefault(name, []).append(network_row(case, run))
        if not self._spot:
            self._spot = spot_rows(run.jobs, duration_s=case.config.duration_s)

    def print(self) -> None:
        from sparewatt.sim.results.spot_comparison import METHOD, all_models

        output.print_title("Renting at spot prices, $ per 1M tokens")
        output.print_table(
            [*output.left("model", "card"), *output.right("cards", "always full", "whole cards")],
            [
                [row.model, row.card, str(row.cards), f"{row.full_usd:.3f}", f"{row.whole_usd:.3f}"]
                for row in self._spot
            ],
        )
        full, whole = all_models(self._spot)
        output.print_title(f"The network against that (all models: {full:.3f} always full, {whole:.3f} whole cards)")
        output.print_table(
            [
                *output.left("policy"),
                *output.right("$/1M", "over full", "over whole", "round trip p50/p99", "waiting p50/p99"),
            ],
            [self._line(name, full, whole) for name in self._network],
        )
        output.print_lines(["", METHOD])

    def _line(self, name: str, full: float, whole: float) -> list[str]:
        rows = self._network[name]
        usd = sum(row.usd for row in rows) / len(rows)

        def times(found: list[tuple[float, float]]) -> str:
            middle, tail = (1000 * sum(values) / len(values) for values in zip(*found, strict=True))
            return f"{middle:.0f}/{tail:.0f} ms"

        return [
            name,
            f"{usd:.3f}",
            f"{usd / full - 1:+.0%}",
            f"{usd / whole - 1:+.0%}",
            times([row.round_trip_s for row in rows]),
            times([row.waiting_s for row in rows]),
        ]
