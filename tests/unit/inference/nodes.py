"""Nodes, jobs and tables for tests of the matcher and of dispatch."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sparewatt.core.ids import KeyId, MatchId, ModelId, NodeId
from sparewatt.core.lessons import Lessons
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns
from sparewatt.inference.matcher.model import (
    REJECTED_FIELDS,
    SCAN_REJECTIONS,
    Candidate,
    Decision,
    MatchContext,
    MatchJob,
    Rejection,
)
from sparewatt.inference.matcher.newcomers import TIMED_JOBS
from sparewatt.inference.matcher.node_row import UNUSABLE, ColumnPosition, HealthRules, NodeRow
from sparewatt.inference.matcher.node_zones import NodeZones
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.prompt import PromptSize
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs, Speed

MODEL = ModelId("llama-3-8b")
NOW_S = 1000.0
GIB = 1 << 30
SPEED = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.1)


def node_id(number: int) -> NodeId:
    return NodeId(f"0x{number:040x}")


def a_model(**changes: Any) -> ModelReport:
    model = ModelReport(
        id=MODEL,
        state="warm",
        weights_bytes=8 * GIB,
        kv_bytes_per_token=100_000,
        prompt_price_nano=20_000_000,
        completion_price_nano=60_000_000,
        context_length=8192,
        measured=SPEED,
    )
    return msgspec.structs.replace(model, **changes)


def some_specs(*models: ModelReport, **changes: Any) -> NodeSpecs:
    specs = NodeSpecs(
        name="attic",
        region="eu-west",
        gpu="RTX 4090",
        gpu_count=1,
        vram_bytes=24 * GIB,
        tflops=82.0,
        hourly_price_nano=300_000_000,
        slots=4,
        backend="vllm",
        agent_version="0.1.0",
        models=models or (a_model(),),
    )
    return msgspec.structs.replace(specs, **changes)


def a_row(number: int = 1, specs: NodeSpecs | None = None, **changes: Any) -> NodeRow:
    specs = specs or some_specs()
    row = NodeRow(
        id=node_id(number),
        specs=specs,
        models={model.id: model for model in specs.models},
        connected=True,
        last_heard_s=NOW_S,
        rtt_s=0.02,
    )
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def a_job(**changes: Any) -> MatchJob:
    values: dict[str, Any] = {
        "id": MatchId("match_test"),
        "model": MODEL,
        "prompt_tokens": 500,
        "output_tokens": 200,
        "prompt_tokens_floor": 125,
    }
    return MatchJob(**(values | changes))


def a_call(body: bytes = b"", *, model: str = MODEL, **changes: Any) -> ModelCall:
    """What a client asked for, as far as dispatch and metering look at it."""
    values: dict[str, Any] = {"path": "/v1/chat/completions", "size": PromptSize(500, 125)}
    return ModelCall(model=model, body=body, **(values | changes))


def a_dispatched_job(
    body: bytes = b"", *, match: MatchJob | None = None, stream: bool = False, wants_usage: bool = False, **changes: Any
) -> Job:
    match = match or a_job()
    call = a_call(body, model=match.model, stream=stream, wants_usage=wants_usage)
    values: dict[str, Any] = {"match": match, "call": call, "key_id": KeyId("key_test"), "body": body}
    return Job(**(values | changes))


def a_decision(
    job: MatchJob,
    *ranked: Candidate,
    stopped: Sequence[tuple[NodeId, Rejection]] = (),
    policy: str = "balanced",
    total: int = 0,
    barred: Mapping[str, int] = {},
) -> Decision:
    """One that tells of these nodes, in the lines of numbers that a scan writes."""
    seated = (*(each.node_id for each in ranked), *(node for node, _ in stopped))
    told, rejected = array("d"), array("d")
    for place, each in enumerate(ranked):
        usd = each.price_nano / 1e9
        told.extend((place, each.cost, each.predicted_ttft_s, each.predicted_finish_s, usd, *each.parts))
    for place, (_, reason) in enumerate(stopped, start=len(ranked)):
        rejected.extend((place, SCAN_REJECTIONS.index(reason), *[0.0] * len(REJECTED_FIELDS)))
    numbers = (told.tobytes(), seated, rejected.tobytes())
    return Decision(job, policy, total, len(ranked), *numbers, rejected_by_policy=barred)


def situation(**changes: Any) -> MatchContext:
    values: dict[str, Any] = {"now_s": NOW_S, "rules": HealthRules()}
    return MatchContext(**(values | changes))


_OF_THE_SPECS = {"id", "specs", "index", "hash", "models", "positions", "breakers", "own_active"}
_COPIED = [field.name for field in dataclasses.fields(NodeRow) if field.name not in _OF_THE_SPECS]


def a_lesson(factor: float) -> Lessons:
    """As if jobs had taught that something takes so many times longer than the node says."""
    lessons = Lessons()
    lessons.factor = factor
    return lessons


def a_position(*, reading: float = 1.0, writing: float = 1.0, output_tokens: float = 256.0) -> ColumnPosition:
    """What jobs have taught about a model on a row that is in no table yet."""
    position = ColumnPosition(MODEL, NodeColumns(), 0, UNUSABLE[0], output_tokens)
    position.reading, position.writing = a_lesson(reading), a_lesson(writing)
    return position


def table_of(*rows: NodeRow) -> NodeTable:
    """A fresh table that knows about each node what its row says."""
    table = NodeTable()
    for row in rows:
        table.remember(row.id, row.specs, last_seen_unix_s=None)
        copy = table.get(row.id)
        assert copy is not None
        for name in _COPIED:
            setattr(copy, name, getattr(row, name))
        copy.own_active = dict(row.own_active)
        table.set_specs(row.id, row.specs)
        for model, position in copy.positions.items():
            breaker = position.breaker = copy.breakers[model] = row.breakers.get(model, position.breaker)
            if model not in row.breakers:
                breaker.open_until_s, breaker.failures_in_row = row.suspect_until_s, int(row.suspect_until_s > 0)
        for model, taught in row.positions.items():
            learned = copy.positions.get(model)
            if learned is not None:
                learned.reading, learned.writing = taught.reading, taught.writing
                learned.output_tokens, learned.timed_jobs = taught.output_tokens, taught.timed_jobs
                learned.reading_least, learned.writing_least = taught.reading_least, taught.writing_least
                learned.loading_from_s = taught.loading_from_s
    return table


def columns_of(table: NodeTable, number: int = 1, model: str = MODEL) -> dict[ColumnField, float]:
    """What a scan would read about one node."""
    row, entries = table.get(node_id(number)), table.columns_of(model)
    assert row is not None
    assert entries is not None
    return dict(zip(ColumnField, entries.by_field[:, row.positions[model].index].tolist(), strict=True))


def a_table(
    count: int, specs: NodeSpecs | None = None, *, now_s: float = NOW_S, zones: NodeZones | None = None
) -> NodeTable:
    table = NodeTable(zones=zones)
    for number in range(1, count + 1):
        table.connect(node_id(number), specs or some_specs(), now_s=now_s)
        make_timed(table, node_id(number))
    return table


def make_timed(table: NodeTable, node: NodeId) -> None:
    """As if gateways had timed all its models, and found what it says."""
    row = table.get(node)
    assert row is not None
    measured = {model: position for model, position in row.positions.items() if position.figures.is_measured}
    timings = {model: position.timing()._replace(jobs=TIMED_JOBS) for model, position in measured.items()}
    table.restore(node, timings)
