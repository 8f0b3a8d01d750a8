"""Fuzzers for ten processor-minutes: a third each for what reads HTTP, server-sent events and the link's frames.

`make soak-fuzz`; writes docs/measurements/fuzz.md. Half of HTTP's share goes to the front end of a real gateway.
FUZZ_CPU_S changes how long in all, FUZZ_SEED where chance begins; a failure names the input that made it.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import platform
import random
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.asking import ask
from tests.integration.hostile.cases import MIB
from tests.integration.hostile.corpus import CASES
from tests.integration.hostile.raw import NotHttp, wire_to
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.mutation import mutated, pieces
from tests.property.parsers import PARSERS, PARTS, Part, fuzz
from tests.soak.hostile import roomy_network, say

CPU_S = float(os.environ.get("FUZZ_CPU_S", "600"))
SEED = int(os.environ.get("FUZZ_SEED", "1000000"))
SHARES = {"front end": CPU_S / 6, "http": CPU_S / 6, "sse": CPU_S / 3, "link": CPU_S / 3}
ROUND = 200
"""Cases between two looks at the clock."""

SLICE_S = 100.0
"""Of a guided fuzzer, between two looks at its processor time; to begin anew costs it some ten."""

SLICES_MAX = 1000
INPUT_S_MAX = 20
"""One input that takes longer is a failure."""

INPUT_BYTES_MAX = 16_384
AT_ONCE = 16
REPLY_S = 0.5
"""Most broken requests have an answer at once or wait for more, which will not come."""

NO_FAULT = frozenset({501, 505})
ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "measurements" / "fuzz.md"
_RUNS = re.compile(rb"Done (\d+) runs")
_COVERED = re.compile(rb"cov: (\d+) ft: \d+ corp: (\d+)")


def children_cpu_s() -> float:
    """Of all that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this machine")
@pytest.mark.parametrize("part", PARTS)
def test_no_input_that_reaches_something_new_crashes_a_parser(part: Part, tmp_path: Path) -> None:
    runs, branches, kept, began_s = 0, 0, 0, children_cpu_s()
    for number in range(SLICES_MAX):
        left_s = SHARES[part] - (children_cpu_s() - began_s)
        if left_s <= 0:
            break
        told = guided(part, tmp_path, seconds=max(1.0, min(SLICE_S, left_s)), seed=SEED + number)
        runs += int(_RUNS.findall(told)[-1])
        branches, kept = map(int, _COVERED.findall(told)[-1])
        say(f"{part}: {runs:,} inputs, {branches:,} branches, {max(0.0, left_s - SLICE_S):.0f} s to go")
    cpu_s = round(children_cpu_s() - began_s)
    counts = {"inputs": runs, "branches of the product reached": branches, "inputs kept for it": kept}
    note(part, {"seconds of processor time": cpu_s, **counts})


def guided(part: Part, folder: Path, *, seconds: float, seed: int) -> bytes:
    """One slice; what was found stays in the folder for the next."""
    options = (f"-max_total_time={seconds:.0f}", f"-timeout={INPUT_S_MAX}", f"-max_len={INPUT_BYTES_MAX}")
    argv = [sys.executable, "-m", "tests.soak.guided", part, str(folder / "corpus"), *options]
    argv += [f"-artifact_prefix={folder}/", f"-seed={seed}", "-print_final_stats=1"]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, timeout=seconds + 300)
    assert done.returncode == 0, f"{part}, seed {seed}: {done.stderr[-8000:].decode(errors='replace')}"
    return done.stderr


@pytest.mark.skipif(importlib.util.find_spec("atheris") is not None, reason="a guided fuzzer does it")
@pytest.mark.parametrize("part", PARTS)
def test_no_good_input_broken_a_little_crashes_a_parser(part: Part) -> None:
    count, began_s = 0, time.process_time()
    parsers = [parser for parser in PARSERS if parser.part == part]
    for first in itertools.count(SEED, ROUND):
        if time.process_time() - began_s > SHARES[part]:
            break
        for parser in parsers:
            for seed in range(first, first + ROUND):
                fuzz(parser, seed, mutated)
        count += ROUND * len(parsers)
    note(part, {"seconds of processor time": round(time.process_time() - began_s), "inputs, by chance": count})


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def broken_requests(target: Target) -> Iterator[tuple[int, list[bytes]]]:
    seeds = tuple(raw for case in CASES if len(raw := case.make(target)) < MIB // 4)
    good = (target.chat("x"), target.chat("x", stream=True), target.head(start=b"GET /v1/models HTTP/1.1"))
    for seed in itertools.count(SEED):
        chance = random.Random(seed)
        yield seed, pieces(mutated(seeds + good * 20, chance), chance)


def converse(network: Network, seed: int, received: list[bytes]) -> list[int]:
    """The statuses of all that came back. Raises NotHttp, with the seed, for what is no reply."""
    statuses: list[int] = []
    with wire_to(network, timeout_s=REPLY_S) as wire:
        for piece in received:
            wire.send(piece)
        wire.send_no_more()
        try:
            statuses += [reply.status for reply in wire.replies()]
        except TimeoutError:
            pass  # it waits for more, which is its right
        except NotHttp as error:
            error.add_note(f"seed {seed}: {b''.join(received)[:2000]!r}")
            raise
    assert all(status < 500 or status in NO_FAULT for status in statuses), f"seed {seed}: {statuses}"
    return statuses


def test_no_broken_request_breaks_the_front_end(tmp_path: Path) -> None:
    found: Counter[int] = Counter()
    with roomy_network(tmp_path, nodes=1, decode_tps=0) as network, ThreadPoolExecutor(AT_ONCE) as pool:
        target = Target(network, network.api_key.encode(), network.api_key.encode())
        began_s, requests, count = cpu_s(network.pid), broken_requests(target), 0
        while (spent_s := cpu_s(network.pid) - began_s) < SHARES["front end"]:
            batch = list(itertools.islice(requests, ROUND))
            for statuses in pool.map(lambda each: converse(network, *each), batch):
                found.update(statuses)
            count += len(batch)
            assert ask(network, "GET", "/readyz").status == 200, f"dead within seeds {batch[0][0]} to {batch[-1][0]}"
            if count % (10 * ROUND) == 0:
                say(f"front end: {count:,} requests, {SHARES['front end'] - spent_s:.0f} s to go")
        log = network.output.read_text()
    assert "Traceback" not in log
    answers = {f"answered {status}": n for status, n in sorted(found.items())}
    note("front end", {"seconds of processor time": round(spent_s), "first seed": SEED, "requests": count, **answers})


NAMES = {
    "http": "HTTP: requests on a connection, bodies, routes",
    "sse": "server-sent events and whole replies of nodes",
    "link": "the link's frames, at both ends",
    "front end": "HTTP: the front end of a real gateway",
}


def head() -> str:
    guide = "atheris, guided by coverage" if importlib.util.find_spec("atheris") else "good input broken by chance"
    return f"""# Fuzzers

Made by `make soak-fuzz` (tests/soak/test_fuzz.py) with Python {platform.python_version()}: {guide}; a real gateway gets
good requests broken a little, by seeds. A row is as of its last run. Nothing crashed, no input took over
{INPUT_S_MAX} s, nothing was answered with a 5xx that it should not be, and no traceback was in the gateway's log, or
there would be no row.

| what | measure | count |
| --- | --- | ---: |
"""


def note(part: str, counts: dict[str, int]) -> None:
    """Put a part's rows into the report, in place of those of an earlier run."""
    old = REPORT.read_text().splitlines() if REPORT.exists() else []
    kept = [line for line in old if line.startswith(tuple(f"| {name} |" for name in NAMES.values()))]
    others = [line for line in kept if not line.startswith(f"| {NAMES[part]} |")]
    rows = [f"| {NAMES[part]} | {name} | {count:,} |" for name, count in counts.items()]
    REPORT.write_text(head() + "\n".join([*others, *rows]) + "\n")
