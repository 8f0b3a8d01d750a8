"""Tables of many made-up nodes, and how long the matcher takes over them."""

from __future__ import annotations

import random
import statistics
import time

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.match import SCAN_MAX, match, question
from sparewatt.inference.matcher.model import HealthRules, MatchJob
from sparewatt.inference.matcher.policies import BALANCED
from sparewatt.inference.matcher.shortlist import sort_out
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.node import ModelReport, NodeLoad, NodeSpecs, Speed

MODEL = ModelId("m")
NOW_S = 1.0


def make_table(n_nodes: int, *, seed: int = 0) -> NodeTable:
    """Nodes of all kinds that serve one model; two thirds have it loaded."""
    rng = random.Random(seed)
    table = NodeTable(nodes_max=max(n_nodes, NODES_MAX))
    for _ in range(n_nodes):
        node_id = NodeId(f"0x{rng.getrandbits(160):040x}")
        table.connect(node_id, _specs(rng), now_s=NOW_S)
    table.refresh_strain()
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
    if compiled is not False:
        kernel.prepare()
    is_compiled = kernel.ready() if compiled is None else compiled and kernel.ready()
    table = make_table(n_nodes)
    times_us = [_time_decision(table, number, compiled=is_compiled) for number in range(decisions)]
    return {
        "nodes": n_nodes,
        "compiled": is_compiled,
        "median_us": statistics.median(times_us),
        "p99_us": sorted(times_us)[int(len(times_us) * 0.99)],
        "report_us": _time_reports(table),
        "shortlist_ms": _time_shortlist(table) if n_nodes > SCAN_MAX else None,
    }


def _time_decision(table: NodeTable, number: int, *, compiled: bool) -> float:
    job = MatchJob(MatchId(f"match_{number}"), MODEL, prompt_tokens=500, output_tokens=200)
    at = Situation(now_s=NOW_S + number * 1e-4, rules=HealthRules())
    began_s = time.perf_counter()
    match(job, table, at, policy=BALANCED, seed=1, compiled=compiled)
    return (time.perf_counter() - began_s) * 1e6


def _time_reports(table: NodeTable, count: int = 2000) -> float:
    nodes = [row.id for row, _ in zip(table, range(count), strict=False)]
    load = NodeLoad(running=1)
    times_us = []
    for node_id in nodes:
        began_s = time.perf_counter()
        table.set_load(node_id, load, now_s=NOW_S)
        times_us.append((time.perf_counter() - began_s) * 1e6)
    return statistics.median(times_us)


def _time_shortlist(table: NodeTable) -> float:
    entries = table.entries(MODEL)
    if entries is None:
        return 0.0
    job = MatchJob(MatchId("match_0"), MODEL, prompt_tokens=500, output_tokens=200)
    at = Situation(now_s=NOW_S, rules=HealthRules())
    ask = question(job, table, at, policy=BALANCED, seed=1)
    began_s = time.perf_counter()
    sort_out(ask, entries, compiled=kernel.ready())
    return (time.perf_counter() - began_s) * 1e3
