"""The books under kill -9: the gateway dies every few seconds for three minutes, under 50 requests a second.

Run by `make soak`; writes docs/measurements/books.md.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections import Counter
from pathlib import Path

from tests.integration.killing import NODES, Arena, Verdict, arena, ask_and_kill, judge

RATE = 50.0
SECONDS = 180.0
SEED = 1
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "books.md"


def test_books_are_right_after_three_minutes_of_kills(tmp_path: Path) -> None:
    with arena(tmp_path) as place:
        witnesses = asyncio.run(ask_and_kill(place, rate=RATE, seconds=SECONDS, kills=None, seed=SEED))
        verdict = judge(place, witnesses)
    REPORT.write_text(report(place, verdict))
    verdict.check()
    assert len(verdict.accepted) >= RATE * SECONDS / 4, "most of the time nothing was served"


def report(place: Arena, verdict: Verdict) -> str:
    states = Counter(job.state for job in verdict.found.jobs)
    audit, witnesses = verdict.found.audit, verdict.witnesses
    return f"""# The books while the gateway is killed with -9

Made by `make soak` (tests/soak/test_books_kill.py) on {os.cpu_count()} cores, Python {platform.python_version()};
the machine had other work to do. Real processes: a gateway that gets SIGKILL a few seconds after each time that it
listens, {len(NODES)} nodes of which one is killed at every third time, the deterministic engine. {RATE:.0f} requests a
second for {SECONDS:.0f} s: six of ten streamed, three whole, and of the last the client goes away. Clients keep every
byte that they got; their counts are set against the books, after a last stop without violence.

| measure | value |
| --- | --- |
| gateways killed | {place.gateways_killed} |
| nodes killed | {place.nodes_killed} |
| requests sent | {len(witnesses):,} |
| of these while no gateway listened, or before it had answered | {sum(not w.received for w in witnesses):,} |
| answers that came whole | {sum(w.complete for w in witnesses):,} |
| jobs in the books | {len(verdict.found.jobs):,} |
| done / failed / cancelled | {states["done"]:,} / {states["failed"]:,} / {states["cancelled"]:,} |
| jobs that a client knows of and the books do not | {len(verdict.lost())} |
| jobs in the books twice, or not paid as they cost | {len(verdict.found.charged_twice())} |
| jobs that cost more tokens than their client has | {len(verdict.overcharged())} |
| tokens delivered, to clients who stayed | {verdict.delivered():,} |
| of these not charged, because a kill came first | {verdict.given_away():,} |
| sum of all postings, in nano-USD | {audit.total} |
| causes that do not balance | {audit.unbalanced_causes} |
| clearing accounts that are not empty | {audit.open_clearing_accounts} |
| balances that are not what the postings say | {audit.wrong_balances} |
| accounts overdrawn | {audit.overdrawn} |
| gateways that still reserve money | {len(verdict.found.slices)} |
| bytes left in journals | {sum(verdict.journals.values())} |
"""
