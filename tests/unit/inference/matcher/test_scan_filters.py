from __future__ import annotations

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.core.limits import LINK_JOBS_MAX, NODE_QUEUE_PER_SLOT
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import SCAN_REJECTIONS, MatchJob, RejectedNode, Rejection
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.scan import FILTERS, FULL, TRIED
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import GIB, NOW_S, a_job, a_model, a_row, node_id, situation, some_specs, table_of


def reason(row: NodeRow, job: MatchJob | None = None, *, tried: bool = False) -> Rejection | None:
    """What stops a node that is alone; the count, the name and the ranking must tell the same story."""
    at = situation(tried={row.id} if tried else frozenset())
    decision = match(job or a_job(), table_of(row), at, ranking=BALANCED, seed=1)
    if decision.best is not None:
        assert (decision.rejected_by_reason, decision.rejected) == ({}, ())
        return None
    (found,) = decision.rejected_by_reason
    assert decision.rejected_by_reason == {found: 1}
    assert [item.reason for item in decision.rejected] == ([] if found is Rejection.NO_MODEL else [found])
    return found


def rejected(row: NodeRow, job: MatchJob | None = None) -> RejectedNode:
    (found,) = match(job or a_job(), table_of(row), situation(), ranking=BALANCED, seed=1).rejected
    return found


def test_a_fit_node_passes_every_filter() -> None:
    assert reason(a_row()) is None


def test_a_node_without_the_model_is_rejected() -> None:
    assert reason(a_row(), a_job(model=ModelId("another"))) is Rejection.NO_MODEL


@pytest.mark.parametrize(
    "row", [a_row(connected=False), a_row(last_heard_s=NOW_S - 100)], ids=["socket dropped", "heartbeats stopped"]
)
def test_an_offline_node_is_rejected(row: NodeRow) -> None:
    assert reason(row) is Rejection.OFFLINE


def test_a_suspect_node_is_not_rejected() -> None:
    assert reason(a_row(last_heard_s=NOW_S - 11)) is None
    assert reason(a_row(suspect_until_s=NOW_S + 10)) is None


def test_a_draining_node_is_rejected() -> None:
    assert reason(a_row(load=NodeLoad(draining=True))) is Rejection.DRAINING


def test_a_prompt_that_cannot_fit_is_rejected_with_both_numbers() -> None:
    assert rejected(a_row(), a_job(prompt_tokens_floor=8192)) == RejectedNode(
        node_id(1), Rejection.PROMPT_TOO_LONG, needed=8192, had=8192
    )


def test_a_prompt_is_judged_by_its_lower_bound_not_by_its_estimate() -> None:
    assert reason(a_row(), a_job(prompt_tokens=100_000, prompt_tokens_floor=8191)) is None


def test_a_model_without_a_known_context_takes_any_prompt() -> None:
    row = a_row(specs=some_specs(a_model(context_length=None)))
    assert reason(row, a_job(prompt_tokens_floor=10**7)) is None


def test_the_memory_a_job_needs_is_weights_and_its_whole_context() -> None:
    assert a_job().vram_needed_bytes(a_model()) == 8 * GIB + 100_000 * 700


@pytest.mark.parametrize(("spare_bytes", "expected"), [(0, None), (-1, Rejection.TOO_LITTLE_VRAM)])
def test_a_cold_model_needs_room_for_weights_and_context(spare_bytes: int, expected: Rejection | None) -> None:
    model = a_model(state="on_disk")
    vram_bytes = a_job().vram_needed_bytes(model) + spare_bytes
    assert reason(a_row(specs=some_specs(model, vram_bytes=vram_bytes))) is expected


def test_a_warm_model_has_its_memory_already() -> None:
    assert reason(a_row(specs=some_specs(a_model(state="warm"), vram_bytes=0))) is None


def test_a_model_that_was_never_measured_is_rejected_whatever_it_claims() -> None:
    model = a_model(measured=None, claimed=a_model().measured)
    assert reason(a_row(specs=some_specs(model))) is Rejection.NOT_MEASURED


@pytest.mark.parametrize(("free", "expected"), [(1, None), (0, Rejection.FULL)])
def test_own_and_foreign_jobs_fill_the_queue_together(free: int, expected: Rejection | None) -> None:
    room = 4 * (1 + NODE_QUEUE_PER_SLOT)
    assert reason(a_row(own_jobs=room - 10 - free, load=NodeLoad(foreign=10))) is expected


@pytest.mark.parametrize(("own_jobs", "expected"), [(LINK_JOBS_MAX - 1, None), (LINK_JOBS_MAX, Rejection.FULL)])
def test_a_link_never_carries_more_jobs_than_its_node_accepts(own_jobs: int, expected: Rejection | None) -> None:
    big = some_specs(slots=512)
    assert reason(a_row(specs=big, own_jobs=own_jobs)) is expected


def test_foreign_jobs_do_not_fill_the_link() -> None:
    assert reason(a_row(specs=some_specs(slots=512), load=NodeLoad(foreign=LINK_JOBS_MAX))) is None


def test_a_node_that_failed_this_job_is_rejected() -> None:
    assert reason(a_row(), tried=True) is Rejection.ALREADY_TRIED


def test_filters_stand_in_the_order_of_the_reasons() -> None:
    """A node that fails them all is stopped by the first; with each thing mended, by the next."""
    bad = a_row(
        specs=some_specs(a_model(state="on_disk", measured=None), vram_bytes=0),
        connected=False,
        load=NodeLoad(draining=True, foreign=36),
    )
    bad.is_suspended = True
    job = a_job(model=ModelId("another"), prompt_tokens_floor=9000)
    seen = [reason(bad, job, tried=True)]
    job = a_job(prompt_tokens_floor=9000)
    seen.append(reason(bad, job, tried=True))
    bad.connected = True
    seen.append(reason(bad, job, tried=True))
    bad.load = NodeLoad(foreign=36)
    seen.append(reason(bad, job, tried=True))
    job = a_job()
    seen.append(reason(bad, job, tried=True))
    bad.specs = some_specs(a_model(measured=None))
    seen.append(reason(bad, job, tried=True))
    bad.specs = some_specs()
    seen.append(reason(bad, job, tried=True))
    bad.load = NodeLoad()
    seen.append(reason(bad, job, tried=True))
    bad.is_suspended = False
    seen.append(reason(bad, job, tried=True))
    assert seen == [found for found in Rejection if found not in {Rejection.NOT_SHORTLISTED, Rejection.NOT_TIMED}]


def test_memory_and_room_are_told_with_both_numbers() -> None:
    cold = a_model(state="on_disk")
    small = a_row(specs=some_specs(cold, vram_bytes=GIB))
    assert rejected(small) == RejectedNode(
        node_id(1), Rejection.TOO_LITTLE_VRAM, needed=a_job().vram_needed_bytes(cold), had=GIB
    )
    assert rejected(a_row(own_jobs=36)) == RejectedNode(node_id(1), Rejection.FULL, needed=37, had=36)


def test_a_node_fills_as_jobs_are_sent_to_it() -> None:
    table = NodeTable()
    table.connect(node_id(1), some_specs(slots=1), now_s=NOW_S)
    for _ in range(1 + NODE_QUEUE_PER_SLOT):
        assert match(a_job(), table, situation(), ranking=BALANCED, seed=1).best is not None
        table.reserve(node_id(1), a_job(), now_s=NOW_S)
    assert match(a_job(), table, situation(), ranking=BALANCED, seed=1).rejected_by_reason == {Rejection.FULL: 1}


def test_every_node_is_counted_once_at_the_first_filter_that_stops_it() -> None:
    rows = [
        a_row(1),
        a_row(2, connected=False, load=NodeLoad(draining=True, foreign=99)),
        a_row(3, specs=some_specs(a_model(id="another")), connected=False),
        a_row(4, load=NodeLoad(draining=True, foreign=99)),
        a_row(5, load=NodeLoad(foreign=99)),
        a_row(6, specs=some_specs(a_model(measured=None)), load=NodeLoad(foreign=99)),
    ]
    decision = match(a_job(), table_of(*rows), situation(), ranking=BALANCED, seed=1)
    assert decision.rejected_by_reason == {
        Rejection.NO_MODEL: 1,
        Rejection.OFFLINE: 1,
        Rejection.DRAINING: 1,
        Rejection.NOT_MEASURED: 1,
        Rejection.FULL: 1,
    }
    assert len(decision.ranked) + sum(decision.rejected_by_reason.values()) == decision.total == len(rows)


def test_a_rule_has_the_number_of_its_reason() -> None:
    assert SCAN_REJECTIONS[: len(FILTERS)] == tuple(FILTERS)
    assert (SCAN_REJECTIONS[FULL], SCAN_REJECTIONS[TRIED]) == (Rejection.FULL, Rejection.ALREADY_TRIED)
