"""Two hundred thousand jobs with one in twenty going wrong, through real books.

Run by `make soak`; writes docs/measurements/ledger.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from pathlib import Path

from tests.integration.databases import running_postgres
from tests.integration.storm_reckoning import Reckoning, storm

JOBS, ARRIVALS = 200_000, 40
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "ledger.md"


def test_two_hundred_thousand_jobs_leave_the_books_in_order(tmp_path: Path) -> None:
    began_s = time.monotonic()
    logging.disable(logging.WARNING)  # a storm has much to say
    try:
        with running_postgres(tmp_path) as server:
            reckoning = asyncio.run(storm(server, tmp_path, jobs=JOBS, seed=7, arrivals=ARRIVALS))
    finally:
        logging.disable(logging.NOTSET)
    REPORT.write_text(report(reckoning, seconds=time.monotonic() - began_s))
    assert reckoning.wrong == {}


def report(reckoning: Reckoning, *, seconds: float) -> str:
    counted = {**{f"jobs {state}": n for state, n in reckoning.states.items()}, **reckoning.counts}
    lines = "\n".join(f"| {name} | {n:,} |" for name, n in sorted(counted.items()))
    wrong = "\n".join(f"| {name} | {n:,} |" for name, n in reckoning.wrong.items()) or "| (nothing) | 0 |"
    return f"""# The books in a storm

Made by `make soak` (tests/soak/test_books.py) on {os.cpu_count()} cores, Python {platform.python_version()}.
{JOBS:,} simulated jobs through the real ledger, journal, metering, receipts and Postgres, on a virtual clock, at two
gateways that share the books; one job in twenty, one receipt in twenty and one reply of Postgres in twenty goes wrong.
A model with arithmetic of its own knows how every job must have ended, what it cost, and what every account has left.

What was found wrong: jobs lost, settled twice, in a wrong state or at a wrong cost; balances that are not the model's;
postings, causes or clearing accounts that do not sum to zero; overdrawn accounts; receipts kept that nobody wrote.

| wrong | count |
| --- | --- |
{wrong}

| what happened | count |
| --- | --- |
{lines}

Took {seconds:.0f} s.
"""
