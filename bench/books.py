"""The cost of accounts and books: the same gateway with billing and without, in alternating rounds.

Run `make bench-books`. Two gateways on one database, each with a node of its own on an engine of unlimited speed; short
answers, half of them streamed; a closed loop of keep-alive connections on one gateway at a time, rounds in turns. The
two differ in `billing` alone: keys and rate limits work on both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bench.closed_loop import Loop, run_loop
from bench.realtime import prefer_realtime

from tests.integration.asking import ask
from tests.integration.bookkeeping import audit, dsn_of, rows
from tests.integration.cascade import is_serving
from tests.integration.networks import Network, start_network
from tests.processes import descendants_of, end_process, start_process, wait_until

MODEL = "swift"
SLOTS = 64
ANSWER_TOKENS = "4,32"
NATURAL_TOKENS = 1_000
"""Length of answers without a limit."""
ROUND_S = 2.0
ROUNDS = 15
CONNECTIONS = 32
GOAL = 0.9
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Side:
    """One gateway under test, with its node and its engine."""

    name: str
    root_url: str
    api_key: str
    pids: dict[str, int]


@dataclass(frozen=True, slots=True)
class Round:
    answer_tokens: int
    side: str
    requests: int
    failed: int
    seconds: float
    cpu_s: dict[str, float]
    """Processor time by process; for the database all of its processes."""

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds

    def cpu_us(self, process: str) -> float:
        """Microseconds per request."""
        return 1e6 * self.cpu_s[process] / max(1, self.requests)


# processes


@contextmanager
def running(
    argv: Sequence[str], *, output: Path, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = start_process(argv, output=output, env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        end_process(process, signal.SIGTERM)


@contextmanager
def side(network: Network, folder: Path, name: str, *, billing: bool) -> Iterator[Side]:
    """Runs a gateway, a node and an engine until the block ends."""
    with ExitStack() as stack:
        start = partial(_start, stack, folder, name)
        gateway, port = start("gateway", _gateway_argv(network), env=_gateway_env(billing=billing))
        root_url = f"http://127.0.0.1:{port}"
        engine, engine_port = start("engine", _engine_argv())
        here = replace(network, base_url=f"{root_url}/v1")
        token = ask(here, "POST", "/v1/join-tokens", {}).json()["token"]
        argv = [
            *(sys.executable, "-m", "sparewatt", "node", "join", root_url, f"--data={folder / name}"),
            *(f"--backend=http://127.0.0.1:{engine_port}", f"--name={name}", "--drain-s=1"),
        ]
        output = folder / f"{name}-node.txt"
        node = stack.enter_context(running(argv, output=output, env={"SPAREWATT_NODE_TOKEN": token}))
        wait_until(partial(is_serving, here, name), f"{name} does not serve", ceiling_s=60)
        yield Side(name, root_url, network.api_key, {"gateway": gateway.pid, "node": node.pid, "engine": engine.pid})


def _start(
    stack: ExitStack, folder: Path, side: str, part: str, argv: list[str], *, env: dict[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process that writes its port to a file, and wait for that."""
    port_file = folder / f"{side}-{part}.port"
    output = folder / f"{side}-{part}.txt"
    process = stack.enter_context(running([*argv, f"--port-file={port_file}"], output=output, env=env))
    wait_until(port_file.exists, f"the {part} of {side} does not listen")
    return process, port_file.read_text()


def _gateway_argv(network: Network) -> list[str]:
    return [
        *(sys.executable, "-m", "sparewatt", "gateway", "run", "--port=0"),
        *(f"--database-url={dsn_of(network)}", f"--data={network.data / 'gateway'}"),
    ]


def _gateway_env(*, billing: bool) -> dict[str, str]:
    limits = ("REQUESTS_PER_MIN", "TOKENS_PER_MIN", "ADDRESS_REQUESTS_PER_MIN", "ADDRESS_TOKENS_PER_MIN")
    found = {f"SPAREWATT_GATEWAY_{name}": "1000000000" for name in limits}
    return {**found, "SPAREWATT_GATEWAY_BILLING": str(billing).lower()}


def _engine_argv() -> list[str]:
    return [
        *(sys.executable, "-m", "sparewatt.testing", f"--model={MODEL}"),
        *(f"--slots={SLOTS}", f"--answer-tokens={NATURAL_TOKENS}"),
    ]


# rounds


def run_round(network: Network, side: Side, *, answer_tokens: int, seconds: float, connections: int) -> Round:
    loop = Loop(side.root_url, side.api_key, MODEL, connections=connections, answer_tokens=answer_tokens)
    before = _cpu_s(network, side)
    began_s = time.monotonic()
    counts = asyncio.run(run_loop(loop, seconds=seconds))
    elapsed_s = time.monotonic() - began_s
    after = _cpu_s(network, side)
    spent = {name: round(after[name] - before[name], 3) for name in before}
    return Round(answer_tokens, side.name, counts.answered, counts.failed, elapsed_s, spent)


def _cpu_s(network: Network, side: Side) -> dict[str, float]:
    database = sum(_process_cpu_s(pid) for pid, _ in descendants_of(network.pid) if _is_postgres(pid))
    return {name: _process_cpu_s(pid) for name, pid in side.pids.items()} | {"database": database}


def _process_cpu_s(pid: int) -> float:
    fields = _read_proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def _is_postgres(pid: int) -> bool:
    return _read_proc(pid, "comm").strip() == "postgres"


def _read_proc(pid: int, what: str) -> str:
    """A file of /proc; empty if the process has ended, as processes of Postgres do at any time."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def measure(options: argparse.Namespace) -> list[Round]:
    """Both sides, for one answer length after the other."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-books-")))
        network = stack.enter_context(start_network(folder / "network", "--engine=deterministic", "--nodes=0"))
        sides = [stack.enter_context(side(network, folder, name, billing=name == "on")) for name in ("on", "off")]
        go = partial(run_round, network, seconds=options.seconds, connections=options.connections)
        every, counted = [], []
        for tokens in map(int, options.answer_tokens.split(",")):
            found = alternate(sides, partial(go, answer_tokens=tokens), rounds=options.rounds)
            every += found
            counted += found[len(sides) :]
        check_books(network, sum(each.requests for each in every if each.side == "on"))
        return counted


def alternate(sides: Sequence[Side], go: Callable[[Side], Round], *, rounds: int) -> list[Round]:
    """A warm-up round on each side, then pairs of rounds; the sides take turns at going first."""
    found = []
    for number in range(rounds + 1):
        for each in sides if number % 2 == 0 else reversed(sides):
            found.append(go(each))
            print(
                f"{found[-1].answer_tokens} tokens, books {each.name:>3}: {found[-1].per_s:.0f} requests/s", flush=True
            )
    return found


def check_books(network: Network, served: int) -> None:
    """Every answer of the side with books must be in the ledger, and none of the other side."""

    def booked() -> int:
        return int(rows(network, "SELECT count(*) FROM jobs WHERE state = 'done'")[0]["count"])

    wait_until(lambda: booked() >= served, "the books do not catch up")
    assert booked() == served, (booked(), served)
    assert audit(network).is_clean


# report

HEAD = """# What accounts and books cost

Made by `make bench-books` on {cores} cores, Python {python}; the machine had other work to do{ahead}.

Two gateways on one database, one with its books (holds, journal, postings, receipts), one with `billing = false`; keys
and rate limits work on both, and nodes sign receipts for both. Each has a node and an engine of unlimited speed to
itself. {connections} keep-alive connections in a closed loop, half of them streaming, on one side at a time: {rounds}
rounds of {seconds:.0f} s for each side, in turns. Everything, the generator included, shares the cores. Medians;
afterwards every answer was found in the books, which were in order.

Goal: requests per second with the books on at least {goal} of those with them off. Failed requests: {failed}.
"""
SECTION = """
## Answers of {tokens} tokens

| | books on | books off | on / off |
| --- | --- | --- | --- |
{lines}
The middle half of the ratios of neighbouring rounds: {low:.2f} to {high:.2f}.
"""


def median_of(rounds: Sequence[Round], side: str, figure: Callable[[Round], float]) -> float:
    return statistics.median(figure(each) for each in rounds if each.side == side)


def pair_ratios(rounds: Sequence[Round]) -> list[float]:
    """Requests per second with books to those without, for each pair of neighbouring rounds."""
    on, off = ([each.per_s for each in rounds if each.side == side] for side in ("on", "off"))
    return [a / b for a, b in zip(on, off, strict=True)]


def summary(rounds: Sequence[Round]) -> dict[str, tuple[float, float]]:
    figures: dict[str, Callable[[Round], float]] = {"requests per second": lambda each: each.per_s}
    for process in rounds[0].cpu_s:
        figures[f"processor time of the {process}, µs per request"] = partial(Round.cpu_us, process=process)
    return {name: (median_of(rounds, "on", how), median_of(rounds, "off", how)) for name, how in figures.items()}


def report(rounds: Sequence[Round], options: argparse.Namespace, *, ahead: bool) -> str:
    head = HEAD.format(
        cores=os.cpu_count(),
        python=platform.python_version(),
        ahead=", which had to wait (real-time priority)" if ahead else "",
        connections=options.connections,
        rounds=options.rounds,
        seconds=options.seconds,
        goal=GOAL,
        failed=sum(each.failed for each in rounds),
    )
    return head + "".join(map(section, by_tokens(rounds).values()))


def section(rounds: Sequence[Round]) -> str:
    figures = summary(rounds).items()
    lines = [f"| {name} | {on:.0f} | {off:.0f} | {on / off:.2f} |\n" for name, (on, off) in figures if off]
    low, _, high = statistics.quantiles(pair_ratios(rounds), n=4)
    return SECTION.format(tokens=rounds[0].answer_tokens, lines="".join(lines), low=low, high=high)


def by_tokens(rounds: Sequence[Round]) -> dict[int, list[Round]]:
    sizes = sorted({each.answer_tokens for each in rounds})
    return {size: [each for each in rounds if each.answer_tokens == size] for size in sizes}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=ROUND_S)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--answer-tokens", default=ANSWER_TOKENS)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    ahead = prefer_realtime()
    rounds = measure(options)
    text = report(rounds, options, ahead=ahead)
    print(text)
    if options.report is not None:
        options.report.write_text(text)
    if options.json is not None:
        medians = {size: summary(found) for size, found in by_tokens(rounds).items()}
        found = {"medians_on_off": medians, "rounds": list(map(asdict, rounds))}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
