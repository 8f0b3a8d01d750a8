"""Times the matcher on node tables of generated nodes: decisions, load reports, shortlists."""

from __future__ import annotations

import random
import statistics
import time

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.columns import SCAN_MAX
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import make_query, match
from sparewatt.inference.matcher.model import MatchContext, MatchJob
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.shortlist import build_shortlist
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, Speed

MODEL = ModelId("m")
NOW_S = 1.0
WARM_UP_DECISIONS = 50
DECISION_INTERVAL_S = 1e-3
REPORTS, ROUNDS, SORTINGS = 2000, 5, 5


def make_table(n_nodes: int, *, seed: int = 0) -> NodeTable:
    """Nodes of all kinds that serve one model; two thirds have it loaded."""
    rng = random.Random(seed)
    table = NodeTable(nodes_max=max(n_nodes, NODES_MAX))
    for _ in range(n_nodes):
        node_id = NodeId(f"0x{rng.getrandbits(160):040x}")
        table.connect(node_id, _specs(rng), now_s=NOW_S)
    return table


def _specs(rng: random.Random) -> NodeSpecs:
    model = ModelReport(
        id=MODEL,
        state=rng.choice(("warm", "warm", "on_disk")),
        weights_bytes=16 * 10**9,
        kv_bytes_per_token=131_000,
        prompt_price_nano=rng.randrange(10**8),
        completion_price_nano=rng.randrange(10**9),
        measured=Speed(prefill_tps=rng.uniform(500, 30_000), decode_tps=rng.uniform(10, 150), step_per_job_s=3e-4),
    )
    return NodeSpecs(
        name="made-up",
        region="nowhere",
        gpu="made-up",
        gpu_count=1,
        vram_bytes=24 * 10**9,
        tflops=100.0,
        hourly_price_nano=10**8,
        slots=8,
        backend="none",
        agent_version="0",
        models=(model,),
    )


def time_matcher(n_nodes: int, *, decisions: int, compiled: bool | None) -> dict[str, float | int | bool | None]:
    """Median and 99th percentile of a decision, of a report, and of sorting a shortlist."""
    is_compiled = kernel.ready() if compiled is None else compiled and kernel.ready()
    table = make_table(n_nodes)
    _time_decisions(table, WARM_UP_DECISIONS, compiled=is_compiled)
    times_us = _time_decisions(table, decisions, compiled=is_compiled)
    first_us, *later_us = _time_reports(table, changed=True)
    _, *unchanged_us = _time_reports(table, changed=False)
    return {
        "nodes": n_nodes,
        "compiled": is_compiled,
        "median_us": statistics.median(times_us),
        "p99_us": sorted(times_us)[int(len(times_us) * 0.99)],
        "report_us": min(later_us),
        "report_unchanged_us": min(unchanged_us),
        "report_cold_us": first_us,
        "shortlist_ms": _time_shortlist(table, compiled=is_compiled) if n_nodes > SCAN_MAX else None,
    }


def _time_decisions(table: NodeTable, count: int, *, compiled: bool) -> list[float]:
    """Decisions that sort a shortlist, as often as in a gateway, are left out: that is timed separately."""
    times_us = []
    for number in range(count):
        job = MatchJob(MatchId(f"match_{number}"), MODEL, prompt_tokens=500, output_tokens=200)
        at = MatchContext(now_s=NOW_S + number * DECISION_INTERVAL_S, rules=HealthRules())
        before = _sortings(table)
        began_s = time.perf_counter()
        match(job, table, at, ranking=BALANCED, seed=1, compiled=compiled)
        took_us = (time.perf_counter() - began_s) * 1e6
        if _sortings(table) == before:
            times_us.append(took_us)
    return times_us


def _sortings(table: NodeTable) -> set[float]:
    """Changes when a shortlist is sorted."""
    return {shortlist.stale_at_s for shortlist in table.shortlists_of(MODEL).values()}


def _time_reports(table: NodeTable, *, changed: bool) -> list[float]:
    """The median of each round of reports; in the first round the rows are not in the processor's caches.

    `changed`: every report differs from the node's last one.
    """
    nodes = [row.id for row, _ in zip(table, range(REPORTS), strict=False)]
    return [
        statistics.median(_time_round(table, nodes, _loads(number if changed else 0), now_s=NOW_S + number))
        for number in range(ROUNDS)
    ]


def _loads(first: int) -> list[NodeLoad]:
    return [
        NodeLoad(running=number % 8, foreign=number % 3, foreign_backlog_s=0.1 * (number % 10))
        for number in range(first, first + 10)
    ]


def _time_round(table: NodeTable, nodes: list[NodeId], loads: list[NodeLoad], *, now_s: float) -> list[float]:
    times_us = []
    for number, node_id in enumerate(nodes):
        load = loads[number % len(loads)]
        began_s = time.perf_counter()
        table.set_load(node_id, load, now_s=now_s)
        times_us.append((time.perf_counter() - began_s) * 1e6)
    return times_us


def _time_shortlist(table: NodeTable, *, compiled: bool) -> float:
    entries = table.columns_of(MODEL)
    if entries is None:
        return 0.0
    job = MatchJob(MatchId("match_0"), MODEL, prompt_tokens=500, output_tokens=200)
    query = make_query(job, MatchContext(now_s=NOW_S, rules=HealthRules()), ranking=BALANCED, seed=1)
    times_ms = []
    for _ in range(SORTINGS):
        began_s = time.perf_counter()
        build_shortlist(query, entries, compiled=compiled)
        times_ms.append((time.perf_counter() - began_s) * 1e3)
    return statistics.median(times_ms)
