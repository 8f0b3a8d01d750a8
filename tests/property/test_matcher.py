from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.inference.dispatch.node_selection import no_match_error
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED, PARTS, RANKINGS, Preference, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, Decision, MatchJob
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, Speed, validated
from tests.unit.inference.nodes import (
    MODEL,
    NOW_S,
    a_job,
    a_model,
    a_position,
    a_row,
    node_id,
    situation,
    some_specs,
    table_of,
)

rates = st.floats(min_value=0, max_value=1e7, exclude_min=True)
prices = st.integers(0, 10**15)
seconds = st.floats(0, 3600)
byte_counts = st.integers(0, 1 << 50)
paces = st.none() | st.floats(0.01, 1.0)
speeds = st.builds(
    Speed,
    prefill_tps=rates,
    decode_tps=rates,
    ttft_s=seconds,
    step_per_job_s=st.none() | seconds,
    prefill_square_s=st.floats(0, 1e-3),
    step_per_token_s=st.none() | st.floats(0, 1),
    prefill_pace=paces,
    decode_pace=paces,
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
    bandwidth_bytes_s=st.none() | st.floats(min_value=0, max_value=1e15, exclude_min=True, allow_subnormal=False),
)
loads = st.builds(
    NodeLoad,
    foreign=st.integers(0, 100),
    draining=st.booleans(),
    foreign_backlog_s=st.floats(0, 1e6),
    foreign_kv_bytes=byte_counts,
    foreign_active_bytes=byte_counts,
    kv_capacity_bytes=st.none() | byte_counts,
    prefill_share=st.floats(0, 1),
)
jobs = st.builds(
    MatchJob,
    id=st.just(MatchId("match_p")),
    model=st.sampled_from([MODEL, ModelId("nowhere")]),
    prompt_tokens=st.integers(1, 1 << 24),
    output_tokens=st.integers(1, 1 << 24),
    prompt_tokens_floor=st.integers(0, 1 << 24),
)


factors = st.floats(-1.4, 16).map(math.exp)
positions = st.builds(a_position, reading=factors, writing=factors, output_tokens=st.floats(1, 32_768))


@st.composite
def rows(draw: st.DrawFn, number: int) -> NodeRow:
    drawn = draw(specs)
    own_jobs = draw(st.integers(0, 50))
    return NodeRow(
        id=node_id(number),
        specs=drawn,
        load=draw(loads),
        connected=draw(st.booleans()),
        last_heard_s=NOW_S - draw(st.floats(0, 30)),
        rtt_s=draw(st.floats(0, 600)),
        own_jobs=own_jobs,
        own_unread_s=own_jobs * draw(st.floats(0, 1e6)),
        own_read_from_s=NOW_S - draw(st.floats(0, 100)),
        own_kv_bytes=own_jobs * draw(st.floats(0, 1e12)),
        jobs_done=draw(st.integers(0, 10**6)),
        jobs_failed=draw(st.integers(0, 10**6)),
        suspect_until_s=NOW_S + draw(st.sampled_from([0.0, 30.0])),
        positions={MODEL: draw(positions)},
    )


tables = st.integers(0, 6).flatmap(lambda n: st.tuples(*(rows(number) for number in range(1, n + 1))))
rankings = st.sampled_from(list(RANKINGS.values()))


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
        measured=Speed(
            prefill_tps=draw(st.floats(1, 1e5)),
            decode_tps=draw(st.floats(0.2, 1e3)),
            ttft_s=0.1,
            prefill_square_s=draw(st.floats(0, 1e-6)),
            prefill_pace=draw(paces),
            decode_pace=draw(paces),
        ),
    )
    bandwidth = draw(st.none() | st.floats(1e6, 1e15))
    row.specs = msgspec.structs.replace(
        row.specs, vram_bytes=1 << 45, models=(fit,), slots=16, bandwidth_bytes_s=bandwidth
    )
    row.connected, row.last_heard_s = True, NOW_S
    row.load = msgspec.structs.replace(row.load, draining=False, foreign=draw(st.integers(0, 20)))
    return row


few_jobs = st.builds(
    a_job,
    prompt_tokens=st.integers(1, 4000),
    output_tokens=st.integers(1, 4000),
    prompt_tokens_floor=st.just(0),
)
preferences = st.builds(
    Preference,
    sort=st.sampled_from([None, "price", "throughput", "latency"]),
    weights=st.dictionaries(st.sampled_from(PARTS), st.floats(0, 100)).map(lambda weights: tuple(weights.items())),
)
by_seconds = st.sampled_from([ranking for ranking in RANKINGS.values() if ranking.unit == "s"])


rivals = st.tuples(*(fit_rows(number) for number in range(1, 5)))


def decide(job: MatchJob, nodes: Sequence[NodeRow], ranking: Ranking = BALANCED) -> Decision:
    return match(job, table_of(*nodes), situation(), ranking=ranking, seed=5)


def place(decision: Decision, wanted: NodeId) -> int:
    return [candidate.node_id for candidate in decision.ranked].index(wanted)


def candidate_of(decision: Decision, wanted: NodeId) -> Candidate:
    return decision.ranked[place(decision, wanted)]


def model_of(row: NodeRow) -> ModelReport:
    (model,) = row.specs.models
    return model


def changed(
    row: NodeRow, *, model: dict[str, Any] | None = None, specs: dict[str, Any] | None = None, **own: Any
) -> NodeRow:
    """The same node with another model report, other specs, or another record."""
    report = msgspec.structs.replace(model_of(row), **(model or {}))
    return dataclasses.replace(row, specs=msgspec.structs.replace(row.specs, models=(report,), **(specs or {})), **own)


def never_helps(nodes: Sequence[NodeRow], worse: NodeRow, job: MatchJob, ranking: Ranking = BALANCED) -> None:
    """Neither by its own cost, but for rounding, nor by its rank."""
    before, after = decide(job, nodes, ranking), decide(job, (worse, *nodes[1:]), ranking)
    assert place(after, worse.id) >= place(before, worse.id)
    assert candidate_of(after, worse.id).cost >= candidate_of(before, worse.id).cost * (1 - 1e-12)


@given(job=jobs, nodes=tables, ranking=rankings, data=st.data())
def test_the_order_of_the_table_changes_nothing(
    job: MatchJob, nodes: tuple[NodeRow, ...], ranking: Ranking, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(nodes))
    assert decide(job, shuffled, ranking) == decide(job, nodes, ranking)


@given(
    nodes=rivals,
    job=few_jobs,
    ranking=by_seconds,
    factor=st.floats(1, 100),
    what=st.sampled_from(["prefill_tps", "decode_tps"]),
)
def test_being_slower_never_helps(
    nodes: tuple[NodeRow, ...], job: MatchJob, ranking: Ranking, factor: float, what: str
) -> None:
    measured = model_of(nodes[0]).measured
    assert measured is not None
    slower = msgspec.structs.replace(measured, **{what: getattr(measured, what) / factor})
    never_helps(nodes, changed(nodes[0], model={"measured": slower}), job, ranking)


@given(nodes=rivals, job=few_jobs, more_s=st.floats(0, 100))
def test_being_later_or_worse_in_company_never_helps(nodes: tuple[NodeRow, ...], job: MatchJob, more_s: float) -> None:
    measured = model_of(nodes[0]).measured
    assert measured is not None
    later = msgspec.structs.replace(measured, ttft_s=measured.ttft_s + more_s)
    never_helps(nodes, changed(nodes[0], model={"measured": later}), job)
    alone = msgspec.structs.replace(measured, step_per_job_s=0.0)
    crowded = msgspec.structs.replace(measured, step_per_job_s=more_s)
    never_helps(
        (changed(nodes[0], model={"measured": alone}), *nodes[1:]),
        changed(nodes[0], model={"measured": crowded}),
        job,
    )


@given(nodes=rivals, job=few_jobs, ranking=by_seconds, more=st.floats(1, 100))
def test_being_seen_slower_never_helps(
    nodes: tuple[NodeRow, ...], job: MatchJob, ranking: Ranking, more: float
) -> None:
    known = nodes[0].positions[MODEL]
    reading, writing = known.reading.factor, known.writing.factor
    for position in (
        a_position(reading=reading * more, writing=writing, output_tokens=known.output_tokens),
        a_position(reading=reading, writing=writing * more, output_tokens=known.output_tokens),
    ):
        never_helps(nodes, changed(nodes[0], positions={MODEL: position}), job, ranking)


@given(nodes=rivals, job=few_jobs, factor=st.floats(1, 1e6))
def test_a_lower_bandwidth_never_helps(nodes: tuple[NodeRow, ...], job: MatchJob, factor: float) -> None:
    wide = changed(nodes[0], specs={"bandwidth_bytes_s": 1e12})
    never_helps((wide, *nodes[1:]), changed(nodes[0], specs={"bandwidth_bytes_s": 1e12 / factor}), job)


@given(nodes=rivals, job=few_jobs, ranking=by_seconds, more_nano=st.integers(0, 10**12))
def test_being_dearer_never_helps(nodes: tuple[NodeRow, ...], job: MatchJob, ranking: Ranking, more_nano: int) -> None:
    model = model_of(nodes[0])
    for name in ("prompt_price_nano", "completion_price_nano"):
        dearer = changed(nodes[0], model={name: getattr(model, name) + more_nano})
        never_helps(nodes, dearer, job, ranking)


@given(nodes=rivals, job=few_jobs, more_s=st.floats(0, 10))
def test_being_farther_never_helps(nodes: tuple[NodeRow, ...], job: MatchJob, more_s: float) -> None:
    never_helps(nodes, changed(nodes[0], rtt_s=nodes[0].rtt_s + more_s), job)


@given(nodes=rivals, job=few_jobs, failures=st.integers(0, 1000))
def test_being_flakier_never_helps(nodes: tuple[NodeRow, ...], job: MatchJob, failures: int) -> None:
    never_helps(nodes, changed(nodes[0], jobs_failed=nodes[0].jobs_failed + failures), job)
    fewer_done = nodes[0].jobs_done // (1 + failures)
    never_helps(nodes, changed(nodes[0], jobs_done=fewer_done), job)
    never_helps(nodes, changed(nodes[0], suspect_until_s=NOW_S + 30), job)


@given(
    nodes=rivals,
    job=few_jobs,
    jobs=st.integers(0, 10),
    more_s=st.floats(0, 100),
    more_bytes=st.integers(0, 1 << 40),
    share=st.floats(0, 1),
)
def test_having_more_to_do_never_helps(  # noqa: PLR0917 (one thing each)
    nodes: tuple[NodeRow, ...], job: MatchJob, jobs: int, more_s: float, more_bytes: int, share: float
) -> None:
    load = nodes[0].load
    busier = {
        "foreign": load.foreign + jobs,
        "foreign_backlog_s": load.foreign_backlog_s + more_s,
        "foreign_kv_bytes": load.foreign_kv_bytes + more_bytes,
        "foreign_active_bytes": load.foreign_active_bytes + more_bytes,
        "prefill_share": max(load.prefill_share, share),
    }
    for name, value in busier.items():
        never_helps(nodes, changed(nodes[0], load=msgspec.structs.replace(load, **{name: value})), job)
    never_helps(nodes, changed(nodes[0], own_jobs=nodes[0].own_jobs + jobs), job)
    never_helps(nodes, changed(nodes[0], own_unread_s=nodes[0].own_unread_s + more_s), job)
    colder = changed(nodes[0], model={"state": "on_disk"})
    never_helps((changed(nodes[0], model={"state": "warm"}), *nodes[1:]), colder, job)


@given(nodes=rivals, job=few_jobs, ranking=by_seconds, vram_bytes=byte_counts, kv_bytes=byte_counts)
def test_memory_beyond_the_need_changes_nothing(
    nodes: tuple[NodeRow, ...], job: MatchJob, ranking: Ranking, vram_bytes: int, kv_bytes: int
) -> None:
    enough = max(vram_bytes, job.vram_needed_bytes(model_of(nodes[0])))
    bigger = changed(nodes[0], specs={"vram_bytes": enough})
    assert decide(job, (bigger, *nodes[1:]), ranking).ranked == decide(job, nodes, ranking).ranked
    load = nodes[0].load
    used_bytes = math.ceil(nodes[0].own_kv_bytes) + load.foreign_kv_bytes
    needed_bytes = used_bytes + 1000 * (job.prompt_tokens + job.output_tokens)
    just, more = (
        changed(nodes[0], load=msgspec.structs.replace(load, kv_capacity_bytes=min(1 << 50, capacity)))
        for capacity in (needed_bytes + 4096, needed_bytes + 4096 + kv_bytes)
    )
    assert decide(job, (just, *nodes[1:]), ranking).ranked == decide(job, (more, *nodes[1:]), ranking).ranked


@given(
    nodes=rivals,
    ranking=by_seconds,
    claimed=st.none() | speeds,
    tflops=st.floats(0, 1e6),
    hourly=prices,
    gpus=st.integers(0, 1024),
)
def test_what_a_node_claims_about_itself_moves_no_cost(  # noqa: PLR0917 (one claim each)
    nodes: tuple[NodeRow, ...], ranking: Ranking, claimed: Speed | None, tflops: float, hourly: int, gpus: int
) -> None:
    boasting = changed(
        nodes[0],
        model={"claimed": claimed},
        specs={"tflops": tflops, "hourly_price_nano": hourly, "gpu_count": gpus, "gpu": "H100"},
    )
    assert decide(a_job(), (boasting, *nodes[1:]), ranking) == decide(a_job(), nodes, ranking)


@given(
    seen=st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(0, 10**6)), max_size=10),
    measured=st.builds(Speed, prefill_tps=st.floats(1, 1e5), decode_tps=st.floats(0.1, 1e3)),
)
def test_what_is_observed_never_raises_a_node_above_what_its_card_can_do(
    seen: list[tuple[float, float, int]], measured: Speed
) -> None:
    row = a_row(specs=some_specs(a_model(measured=measured)))
    table, now_s = table_of(row), NOW_S
    nominal = candidate_of(decide(a_job(), [row]), row.id)
    found = table.get(row.id)
    assert found is not None
    ceiling = found.positions[MODEL].figures.faster_max * (1 + 1e-9)
    for read_s, wrote_s, steps in seen:
        held = table.reserve(row.id, a_job(), now_s=now_s)
        table.note_first_token(held, now_s=now_s + read_s)
        now_s += read_s + wrote_s
        table.note_answer(held, steps=steps, now_s=now_s)
        table.release(held, now_s=now_s)
        table.set_load(row.id, NodeLoad(), now_s=now_s)
        best = match(a_job(), table, situation(now_s=now_s), ranking=BALANCED, seed=5).best
        assert best is not None
        for name in ("prefill", "decode"):
            assert best.parts[PARTS.index(name)] >= nominal.parts[PARTS.index(name)] / ceiling


@given(job=jobs, nodes=tables, ranking=rankings)
def test_every_figure_is_finite_and_every_node_accounted_for(
    job: MatchJob, nodes: tuple[NodeRow, ...], ranking: Ranking
) -> None:
    decision = decide(job, nodes, ranking)
    for candidate in decision.ranked:
        figures = (candidate.cost, *candidate.parts, candidate.predicted_ttft_s, candidate.predicted_finish_s)
        assert all(math.isfinite(figure) for figure in figures)
        assert all(figure >= 0 for figure in figures) or ranking.unit == "score"
    assert len(decision.ranked) + sum(decision.rejected_by_reason.values()) == decision.total == len(nodes)
    assert decision.ranked == tuple(sorted(decision.ranked, key=lambda c: (math.floor(c.cost * 1e6 + 0.5), c.node_id)))


@given(job=jobs, nodes=tables, ranking=rankings)
def test_every_decision_can_be_explained(job: MatchJob, nodes: tuple[NodeRow, ...], ranking: Ranking) -> None:
    decision = decide(job, nodes, ranking)
    explained = msgspec.to_builtins(describe(decision, {row.id: row for row in nodes}))
    assert msgspec.json.encode(explained)
    assert explained["funnel"][-1]["left"] == len(decision.ranked)
    if decision.best is None:
        error = no_match_error(decision, table_of(*nodes))
        assert isinstance(error, SparewattError)
        assert error.message


def with_the_way(preference: Preference) -> Preference:
    """A second on the way counts at least as much as one in a queue: else waiting for it on the way would pay."""
    weights = dict(preference.weights)
    weights["network"] = max(weights.get("network", 1.0), weights.get("queue", 1.0))
    return dataclasses.replace(preference, weights=tuple(weights.items()))


@given(nodes=rivals, job=few_jobs, ranking=by_seconds, preference=preferences, factor=st.floats(1, 100))
def test_whatever_a_request_prefers_being_worse_never_helps(
    nodes: tuple[NodeRow, ...], job: MatchJob, ranking: Ranking, preference: Preference, factor: float
) -> None:
    asked = msgspec.structs.replace(job, preference=preference)
    measured, price_nano = model_of(nodes[0]).measured, model_of(nodes[0]).completion_price_nano
    assert measured is not None
    slower = msgspec.structs.replace(measured, decode_tps=measured.decode_tps / factor)
    for worse in (
        changed(nodes[0], model={"measured": slower}),
        changed(nodes[0], model={"completion_price_nano": math.ceil(price_nano * factor)}),
        changed(nodes[0], jobs_failed=math.ceil(nodes[0].jobs_failed * factor)),
    ):
        never_helps(nodes, worse, asked, ranking)
    farther = changed(nodes[0], rtt_s=nodes[0].rtt_s * factor)
    never_helps(nodes, farther, msgspec.structs.replace(job, preference=with_the_way(preference)), ranking)
    for candidate in decide(asked, nodes, ranking).ranked:
        assert all(math.isfinite(figure) and figure >= 0 for figure in (candidate.cost, *candidate.parts))


anything = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -1.0, 1e300, 5e-324])
any_count = st.integers(-(10**30), 10**30)


@given(
    nodes=rivals,
    ranking=by_seconds,
    measured=st.builds(
        Speed,
        anything,
        anything,
        anything,
        st.none() | anything,
        prefill_square_s=anything,
        step_per_token_s=st.none() | anything,
        prefill_pace=st.none() | anything,
        decode_pace=st.none() | anything,
    ),
    model=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("weights_bytes", "kv_bytes_per_token", "prompt_price_nano"), any_count)
    ),
    specs=st.fixed_dictionaries(
        {}, optional={"vram_bytes": any_count, "tflops": anything, "bandwidth_bytes_s": st.none() | anything}
    ),
)
def test_figures_that_cannot_be_never_crash_and_never_win(
    nodes: tuple[NodeRow, ...], ranking: Ranking, measured: Speed, model: dict[str, Any], specs: dict[str, Any]
) -> None:
    """What decoding would refuse gets no job; what it lets through has a cost."""
    odd = changed(nodes[0], model={"measured": measured, **model}, specs=specs)
    decision = decide(a_job(), (odd, *nodes[1:]), ranking)
    assert len(decision.ranked) + sum(decision.rejected_by_reason.values()) == len(nodes)
    for candidate in decision.ranked:
        assert all(math.isfinite(figure) and figure >= 0 for figure in (candidate.cost, *candidate.parts))
    if not is_lawful(odd.specs):
        assert odd.id not in [candidate.node_id for candidate in decision.ranked]


def is_lawful(specs: NodeSpecs) -> bool:
    try:
        validated(specs)
    except (msgspec.ValidationError, msgspec.MsgspecError, OverflowError):
        return False
    return True
