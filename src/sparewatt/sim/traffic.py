"""The simulated workload: a trace scaled to a request rate, or generated with the same published statistics.

A trace that knows which prompts share a prefix is scaled by repeating whole conversations; any other by repeating
arrivals and drawing their sizes again.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.sim.scenario import JOB_FAILS, Scenario, SimModel

TRACE_START_S = 600.0
TRACE_ROWS_MAX = 5_000_000
JITTER_S = 1.0
OPENING_BLOCKS = 2
"""Blocks that identify a conversation: the first one is often a system prompt that many share."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    at_s: float
    input_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()
    """The prompt in blocks of 512 tokens, each a hash of all text up to its end; empty if the trace has none."""


@dataclass(slots=True, eq=False)
class SimJob:
    """One request, with its true length and what happens to it."""

    number: int
    model: SimModel
    arrived_s: float
    prompt_tokens: int
    output_tokens: int
    region: int
    gateway: int = 0
    user_rtt_s: float = 0.0
    """Round trip between user and gateway."""
    fails: bool = False
    attempts: int = 0
    refusals: int = 0
    site: int | None = None
    tried: set[int] = field(default_factory=set)
    late: dict[int, float] = field(default_factory=dict)
    """Sites that refused because they would be late, with the time to first token that they expect; then, at the
    gateway, the cost by that."""
    promised_ttft_s: float = 0.0
    """Time to first token that its gateway predicts; 0 without a prediction."""
    predicted_ttft_s: float | None = None
    """The same of its last attempt, whether it was promised or not; None without a prediction."""
    predicted_cost: float = 0.0
    """Of its last attempt, in the ranking's unit."""
    sent_s: float = 0.0
    """When its last attempt was sent."""
    first_token_s: float | None = None
    finished_s: float | None = None
    was_warm: bool = True
    is_read: bool = False
    prefix: tuple[int, ...] = ()
    """Its prompt in blocks, each a hash of all text up to its end and of the model."""
    cached_tokens: int = 0
    """Of the prompt, what its machine had cached when it arrived."""
    believed_tokens: int = 0
    """The gateway's estimate of `cached_tokens`."""
    pinned: int | None = None
    """The site that a check goes to; None for a client's job."""
    was_retried: bool = False
    """Whether an attempt failed and another node got it."""
    is_nonsense: bool = False
    """The answer is well formed and worthless."""
    kv_bytes: float = field(init=False)
    """KV-cache memory that must be free before it is admitted."""
    kv_read_bytes: float = field(init=False)
    """KV-cache bytes that a decoding step reads for it, on average."""

    def __post_init__(self) -> None:
        per_token = self.model.kv_bytes_per_token
        self.kv_bytes = (self.prompt_tokens + self.output_tokens) * per_token
        self.kv_read_bytes = (self.prompt_tokens + self.output_tokens / 2) * per_token

    def reset_attempts(self) -> None:
        """When the client sends the request again, the gateway does not know that it is the same."""
        self.attempts = self.refusals = 0
        self.tried.clear()
        self.late.clear()


def read_trace(path: Path) -> list[TraceRequest]:
    """`*.csv.gz` with t_ms,input_tokens,output_tokens, or `*.jsonl.gz` with the same names. Raises InvalidField.

    The latter may have `prefix_blocks`, too.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = csv.DictReader(file) if ".csv" in path.name else map(json.loads, file)
            requests = [_request(row) for row, _ in zip(rows, range(TRACE_ROWS_MAX), strict=False)]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise InvalidField(f"{path} is no trace: {error}. It needs t_ms, input_tokens and output_tokens.") from None
    if not requests:
        raise InvalidField(f"{path} holds no request.")
    return sorted(requests, key=lambda request: request.at_s)


def _request(row: dict[str, Any]) -> TraceRequest:
    at_s, input_tokens, output_tokens = float(row["t_ms"]) / 1000, int(row["input_tokens"]), int(row["output_tokens"])
    if not math.isfinite(at_s) or at_s < 0 or input_tokens < 1 or output_tokens < 0:
        raise ValueError("a number is out of range")
    return TraceRequest(at_s, input_tokens, output_tokens, tuple(map(int, row.get("prefix_blocks") or ())))


def generate_trace(duration_s: float, *, seed: int) -> list[TraceRequest]:
    """A chat service with 5.5 requests/s, slightly bursty.

    Sizes are lognormal with the medians (1,020 in, 129 out) and about the means (1,155 and 211) of the Azure
    conversation trace of 2023.
    """
    rng = random.Random(f"generate {seed}")
    requests, now_s = [], 0.0
    while now_s < duration_s:
        burst = 1 + (rng.random() < 0.2)
        now_s += rng.expovariate(5.5 / 1.2)
        for _ in range(burst):
            size_in = round(min(8000, rng.lognormvariate(math.log(1020), 0.5)))
            size_out = round(min(1500, rng.lognormvariate(math.log(129), 0.99)))
            requests.append(TraceRequest(now_s, max(1, size_in), max(1, size_out)))
    return requests


class _Arrival(NamedTuple):
    at_s: float
    model: SimModel
    region: int
    size: TraceRequest
    prefix: tuple[int, ...] = ()


def make_jobs(
    trace: Sequence[TraceRequest], scenario: Scenario, *, rate: float, duration_s: float, seed: int
) -> list[SimJob]:
    """The jobs of `duration_s` seconds at `rate` requests per second, in order of time.

    Times and sizes are taken from the same part of the trace, since traffic changes over the day.
    """
    rng = random.Random(f"jobs {seed}")
    start_s = TRACE_START_S if trace[-1].at_s >= TRACE_START_S + duration_s else trace[0].at_s
    window = [request for request in trace if start_s <= request.at_s < start_s + duration_s]
    if not window:
        raise InvalidField("The trace holds nothing in the simulated time.")
    copies = rate * duration_s / len(window)
    if any(request.prefix_blocks for request in window):
        arrivals = _repeat_conversations(window, scenario, copies=copies, start_s=start_s, seed=seed, rng=rng)
    else:
        arrivals = _repeat_arrivals(window, scenario, copies=copies, start_s=start_s, rng=rng)
    return [
        SimJob(
            number=number,
            model=arrival.model,
            arrived_s=arrival.at_s,
            prompt_tokens=arrival.size.input_tokens,
            output_tokens=max(1, arrival.size.output_tokens),
            region=arrival.region,
            fails=rng.random() < JOB_FAILS,
            prefix=arrival.prefix,
        )
        for number, arrival in enumerate(arrivals)
    ]


def _repeat_arrivals(
    window: Sequence[TraceRequest], scenario: Scenario, *, copies: float, start_s: float, rng: random.Random
) -> list[_Arrival]:
    """Every arrival `copies` times, within a second; model, region and size are drawn again for each."""
    times = [
        request.at_s - start_s + rng.random() * JITTER_S
        for request in window
        for _ in range(int(copies) + (rng.random() < copies % 1))
    ]
    models = rng.choices(scenario.models, [model.popularity for model in scenario.models], k=len(times))
    regions = rng.choices(range(len(scenario.regions)), scenario.user_shares, k=len(times))
    sizes = rng.choices(window, k=len(times))
    return list(map(_Arrival, sorted(times), models, regions, sizes))


def _repeat_conversations(
    window: Sequence[TraceRequest],
    scenario: Scenario,
    *,
    copies: float,
    start_s: float,
    seed: int,
    rng: random.Random,
) -> list[_Arrival]:
    """About `copies` of every conversation: of the last copy, only some.

    A copy belongs to another user: it has the same times (within a second) and sizes, and different text. All requests
    of a conversation have the same model and region.
    """
    requests = list(_conversation_requests(window, scenario, copies=copies, seed=seed))
    arrivals = [one._replace(at_s=one.at_s - start_s + rng.random() * JITTER_S) for one in requests]
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def _conversation_requests(
    window: Sequence[TraceRequest], scenario: Scenario, *, copies: float, seed: int
) -> Iterator[_Arrival]:
    popularity, n_models = [model.popularity for model in scenario.models], len(scenario.models)
    for request in window:
        for copy in range(math.ceil(copies)):
            rng = random.Random(f"talk {seed} {copy} {request.prefix_blocks[:OPENING_BLOCKS]}")
            if copy < int(copies) or rng.random() < copies % 1:
                model = rng.choices(scenario.models, popularity)[0]
                region = rng.choices(range(len(scenario.regions)), scenario.user_shares)[0]
                # the trace's block numbers, made unique for every copy and model
                offset, step = copy * n_models + model.number, math.ceil(copies) * n_models
                blocks = tuple(block * step + offset for block in request.prefix_blocks)
                yield _Arrival(request.at_s, model, region, request, blocks)
