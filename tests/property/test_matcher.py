from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.inference.dispatch.run import no_match_error
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.filters import vram_needed_bytes
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob, NodeRow
from sparewatt.inference.matcher.policies import BALANCED, POLICIES, Policy
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.node import ModelReport, NodeLoad, NodeSpecs, Speed
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, node_id, situation

few = settings(max_examples=60, deadline=None)

rates = st.floats(min_value=0, max_value=1e7, exclude_min=True)
prices = st.integers(0, 10**15)
speeds = st.builds(
    Speed, prefill_tps=rates, decode_tps=rates, ttft_s=st.floats(min_value=0, max_value=3600, allow_nan=False)
)
models = st.builds(
    ModelReport,
    id=st.sampled_from([MODEL, "another", "meta/a-third"]),
    state=st.sampled_from(["warm", "loading", "on_disk"]),
    weights_bytes=st.integers(0, 1 << 50),
    kv_bytes_per_token=st.integers(0, 1 << 30),
    prompt_price_nano=prices,
    completion_price_nano=prices,
    context_length=st.none() | st.integers(1, 1 << 26),
    claimed=st.none() | speeds,
    measured=st.none() | speeds,
)
specs = st.builds(
    NodeSpecs,
    name=st.just("n"),
    region=st.just("r"),
    gpu=st.just("g"),
    gpu_count=st.integers(0, 8),
    vram_bytes=st.integers(0, 1 << 50),
    tflops=st.floats(min_value=0, max_value=1e6),
    hourly_price_nano=prices,
    slots=st.integers(1, 4096),
    backend=st.just("b"),
    agent_version=st.just("0"),
    models=st.lists(models, max_size=3).map(tuple),
)
loads = st.builds(NodeLoad, foreign=st.integers(0, 100), draining=st.booleans())
jobs = st.builds(
    MatchJob,
    id=st.just(MatchId("match_p")),
    model=st.sampled_from([MODEL, ModelId("nowhere")]),
    prompt_tokens=st.integers(1, 1 << 24),
    output_tokens=st.integers(1, 1 << 24),
    prompt_tokens_floor=st.integers(0, 1 << 24),
)


@st.composite
def rows(draw: st.DrawFn, number: int) -> NodeRow:
    drawn = draw(specs)
    own_jobs = draw(st.integers(0, 50))
    return NodeRow(
        id=node_id(number),
        specs=drawn,
        models={model.id: model for model in drawn.models},
        load=draw(loads),
        connected=draw(st.booleans()),
        last_heard_s=NOW_S - draw(st.floats(0, 30)),
        rtt_s=draw(st.floats(0, 600)),
        own_jobs=own_jobs,
        own_prompt_tokens=own_jobs * draw(st.integers(0, 1 << 20)),
        own_output_tokens=own_jobs * draw(st.integers(0, 1 << 20)),
    )


tables = st.integers(0, 6).flatmap(lambda n: st.tuples(*(rows(number) for number in range(1, n + 1))))
policies = st.sampled_from(list(POLICIES.values()))


@st.composite
def fit_rows(draw: st.DrawFn, number: int) -> NodeRow:
    """A node that can have `a_job()`, with ordinary figures."""
    row = draw(rows(number))
    model = draw(models)
    fit = msgspec.structs.replace(
        model,
        id=MODEL,
        context_length=None,
        weights_bytes=draw(st.integers(0, 1 << 40)),
        kv_bytes_per_token=1000,
        measured=Speed(prefill_tps=draw(st.floats(1, 1e5)), decode_tps=draw(st.floats(0.1, 1e3)), ttft_s=0.1),
    )
    row.specs = msgspec.structs.replace(row.specs, vram_bytes=1 << 45, models=(fit,), slots=16)
    row.models = {MODEL: fit}
    row.connected, row.last_heard_s, row.load = True, NOW_S, NodeLoad(foreign=draw(st.integers(0, 20)))
    return row


rivals = st.tuples(*(fit_rows(number) for number in range(1, 5)))


def decide(job: MatchJob, nodes: tuple[NodeRow, ...] | list[NodeRow], policy: Policy = BALANCED) -> Decision:
    return match(job, nodes, situation(), policy=policy, seed=5)


def place(decision: Decision, wanted: NodeId) -> int:
    return [candidate.node_id for candidate in decision.ranked].index(wanted)


def candidate_of(decision: Decision, wanted: NodeId) -> Candidate:
    return decision.ranked[place(decision, wanted)]


def changed(row: NodeRow, *, model: dict[str, Any] | None = None, specs: dict[str, Any] | None = None) -> NodeRow:
    """The same node with another model report, or other specs."""
    report = msgspec.structs.replace(row.models[MODEL], **(model or {}))
    return NodeRow(
        id=row.id,
        specs=msgspec.structs.replace(row.specs, models=(report,), **(specs or {})),
        models={MODEL: report},
        load=row.load,
        connected=row.connected,
        last_heard_s=row.last_heard_s,
        rtt_s=row.rtt_s,
        own_jobs=row.own_jobs,
        own_prompt_tokens=row.own_prompt_tokens,
        own_output_tokens=row.own_output_tokens,
    )


def never_helps(nodes: tuple[NodeRow, ...], worse: NodeRow) -> None:
    before, after = decide(a_job(), nodes), decide(a_job(), (worse, *nodes[1:]))
    assert place(after, worse.id) >= place(before, worse.id)
    assert candidate_of(after, worse.id).cost >= candidate_of(before, worse.id).cost


@few
@given(job=jobs, nodes=tables, policy=policies, data=st.data())
def test_the_order_of_the_table_changes_nothing(
    job: MatchJob, nodes: tuple[NodeRow, ...], policy: Policy, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(nodes))
    assert decide(job, shuffled, policy) == decide(job, nodes, policy)


@few
@given(nodes=rivals, factor=st.floats(1, 100), prefill=st.booleans())
def test_being_slower_never_helps(nodes: tuple[NodeRow, ...], factor: float, *, prefill: bool) -> None:
    measured = nodes[0].models[MODEL].measured
    assert measured is not None
    slower = (
        msgspec.structs.replace(measured, prefill_tps=measured.prefill_tps / factor)
        if prefill
        else msgspec.structs.replace(measured, decode_tps=measured.decode_tps / factor)
    )
    never_helps(nodes, changed(nodes[0], model={"measured": slower}))


@few
@given(nodes=rivals, more_nano=st.integers(0, 10**12))
def test_being_dearer_never_helps(nodes: tuple[NodeRow, ...], more_nano: int) -> None:
    model = nodes[0].models[MODEL]
    never_helps(nodes, changed(nodes[0], model={"prompt_price_nano": model.prompt_price_nano + more_nano}))
    never_helps(nodes, changed(nodes[0], model={"completion_price_nano": model.completion_price_nano + more_nano}))


@few
@given(nodes=rivals, more_s=st.floats(0, 10))
def test_being_farther_never_helps(nodes: tuple[NodeRow, ...], more_s: float) -> None:
    farther = changed(nodes[0])
    farther.rtt_s += more_s
    never_helps(nodes, farther)


@few
@given(nodes=rivals, vram_bytes=st.integers(0, 1 << 50))
def test_memory_beyond_the_need_changes_nothing(nodes: tuple[NodeRow, ...], vram_bytes: int) -> None:
    enough = max(vram_bytes, vram_needed_bytes(a_job(), nodes[0].models[MODEL]))
    bigger = changed(nodes[0], specs={"vram_bytes": enough})
    assert decide(a_job(), (bigger, *nodes[1:])).ranked == decide(a_job(), nodes).ranked


@few
@given(nodes=rivals, claimed=st.none() | speeds, tflops=st.floats(0, 1e6), hourly=prices, gpus=st.integers(0, 1024))
def test_what_a_node_claims_about_itself_moves_no_cost(
    nodes: tuple[NodeRow, ...], claimed: Speed | None, tflops: float, hourly: int, gpus: int
) -> None:
    boasting = changed(
        nodes[0],
        model={"claimed": claimed},
        specs={"tflops": tflops, "hourly_price_nano": hourly, "gpu_count": gpus, "gpu": "H100"},
    )
    assert decide(a_job(), (boasting, *nodes[1:])) == decide(a_job(), nodes)


@few
@given(job=jobs, nodes=tables, policy=policies)
def test_every_figure_is_finite_and_every_node_accounted_for(
    job: MatchJob, nodes: tuple[NodeRow, ...], policy: Policy
) -> None:
    decision = decide(job, nodes, policy)
    for candidate in decision.ranked:
        figures = (candidate.cost, *candidate.parts, candidate.predicted_ttft_s, candidate.predicted_finish_s)
        assert all(math.isfinite(figure) for figure in figures)
    assert len(decision.ranked) + sum(decision.dropped.values()) == decision.total == len(nodes)
    assert decision.ranked == tuple(sorted(decision.ranked, key=lambda c: (round(c.cost, 6), c.node_id)))


@few
@given(job=jobs, nodes=tables, policy=policies)
def test_every_decision_can_be_explained(job: MatchJob, nodes: tuple[NodeRow, ...], policy: Policy) -> None:
    decision = decide(job, nodes, policy)
    explained = describe(decision, {row.id: row for row in nodes})
    assert msgspec.json.encode(explained)
    assert explained["funnel"][-1]["left"] == len(decision.ranked)
    if decision.best is None:
        error = no_match_error(decision, _table_of(nodes))
        assert isinstance(error, SparewattError)
        assert error.message


def _table_of(nodes: tuple[NodeRow, ...]) -> NodeTable:
    table = NodeTable()
    for row in nodes:
        table.remember(row.id, row.specs, last_seen_unix_s=None)
    return table
