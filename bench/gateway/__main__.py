"""Our gateway compared with nginx, vllm-router, sglang-router and LiteLLM: one core each, the same load.

Run `make bench-gateway`. The first time, the peers are installed, each into an environment of its own. Progress goes to
stderr, the goals to stdout; nothing is written when the machine was too noisy to measure anything.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.gateway.bookkeeping import check_books
from bench.gateway.judging import Samples, judge, why_noisy
from bench.gateway.measure import Testbed, log, rounds, warm_up
from bench.gateway.ours import NODES, has_processes, running_sparewatt
from bench.gateway.processes import can_be_realtime
from bench.gateway.report import Run, as_json, between_marks, goals_table, report, summary_table
from bench.gateway.scenarios import MEMORY, SCENARIOS
from bench.gateway.targets import (
    DIRECT,
    LITE,
    NAMES,
    NGINX,
    OURS,
    OURS_TWICE,
    Backend,
    Target,
    check_names,
    direct,
    running_backend,
    running_litellm,
    running_nginx,
    running_router,
)
from bench.gateway.tools import CACHE, CannotMeasure, build

ROUNDS = 3
COUNT_MAX = 5_000
QUICK_TARGETS = (DIRECT, NGINX, OURS)
WORKLOADS = (MEMORY.name, *(scenario.name for scenario in SCENARIOS))
NO_PROCESSES = "sparewatt-2 was left out: this gateway has no --processes."


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=_count, metavar="N", help=f"How often everything is measured ({ROUNDS}).")
    parser.add_argument("--only", type=_names, default=WORKLOADS, metavar="LIST", help=f"Of {','.join(WORKLOADS)}.")
    parser.add_argument("--targets", type=_names, metavar="LIST", help=f"Of {','.join(NAMES)}.")
    parser.add_argument("--quick", action="store_true", help=f"One round, of {','.join(QUICK_TARGETS)} alone.")
    parser.add_argument("--nodes", type=_count, default=NODES, metavar="N", help=f"Nodes to match over ({NODES}).")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write everything that was measured here.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write the tables here, as Markdown.")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="Put the short table between this file's marks.")
    parser.add_argument("--noisy", action="store_true", help="Write also what a noisy machine measured, and say so.")
    return parser.parse_args(argv)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"a number from 1 to {COUNT_MAX:,}")
    return int(text)


# measuring


def measure_all(options: argparse.Namespace) -> Run:
    names = options.targets or (QUICK_TARGETS if options.quick else NAMES)
    count = options.rounds or (1 if options.quick else ROUNDS)
    check_names(names, among=NAMES, what="target")
    check_names(options.only, among=WORKLOADS, what="workload")
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in options.only]
    names, skipped = _possible(names)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-")))
        stack.push(partial(_keep_outputs, folder))
        tools = build(is_realtime=can_be_realtime())
        backend = stack.enter_context(running_backend(tools, folder))
        targets = [_start(stack, name, backend, folder, nodes=options.nodes) for name in names]
        testbed = Testbed(tools, backend, targets, folder)
        log("warming up")
        warm_up(testbed, scenarios)
        found = Samples(rounds(testbed, scenarios, count, with_memory=MEMORY.name in options.only))
        booked = {
            target.name: check_books(target.dsn, answered=found.answered(target.name))
            for target in targets
            if target.dsn is not None
        }
    return Run(
        samples=found,
        targets=targets,
        rounds=count,
        nodes=options.nodes,
        is_realtime=tools.is_realtime,
        noise=why_noisy(found),
        booked=booked,
        skipped=skipped,
    )


def _possible(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The targets that can be measured here, and why others cannot."""
    if OURS_TWICE not in names or has_processes():
        return list(names), []
    log(NO_PROCESSES)
    return [name for name in names if name != OURS_TWICE], [NO_PROCESSES]


def _keep_outputs(folder: Path, kind: type[BaseException] | None, *_: object) -> None:
    """After a failure, copy the output of all processes to the cache folder."""
    if kind is None:
        return
    failed = CACHE / "failed"
    shutil.rmtree(failed, ignore_errors=True)
    failed.mkdir(parents=True)
    for output in folder.rglob("*.txt"):
        shutil.copy(output, failed / output.name)
    log(f"What the processes printed is in {failed}.")


def _start(stack: ExitStack, name: str, backend: Backend, folder: Path, *, nodes: int) -> Target:
    log(f"starting {name}")
    if name == DIRECT:
        return direct(backend)
    if name == NGINX:
        return stack.enter_context(running_nginx(backend, folder))
    if name == LITE:
        return stack.enter_context(running_litellm(backend, folder))
    if name in {OURS, OURS_TWICE}:
        processes = 2 if name == OURS_TWICE else 1
        return stack.enter_context(running_sparewatt(folder / name, nodes=nodes, processes=processes))
    return stack.enter_context(running_router(name, backend, folder))


# output


def write_all(run: Run, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(as_json(run), indent=1) + "\n")
    if options.report:
        options.report.write_text(report(run))
    if options.summary:
        text = options.summary.read_text()
        options.summary.write_text(between_marks(text, summary_table(judge(run.samples))))


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    try:
        run = measure_all(options)
    except CannotMeasure as error:
        print(error, file=sys.stderr)
        return 1
    print(goals_table(judge(run.samples)))
    if run.noise is not None and not options.noisy:
        print(f"{run.noise} Nothing is written; --noisy does it all the same.", file=sys.stderr)
        return 1 if options.json or options.report or options.summary else 0
    write_all(run, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
