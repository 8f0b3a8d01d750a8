"""`sparewatt simulate`: the shipped matcher over simulated machines, compared with other policies and spot prices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparewatt.cli import output
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples
from sparewatt.cli.output import Column, left, right
from sparewatt.cli.param_types import FiniteRange

if TYPE_CHECKING:
    from sparewatt.sim.results.spot_comparison import NetworkRow, SpotRow
    from sparewatt.sim.results.summary import RunSummary
    from sparewatt.sim.study import StudyCase, StudyResult, StudyRun


FRACTION = FiniteRange(0.0, 1.0)
NODES_MAX, RATE_MAX, DURATION_S_MAX, SEEDS_MAX, JOBS_MAX = 20_000, 10_000.0, 86_400.0, 100, 5_000_000
PROGRESS_AFTER_S, PROGRESS_EVERY_S = 2.0, 0.5
IN_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
OUT_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
STDOUT = Path("-")


class SimulationProgress:
    """A line of progress on stderr, for studies that take longer than two seconds."""

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
    help="Measured seconds, after a minute of warm-up.",
)  # fmt: skip
@click.option(
    "--gateways", type=click.IntRange(1, 8), default=1, show_default=True, help="Gateways, in as many regions."
)
@click.option("--heartbeat", type=FiniteRange(0.1, 600.0), help="Seconds between reports.  [default: the product's]")
@click.option("--mtbf", type=FiniteRange(1.0, 1e9), help="Mean seconds until a home machine fails.  [default: 4 h]")
@click.option("--liars", type=FRACTION, default=0.0, help="Share of nodes that claim 5x their speed.")
@click.option("--garbage", type=FRACTION, default=0.0, help="Share of nodes that answer worthless text, 4x as fast.")
@click.option("--flaky", type=FRACTION, default=0.0, help="Share of nodes that fail some of their jobs.")
@click.option("--flaky-fails", type=FRACTION, default=0.2, show_default=True, help="Of a flaky node's jobs.")
@click.option("--checks/--no-checks", default=True, help="Whether answers are checked where some are worthless.")
@click.option(
    "--hostile", type=FRACTION, default=0.0, help="Share of new nodes that claim 200x their speed, and harm their jobs."
)
@click.option("--policy", "policies", metavar="A,B,C", help="Which policies to run.  [default: all]")
@click.option(
    "--seeds",
    type=click.IntRange(1, SEEDS_MAX),
    default=2,
    show_default=True,
    help="Fleets to average over.",
)
@click.option("--trace", type=IN_FILE, help="Requests: csv.gz or jsonl.gz with t_ms, input_tokens, output_tokens.")
@click.option("--no-affinity", is_flag=True, help="Rank without prefix affinity (who has a prompt's beginning cached).")
@click.option(
    "--prefix-ram", type=FiniteRange(0.0, 10_000.0), default=0.0, metavar="GB",
    help="Main memory of every machine for its prefix cache, besides free memory of its GPU.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=OUT_FILE, metavar="FILE|-", help="Write the results here; - prints nothing else."
)
@click.option("--plot", type=OUT_FILE, help="Write a plot (SVG) here.")
@click.option("--compare-spot", is_flag=True, help="Compare with renting the cards at spot prices.")
@examples(
    "sparewatt simulate --nodes 500 --rate 135 --policy balanced,p2c",
    "sparewatt simulate --liars 0.3 --policy balanced --json liars.json --plot liars.svg",
)
def simulate(
    *, nodes: int, rate: float, duration: float, gateways: int, heartbeat: float | None, mtbf: float | None,
    liars: float, garbage: float, flaky: float, hostile: float, policies: str | None, seeds: int, trace: Path | None,
    flaky_fails: float, checks: bool,
    no_affinity: bool, prefix_ram: float, json_file: Path | None, plot: Path | None, compare_spot: bool,
) -> None:  # fmt: skip
    """Run the shipped matcher over simulated machines, next to other policies, an oracle and a bound.

    Every policy gets the same machines and the same requests. The oracle knows all that policies can only guess; the
    bound is every job alone on its best warm machine. Requests come from a trace, or from a built-in generator.
    """
    from sparewatt.inference.matcher.node_row import HealthRules
    from sparewatt.sim.scenario import MTBF_S, FaultRates
    from sparewatt.sim.study import StudyConfig, study
    from sparewatt.sim.traffic import read_trace

    if liars + garbage + flaky + hostile > 1.0:
        raise click.UsageError("--liars, --garbage, --flaky and --hostile are shares of the same nodes: at most 1.")
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
        faults=FaultRates(
            liars=liars,
            garbage=garbage,
            flaky=flaky,
            hostile=hostile,
            mtbf_s=mtbf if mtbf is not None else MTBF_S,
            flaky_fails=flaky_fails,
        ),
        checks=checks,
        affinity=not no_affinity,
        prefix_ram_gb=prefix_ram,
    )
    requests = read_trace(trace) if trace is not None else None
    comparison = SpotComparison() if compare_spot else None
    progress = SimulationProgress()
    try:
        answer = study(question, requests, progress=progress, each=comparison.add if comparison else None)
    finally:
        progress.end()
    _write(answer, json_file=json_file, plot=plot)
    if json_file == STDOUT:
        return
    _print_answer(answer)
    if comparison is not None:
        comparison.print()


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
    """Check before the study, which can take minutes."""
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
    from sparewatt.sim.results.summary import mean_of

    rows = {**answer.schedulers, "oracle": answer.oracle, "bound": answer.bound}
    means = {name: mean_of(runs) for name, runs in rows.items()}

    def number(header: str, text: Callable[[RunSummary], str]) -> Column[str]:
        return right(header, lambda name: text(means[name]))

    columns: list[Column[str]] = [
        left("policy", lambda name: name),
        number("first token p50/p99", lambda mean: f"{mean.ttft_p50:.2f}/{mean.ttft_p99:.1f} s"),
        number("mean", lambda mean: f"{mean.e2e_mean:.2f} s"),
        right("spread", lambda name: _spread([run.e2e_mean for run in rows[name]])),
        number("p50/p99", lambda mean: f"{mean.e2e_p50:.2f}/{mean.e2e_p99:.1f} s"),
        number("SLO", lambda mean: f"{mean.slo:.1%}"),
        number("failed", lambda mean: f"{mean.failed:.2%}"),
        number("$/1M", lambda mean: f"${mean.usd_per_mtok:.3f}"),
        number("warm", lambda mean: f"{mean.warm_hit:.1%}"),
        number("Gini", lambda mean: f"{mean.gini:.2f}"),
        number("gap", lambda mean: f"{mean.gap_to_oracle:+.1%}"),
    ]
    if answer.config.faults.garbage > 0:
        columns.append(number("garbage", lambda mean: f"{mean.garbage_answers:.2%}"))
        columns.append(number("checked", lambda mean: f"{mean.checked:.2%}"))
    if answer.config.faults.flaky > 0 or answer.config.faults.garbage > 0:
        columns.append(number("retried", lambda mean: f"{mean.retried:.2%}"))
    output.print_table(columns, list(rows))


def _spread(values: list[float]) -> str:
    return f"±{(max(values) - min(values)) / 2:.2f}"


class SpotComparison:
    """What `--compare-spot` collects from every run, and prints."""

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
        spot_columns: list[Column[SpotRow]] = [
            left("model", lambda row: row.model),
            left("card", lambda row: row.card),
            right("cards", lambda row: str(row.cards)),
            right("always full", lambda row: f"{row.full_usd:.3f}"),
            right("whole cards", lambda row: f"{row.whole_usd:.3f}"),
        ]
        output.print_table(spot_columns, self._spot)
        full, whole = all_models(self._spot)
        output.print_title(f"The network against that (all models: {full:.3f} always full, {whole:.3f} whole cards)")
        network_columns: list[Column[str]] = [
            left("policy", lambda name: name),
            right("$/1M", lambda name: f"{self._mean_usd(name):.3f}"),
            right("over full", lambda name: f"{self._mean_usd(name) / full - 1:+.0%}"),
            right("over whole", lambda name: f"{self._mean_usd(name) / whole - 1:+.0%}"),
            right("round trip p50/p99", lambda name: _mean_ms([row.round_trip_s for row in self._network[name]])),
            right("waiting p50/p99", lambda name: _mean_ms([row.waiting_s for row in self._network[name]])),
        ]
        output.print_table(network_columns, list(self._network))
        output.print_lines(["", METHOD])

    def _mean_usd(self, name: str) -> float:
        rows = self._network[name]
        return sum(row.usd for row in rows) / len(rows)


def _mean_ms(percentiles_s: list[tuple[float, float]]) -> str:
    p50_ms, p99_ms = (1000 * sum(values) / len(values) for values in zip(*percentiles_s, strict=True))
    return f"{p50_ms:.0f}/{p99_ms:.0f} ms"
