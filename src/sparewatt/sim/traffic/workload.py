"""What is asked, and when: a trace scaled to the asked rate, or a generator with the same published statistics."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.sim.fleet.machine import SimJob
from sparewatt.sim.scenario import JOB_FAILS, Scenario
from sparewatt.sim.traffic.conversations import JITTER_S, repeat_conversations
from sparewatt.sim.traffic.trace import TraceRequest

TRACE_START_S = 600.0
TRACE_ROWS_MAX = 5_000_000


def read_trace(path: Path) -> list[TraceRequest]:
    """`*.csv.gz` with t_ms,input_tokens,output_tokens, or `*.jsonl.gz` with the same names. Raises InvalidField.

    The latter may have `prefix_blocks`, too.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = csv.DictReader(file) if ".csv" in path.name else map(json.loads, file)
            found = [_request(row) for row, _ in zip(rows, range(TRACE_ROWS_MAX), strict=False)]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise InvalidField(f"{path} is no trace: {error}. It needs t_ms, input_tokens and output_tokens.") from None
    if not found:
        raise InvalidField(f"{path} holds no request.")
    return sorted(found, key=lambda request: request.at_s)


def _request(row: dict[str, Any]) -> TraceRequest:
    at_s, input_tokens, output_tokens = float(row["t_ms"]) / 1000, int(row["input_tokens"]), int(row["output_tokens"])
    request = TraceRequest(at_s, input_tokens, output_tokens, tuple(map(int, row.get("prefix_blocks") or ())))
    if not math.isfinite(request.at_s) or request.at_s < 0 or request.input_tokens < 1 or request.output_tokens < 0:
        raise ValueError("a number is out of range")
    return request


def generate_trace(duration_s: float, *, seed: int) -> list[TraceRequest]:
    """A stand-in for a chat service: 5.5 requests/s that come a little in bursts.

    Sizes are lognormal with the medians (1,020 in, 129 out) and about the means (1,155 and 211) of the Azure
    conversation trace of 2023.
    """
    rng = random.Random(f"generate {seed}")
    found, now_s = [], 0.0
    while now_s < duration_s:
        burst = 1 + (rng.random() < 0.2)
        now_s += rng.expovariate(5.5 / 1.2)
        for _ in range(burst):
            size_in = round(min(8000, rng.lognormvariate(math.log(1020), 0.5)))
            size_out = round(min(1500, rng.lognormvariate(math.log(129), 0.99)))
            found.append(TraceRequest(now_s, max(1, size_in), max(1, size_out)))
    return found


def make_jobs(
    trace: Sequence[TraceRequest], scenario: Scenario, *, rate: float, duration_s: float, seed: int
) -> list[SimJob]:
    """Arrivals of the trace repeated in place (within a second) to reach `rate`, sizes drawn anew.

    Times and sizes come from the same stretch of the trace: what is asked in one hour is not what is asked in another.
    Where the trace knows which prompts begin alike, conversations are repeated whole instead (`conversations.py`).
    """
    rng = random.Random(f"jobs {seed}")
    start_s = TRACE_START_S if trace[-1].at_s >= TRACE_START_S + duration_s else trace[0].at_s
    window = [request for request in trace if start_s <= request.at_s < start_s + duration_s]
    if not window:
        raise InvalidField("The trace holds nothing in the simulated time.")
    copies = rate * duration_s / len(window)
    if any(request.prefix_blocks for request in window):
        return repeat_conversations(window, scenario, copies=copies, start_s=start_s, seed=seed)
    times = [
        request.at_s - start_s + rng.random() * JITTER_S
        for request in window
        for _ in range(int(copies) + (rng.random() < copies % 1))
    ]
    weights = [model.popularity for model in scenario.models]
    chosen = rng.choices(scenario.models, weights, k=len(times))
    regions = rng.choices(range(len(scenario.regions)), scenario.user_shares, k=len(times))
    sizes = rng.choices(window, k=len(times))
    return [
        SimJob(
            number=number,
            model=model,
            arrived_s=at_s,
            prompt_tokens=size.input_tokens,
            output_tokens=max(1, size.output_tokens),
            region=region,
            fails=rng.random() < JOB_FAILS,
        )
        for number, (at_s, model, region, size) in enumerate(zip(sorted(times), chosen, regions, sizes, strict=True))
    ]
