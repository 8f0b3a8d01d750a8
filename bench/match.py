"""How long decisions and reports take, by size of the table, with the compiled scan and with numpy's.

python -m bench.match [--nodes 1000,10000] [--report docs/measurements/match-speed.md]
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from bench import environment, shortlist
from bench.realtime import prefer_realtime

from sparewatt.testing.matcher_timing import time_matcher

SIZES = "10,100,1000,10000,100000,1000000"
DECISIONS = 2000
RATES = (100, 1000, 5000)
REPORTED = ("median_us", "p99_us", "report_us", "report_unchanged_us", "report_cold_us")

HEAD = """# How fast the matcher is

Made by `make bench-match` on {cores} cores, Python {python}, at {priority} priority. The load average was
{load:.1f} when it began: above 1 the machine had other work to do.
{environment}

One model, all nodes serve it, two thirds have it loaded. Each decision ranks the best 8 of the nodes; above 10,000 it
looks at a shortlist, whose sorting is timed apart.

A report is one heartbeat: `NodeTable.set_load`, from the message as it was parsed to the numbers that a scan reads;
parsing is not counted. 2,000 nodes report in five rounds, and a round's figure is the median of its reports. In *with
news* every report says something else than the one before, also how many jobs others have there; that is the best of
the last four rounds, *cold* is the first one, which finds the nodes out of the processor's caches. *Unchanged* is the
best of four rounds in which every node says what it said before, as idle nodes do.

Goals, as installed: a median of at most 40 µs at 1,000 nodes, and under 15 µs with a 99th percentile under 100 µs at
100,000. With numpy, where the package has no compiled scan for the platform: a median under 250 µs at 10,000. A report
takes under 2 µs.

| scan | nodes | decision, median µs | p99 µs | report with news µs | unchanged µs | cold µs | sorting a shortlist ms |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
REGRET = """
## What the shortlist costs in quality

Every job is sent where the shortlist says (no dice, 1,200 jobs, prompts of very different length), and what its pick
costs is set beside the best of all nodes at that moment.

| nodes | jobs/s | the best was picked | regret, median | mean | p99 |
| --- | --- | --- | --- | --- | --- |
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=SIZES)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args(arguments)
    load, is_realtime = os.getloadavg()[0], prefer_realtime()
    sizes = [int(size) for size in options.nodes.split(",")]
    lines = [line(size, compiled=compiled) for compiled in (True, False) for size in sizes]
    head = HEAD.format(
        cores=os.cpu_count(),
        python=platform.python_version(),
        priority="real-time" if is_realtime else "ordinary",
        load=load,
        environment=environment.describe(),
    )
    text = head + "".join(lines) + REGRET
    text += "".join(shortlist.line(100_000, n_jobs=1200, rate=rate) for rate in RATES)
    print(text)
    if options.report is not None:
        options.report.write_text(text)


def line(n_nodes: int, *, compiled: bool) -> str:
    found = time_matcher(n_nodes, decisions=DECISIONS, compiled=compiled)
    sorting = "-" if found["shortlist_ms"] is None else f"{found['shortlist_ms']:.1f}"
    times = " | ".join(f"{found[name]:.1f}" for name in REPORTED)
    return f"| {'compiled' if found['compiled'] else 'numpy'} | {n_nodes:,} | {times} | {sorting} |\n"


if __name__ == "__main__":
    main()
