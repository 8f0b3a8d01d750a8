"""`make bench-gateway`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bench.gateway.measure import Sample, Stand, rounds, tell, warm_up
from bench.gateway.ours import NODES, running_sparewatt
from bench.gateway.processes import may_be_realtime
from bench.gateway.scenarios import MEMORY, SCENARIOS
from bench.gateway.targets import (
    DIRECT,
    LITE,
    NAMES,
    NGINX,
    OURS,
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
QUICK_TARGETS = (DIRECT, NGINX, OURS)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    scenarios = (MEMORY.name, *(scenario.name for scenario in SCENARIOS))
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description="Our gateway beside other proxies.")
    parser.add_argument("--rounds", type=int, default=None, help=f"How often everything is measured ({ROUNDS}).")
    parser.add_argument("--only", type=_names, default=scenarios, metavar="LIST", help=f"Of {','.join(scenarios)}.")
    parser.add_argument("--targets", type=_names, default=None, metavar="LIST", help=f"Of {','.join(NAMES)}.")
    parser.add_argument("--quick", action="store_true", help=f"One round of {','.join(QUICK_TARGETS)} alone.")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"Nodes to match over ({NODES}).")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write every sample here.")
    parser.add_argument("--report", type=Path, metavar="FILE", help="Write the tables here, as Markdown.")
    parser.add_argument("--noisy", action="store_true", help="Report also what a busy machine measured, and say so.")
    return parser.parse_args(argv)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def measure_all(options: argparse.Namespace) -> tuple[list[Sample], list[Target]]:
    names = options.targets or (QUICK_TARGETS if options.quick else NAMES)
    count = options.rounds or (1 if options.quick else ROUNDS)
    check_names(names)
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in options.only]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gateway-")))
        stack.push(partial(_keep_outputs, folder))
        tools = build(is_realtime=may_be_realtime())
        backend = stack.enter_context(running_backend(tools, folder))
        targets = [_start(stack, name, backend, folder, nodes=options.nodes) for name in names]
        stand = Stand(tools, backend, targets, folder)
        tell("warming up")
        warm_up(stand, scenarios)
        return rounds(stand, scenarios, count, with_memory=MEMORY.name in options.only), targets


def _keep_outputs(folder: Path, kind: type[BaseException] | None, *_: object) -> None:
    """After a failure, what the processes printed is kept."""
    if kind is None:
        return
    kept = CACHE / "failed"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for output in folder.rglob("*.txt"):
        shutil.copy(output, kept / output.name)
    tell(f"what the processes printed is in {kept}")


def _start(stack: ExitStack, name: str, backend: Backend, folder: Path, *, nodes: int) -> Target:
    tell(f"starting {name}")
    if name == DIRECT:
        return direct(backend)
    if name == NGINX:
        return stack.enter_context(running_nginx(backend, folder))
    if name == LITE:
        return stack.enter_context(running_litellm(backend, folder))
    if name == OURS:
        return stack.enter_context(running_sparewatt(folder / name, nodes=nodes))
    return stack.enter_context(running_router(name, backend, folder))


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    try:
        samples, _ = measure_all(options)
    except CannotMeasure as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps([asdict(sample) for sample in samples]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
