"""Fuzzers for ten processor-minutes: every parser in this process, and the HTTP front end of a real gateway.

Run by `make soak`; writes docs/measurements/fuzz.md. FUZZ_CPU_S changes how long, FUZZ_SEED where to begin; a failure
names the seed that made it.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.asking import ask
from tests.integration.hostile.corpus import CASES, MIB
from tests.integration.hostile.raw import NotHttp, wire_to
from tests.integration.hostile.target import Target
from tests.integration.networks import Network
from tests.mutation import mutated, pieces
from tests.property.parsers import PARSERS, fuzz
from tests.soak.hostile import roomy_network

CPU_S = float(os.environ.get("FUZZ_CPU_S", "600"))
SEED = int(os.environ.get("FUZZ_SEED", "1000000"))
ROUND = 200
"""Cases between two looks at the clock."""

AT_ONCE = 16
REPLY_S = 0.5
"""Most broken requests have an answer at once or wait for more, which will not come."""

NO_FAULT = frozenset({501, 505})
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "fuzz.md"


def test_no_parser_crashes() -> None:
    counts: Counter[str] = Counter()
    began_s = time.process_time()
    for first in itertools.count(SEED, ROUND):
        if time.process_time() - began_s > CPU_S / 2:
            break
        for parser in PARSERS:
            for seed in range(first, first + ROUND):
                fuzz(parser, seed, mutated)
            counts[parser.name] += ROUND
    note("parsers", dict(counts))


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
        while cpu_s(network.pid) - began_s < CPU_S / 2:
            batch = list(itertools.islice(requests, ROUND))
            for statuses in pool.map(lambda each: converse(network, *each), batch):
                found.update(statuses)
            count += len(batch)
            assert ask(network, "GET", "/readyz").status == 200, f"dead within seeds {batch[0][0]} to {batch[-1][0]}"
        log = network.output.read_text()
    assert "Traceback" not in log
    note("front end", {"requests": count} | {f"answered {status}": n for status, n in sorted(found.items())})


HEAD = """# Fuzzers

Made by `make soak` (tests/soak/test_fuzz.py). Good input broken a little, by seeds; a row is as of its last run.
Nothing crashed, nothing was answered with a 5xx, and no traceback was in the gateway's log, or there would be no row.

| what | count |
| --- | ---: |
"""


def note(part: str, counts: dict[str, int]) -> None:
    """Put a part's rows into the report, in place of those of an earlier run."""
    old = REPORT.read_text().splitlines() if REPORT.exists() else []
    kept = [line for line in old if line.startswith("| ") and "---" not in line and not line.startswith("| what")]
    others = [line for line in kept if not line.startswith(f"| {part}: ")]
    told = {"seconds of processor time": round(CPU_S / 2), "first seed": SEED, **counts}
    rows = [f"| {part}: {name} | {count:,} |" for name, count in told.items()]
    REPORT.write_text(HEAD + "\n".join([*others, *rows]) + "\n")
