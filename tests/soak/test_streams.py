"""Nodes that die under 200 open streams, fifty times; also two in a row, silent ones, and clients that leave.

Run by `make soak`; writes docs/measurements/streams.md.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration.seams import Blow, Pace, Round, arena, check_books, check_seams, play

STREAMS = 200
ROUNDS: Mapping[Blow, int] = {"kill": 50, "kill two": 25, "stop": 25, "kill while clients leave": 25}
SECONDS_MAX = 2 * 3600.0
"""On a crowded machine it ends here, with fewer rounds."""
PACE = Pace(answer_tokens=30, decode_tps=5)
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "streams.md"


def test_no_stream_breaks_in_a_hundred_and_twenty_five_rounds(tmp_path: Path) -> None:
    rounds: list[Round] = []
    began_s = time.monotonic()
    with arena(tmp_path, pace=PACE) as mortal:
        for blow in (blow for number in range(max(ROUNDS.values())) for blow in ROUNDS if number < ROUNDS[blow]):
            if time.monotonic() - began_s > SECONDS_MAX:
                break
            mortal.revive()
            done = play(mortal, blow, streams=STREAMS, number=len(rounds))
            check_seams(mortal, done)
            done.forget_texts()
            rounds.append(done)
            REPORT.write_text(report(rounds, seconds=time.monotonic() - began_s))
        booked = check_books(mortal, rounds)
    REPORT.write_text(report(rounds, seconds=time.monotonic() - began_s, booked=booked["jobs"]))
    assert sum((done.faults for done in rounds), Counter()) == {}


def report(rounds: Sequence[Round], *, seconds: float, booked: int | None = None) -> str:
    table = "\n".join(_line(blow, [done for done in rounds if done.blow == blow]) for blow in ROUNDS)
    books = (
        "not looked at yet" if booked is None else f"{booked} jobs, none charged twice, sums right, no receipt disputed"
    )
    return f"""# Nodes lost under open streams

Made by `make soak` (tests/soak/test_streams.py) on {os.cpu_count()} cores, Python {platform.python_version()}, other
work going on. Four nodes on the deterministic engine, real processes, {STREAMS} streams a round of {PACE.answer_tokens}
tokens each. When every stream has had its first token, the busiest node is struck: killed with -9, two of them one
after the other, stopped with SIGSTOP, or killed while half of the clients leave. A stream is broken unless it has one
id, one role, one finish, `[DONE]`, the right count of tokens, and to the byte the text of an undisturbed run; of a
client that left, what it has must be the beginning of that text.

| blow | rounds | streams | clients that left | moved to another node | broken |
| --- | --- | --- | --- | --- | --- |
{table}

The books after all rounds: {books}. Time for all rounds, restarts of the nodes included: {seconds:.0f} s.
"""


def _line(blow: str, rounds: Sequence[Round]) -> str:
    clients = [client for done in rounds for client in done.clients]
    left = sum(client.has_left for client in clients)
    broken = sum(sum(done.faults.values()) for done in rounds)
    moved = sum(done.moved for done in rounds)
    return f"| {blow} | {len(rounds)} | {len(clients)} | {left} | {moved} | {broken} |"
