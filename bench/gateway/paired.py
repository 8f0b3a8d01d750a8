"""Compares the gateway of this tree with those of other checkouts, in alternating rounds: what one change is worth.

    python -m bench.gateway.paired ../without-the-trick --only N,S3 --rounds 9

Each checkout is measured in every round, one after the other, so that noise of the machine affects all of them. A ratio
is taken within a round; the median over the rounds is printed with its quartiles. Below 1, the other checkout is
cheaper. This tree runs twice: the row `again` shows the ratio that noise alone produces.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.gateway.judging import Samples, Value, cpu_us_per_request, cpu_us_per_token, time_ms
from bench.gateway.measure import Testbed, log, rounds, warm_up
from bench.gateway.ours import NODES, running_sparewatt
from bench.gateway.processes import can_be_realtime
from bench.gateway.scenarios import SCENARIOS, Scenario
from bench.gateway.targets import OURS, check_names, running_backend
from bench.gateway.tools import CannotMeasure, build

NAMES = tuple(scenario.name for scenario in SCENARIOS)
QUARTILES = 4
AGAIN = "again"
ROOT = Path(__file__).parents[2]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gateway.paired", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="DIR", help="Other checkouts of this program.")
    parser.add_argument("--only", default="N,S3", metavar="LIST", help=f"Of {','.join(NAMES)}.")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--nodes", type=int, default=NODES, metavar="N")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> tuple[Samples, list[Scenario], list[str]]:
    wanted = options.only.split(",")
    check_names(wanted, among=NAMES, what="workload")
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in wanted]
    checkouts = {AGAIN: ROOT, **{checkout.resolve().name: checkout.resolve() for checkout in options.checkouts}}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-paired-")))
        tools = build(is_realtime=can_be_realtime())
        backend = stack.enter_context(running_backend(tools, folder))
        targets = [stack.enter_context(running_sparewatt(folder / OURS, nodes=options.nodes))]
        for name, checkout in checkouts.items():
            log(f"starting {name}")
            started = running_sparewatt(folder / name, nodes=options.nodes, name=name, checkout=checkout)
            targets.append(stack.enter_context(started))
        testbed = Testbed(tools, backend, targets, folder)
        warm_up(testbed, scenarios)
        return Samples(rounds(testbed, scenarios, options.rounds, with_memory=False)), scenarios, list(checkouts)


def ratios(samples: Samples, scenario: str, other: str, value: Value) -> list[float]:
    """Of the other checkout to this one, in each round in which both were measured without a fault."""
    ours, theirs = samples.clean(scenario, OURS), samples.clean(scenario, other)
    pairs = [(value(theirs[number]), value(ours[number])) for number in ours.keys() & theirs.keys()]
    return [a / b for a, b in pairs if a and b]


def describe(found: Sequence[float]) -> str:
    if len(found) < 2:
        return "not measured"
    low, middle, high = statistics.quantiles(found, n=QUARTILES)
    return f"{middle:.3f} ({low:.3f} to {high:.3f}, {len(found)} rounds)"


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    try:
        samples, scenarios, others = measure(options)
    except CannotMeasure as error:
        print(error, file=sys.stderr)
        return 1
    print("| checkout | workload | processor time | p99 |\n| --- | --- | --- | --- |")
    for other in others:
        for scenario in scenarios:
            spent = cpu_us_per_token if scenario.is_stream else cpu_us_per_request
            late = time_ms("token_ms" if scenario.is_stream else "latency_ms", "p99")
            cells = [describe(ratios(samples, scenario.name, other, value)) for value in (spent, late)]
            print(f"| {other} | {scenario.name} | {cells[0]} | {cells[1]} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
