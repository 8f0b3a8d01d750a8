"""`sparewatt bench`: how fast the parts of this program are on this machine."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option

SIZES = "1000,10000,100000,1000000"


@click.group()
def bench() -> None:
    """Measure this program on this machine.

    \b
    Example:
      sparewatt bench match --nodes 1000,10000
    """


@bench.command("match")
@click.option("--nodes", default=SIZES, show_default=True, help="Sizes of the table, separated by commas.")
@click.option("--decisions", default=500, show_default=True, type=click.IntRange(10, 100_000), help="Per size.")
@click.option("--compiled/--no-compiled", default=None, help="With numba or without; default: with, if installed.")
@json_option
def match(*, nodes: str, decisions: int, compiled: bool | None, as_json: bool) -> None:
    """Time decisions (each ranks the best 8) and reports over tables of many nodes.

    COLD is a report from a node that was not heard for a while; SHORTLIST is the sorting that models with more than
    10,000 nodes get four times a second, which no decision above includes.

    \b
    Example:
      sparewatt bench match --nodes 10000 --no-compiled --json
    """
    from sparewatt.testing.matcher_timing import time_matcher

    sizes = [_size(text) for text in nodes.split(",")]
    results = []
    for size in sizes:
        output.note(f"{size:,} nodes …")
        results.append(time_matcher(size, decisions=decisions, compiled=compiled))
    if as_json:
        output.print_json({"results": results})
        return
    columns = [
        *output.left("SCAN"),
        *output.right("NODES", "MEDIAN µs", "P99 µs", "REPORT µs", "COLD µs", "SHORTLIST ms"),
    ]
    output.print_table(columns, [_row(result) for result in results])


def _size(text: str) -> int:
    if not text.strip().isdigit() or not 1 <= int(text) <= 1_000_000:
        raise click.BadParameter(f"{text[:20]!r} is not a number of nodes from 1 to 1,000,000", param_hint="--nodes")
    return int(text)


def _row(result: dict[str, float | int | bool | None]) -> list[str]:
    refresh = result["shortlist_ms"]
    return [
        "compiled" if result["compiled"] else "numpy",
        f"{result['nodes']:,}",
        f"{result['median_us']:.1f}",
        f"{result['p99_us']:.1f}",
        f"{result['report_us']:.2f}",
        f"{result['report_cold_us']:.2f}",
        output.UNKNOWN if refresh is None else f"{refresh:.2f}",
    ]
