"""`sparewatt bench`: measures parts of this program on this machine."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.groups import examples
from sparewatt.cli.output import Column, left, right

SIZES = "1000,10000,100000,1000000"


@click.group()
@examples("sparewatt bench match --nodes 1000,10000")
def bench() -> None:
    """Measure this program on this machine."""


@bench.command("match")
@click.option("--nodes", default=SIZES, show_default=True, help="Sizes of the table, separated by commas.")
@click.option("--decisions", default=500, show_default=True, type=click.IntRange(10, 100_000), help="For each size.")
@click.option(
    "--compiled/--no-compiled", default=None, help="Compiled or with numpy; default: compiled, if there is one."
)
@json_option
@examples("sparewatt bench match --nodes 10000 --no-compiled --json")
def match(*, nodes: str, decisions: int, compiled: bool | None, as_json: bool) -> None:
    """Time decisions (each ranks the best 8) and reports over tables of many nodes.

    COLD is a report from a node that has not reported for a while; SHORTLIST is the sorting that models with more than
    10,000 nodes get four times a second, which no decision above includes.
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
    columns: list[Column[dict[str, float | int | bool | None]]] = [
        left("SCAN", lambda result: "compiled" if result["compiled"] else "numpy"),
        right("NODES", lambda result: f"{result['nodes']:,}"),
        right("MEDIAN µs", lambda result: f"{result['median_us']:.1f}"),
        right("P99 µs", lambda result: f"{result['p99_us']:.1f}"),
        right("REPORT µs", lambda result: f"{result['report_us']:.2f}"),
        right("COLD µs", lambda result: f"{result['report_cold_us']:.2f}"),
        right("SHORTLIST ms", lambda result: output.format_optional(result["shortlist_ms"], "{:.2f}")),
    ]
    output.print_table(columns, results)


def _size(text: str) -> int:
    if not text.strip().isdigit() or not 1 <= int(text) <= 1_000_000:
        raise click.BadParameter(f"{text[:20]!r} is not a number of nodes from 1 to 1,000,000", param_hint="--nodes")
    return int(text)
