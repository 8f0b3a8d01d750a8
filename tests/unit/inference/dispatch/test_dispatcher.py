"""All jobs of a gateway: what answers teach about nodes, which matches are kept, how running jobs are ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.core.errors import (
    ShuttingDown,
)
from sparewatt.core.ids import MatchId, NodeId
from sparewatt.core.limits import MATCHES_KEPT
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.match_ring import MatchRing
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.formula import BALANCED, RANKINGS, Ranking
from sparewatt.inference.prompt import BLOCK_TOKENS
from sparewatt.protocol.link.frames import JobEnd, JobFailure, JobReplyHead
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import MODEL, a_job, a_model, node_id, some_specs
from tests.unit.inference.scripted import (
    ANSWER,
    COMPLETION,
    DONE,
    FINISH,
    ROLE,
    USAGE,
    RecordingSink,
    ScriptedNode,
    Stage,
    error_of,
    text_event,
)

Failure = Callable[[Stage, ScriptedNode], None]


# the dispatcher


def test_records_are_a_ring() -> None:
    assert MATCHES_KEPT == 10_000
    stage = Stage()
    stage.dispatcher._ring = MatchRing(2)
    for number in range(3):
        stage.dispatch(match=a_job(id=MatchId(f"match_{number}")))
    assert stage.dispatcher.record(MatchId("match_0")) is None
    assert stage.dispatcher.record(MatchId("match_1")) is not None
    assert stage.dispatcher.record(MatchId("match_2")) is not None
    assert stage.dispatcher.running == 3


def test_a_dry_run_sends_and_reserves_nothing() -> None:
    stage = Stage()
    decision = stage.dispatcher.dry_run(a_job(), ranking=_balanced())
    assert decision.best is not None
    assert all(not node.opened for node in stage.nodes.values())
    stage.assert_nothing_left()


def _balanced() -> Ranking:
    return RANKINGS["balanced"]


def test_an_attempt_that_is_over_is_deaf() -> None:
    """Even if a link forgot to forget it."""
    stage = Stage()
    run = stage.dispatch()
    listener = stage.turn(run).link._streams[1].listener
    run.cancel()
    listener.on_head(JobReplyHead(status=200))
    listener.on_data(ANSWER)
    listener.on_data(b"data: <html>\n\n")
    listener.on_end(JobEnd(load=NodeLoad()))
    listener.on_fail(JobFailure(code="link_lost", message="gone"))
    assert stage.sink.calls == []
    assert run.record.outcome is Outcome.CANCELLED
    stage.assert_nothing_left()


# what an answer teaches about its node

TOKENS = 21


def answer_slowly(stage: Stage, *, factor: float, stream: bool = True) -> JobRun:
    """One answer at `factor` times the time per token that was predicted, by the node whose turn it is."""
    run = stage.dispatch(stream=stream)
    best = run.record.decision.best
    assert best is not None
    step_s = best.parts[5] / run.job.match.output_tokens * learned_speed(stage, best.node_id)
    node = stage.turn(run)
    stage.clock.advance(best.predicted_ttft_s)
    node.head()
    for _ in range(TOKENS):
        node.data(text_event("a"))
        run.consumed(1 << 20)
        stage.clock.advance(factor * step_s)
    stage.clock.advance(-factor * step_s)  # the last token is the end
    node.data(DONE)
    node.end()
    stage.sink = RecordingSink()
    return run


def learned_speed(stage: Stage, node: NodeId) -> float:
    row = stage.table.get(node)
    assert row is not None
    return 1.0 / row.positions[MODEL].writing.factor


def test_a_node_that_keeps_what_it_promised_is_believed() -> None:
    stage = Stage(1)
    answer_slowly(stage, factor=1.0)
    assert learned_speed(stage, node_id(1)) == pytest.approx(1.0)


def test_a_node_three_times_slower_than_its_report_is_expected_to_be() -> None:
    stage = Stage(1)
    for _ in range(25):
        answer_slowly(stage, factor=3.0)
    assert learned_speed(stage, node_id(1)) == pytest.approx(1 / 3, rel=0.05)


def share_of_first(stage: Stage, *, jobs: int = 100) -> float:
    """How many of some jobs, one at a time, would go to node 1."""
    picks = [stage.dispatcher.dry_run(a_job(id=MatchId(f"match_{n}")), ranking=BALANCED).best for n in range(jobs)]
    return sum(pick is not None and pick.node_id == node_id(1) for pick in picks) / jobs


def teach(stage: Stage, *, factor: float) -> None:
    """Node 1 answers at its own pace, the others do nothing meanwhile."""
    for other in list(stage.table):
        if other.id != node_id(1):
            stage.table.disconnect(other.id, unix_s=0)
    for _ in range(20):
        answer_slowly(stage, factor=factor)
    for number in range(2, len(stage.table) + 1):
        stage.table.connect(node_id(number), some_specs(), now_s=stage.clock.now_s())


def test_a_node_slower_than_its_report_loses_its_share() -> None:
    stage = Stage(4)
    assert share_of_first(stage) == pytest.approx(0.25, abs=0.12)
    teach(stage, factor=3.0)
    assert share_of_first(stage) == 0


def test_a_node_faster_than_its_report_gains_as_much_as_its_card_allows() -> None:
    stage = Stage(4)
    teach(stage, factor=0.8)
    assert learned_speed(stage, node_id(1)) == pytest.approx(1 / 0.8, rel=0.05)
    teach(stage, factor=1 / 100)
    row = stage.table.get(node_id(1))
    assert row is not None
    assert learned_speed(stage, node_id(1)) == pytest.approx(row.positions[MODEL].figures.faster_max)
    assert share_of_first(stage) == 1


def test_a_client_that_reads_slowly_teaches_nothing_about_the_node() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    node = stage.turn(run)
    stage.clock.advance(1)
    node.begin(text_event("a"))
    node.data(text_event("x" * (node.may_send_bytes - len(text_event("")))))
    assert node.may_send_bytes == 0
    stage.clock.advance(50)
    run.consumed(len(stage.sink.body))
    node.data(*[text_event("a")] * 20, DONE)
    node.end()
    assert stage.sink.calls == ["start", "finish"]
    assert learned_speed(stage, node.id) == 1.0


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_a_few_tokens_teach_nothing(tokens: int) -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch())
    stage.clock.advance(1)
    node.begin(text_event("a"))
    stage.clock.advance(20)
    node.data(*[text_event("a")] * (tokens - 1), DONE)
    node.end()
    assert learned_speed(stage, node.id) == 1.0


def test_an_answer_that_is_not_streamed_teaches_nothing() -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch(stream=False))
    stage.clock.advance(100)
    node.answer(COMPLETION)
    assert learned_speed(stage, node.id) == 1.0


def test_a_policy_that_ranks_by_score_promises_and_teaches_all_the_same() -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch(ranking=RANKINGS["neuralgrid"]))
    assert node.opened[0].promised_ttft_s > 0
    stage.clock.advance(1)
    node.begin(text_event("a"))
    stage.clock.advance(20)
    node.data(*[text_event("a")] * 20, DONE)
    node.end()
    assert learned_speed(stage, node.id) < 1.0


# what outlives the ring


def test_a_failure_waits_to_be_stored() -> None:
    stage = Stage(0)
    run = stage.dispatch()
    assert stage.dispatcher.explanations.take(9) == [run.record]
    assert len(stage.dispatcher.explanations) == 0


def test_a_running_job_does_not_wait_to_be_stored() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    assert len(stage.dispatcher.explanations) == 0
    for _ in range(3):
        stage.turn(run).fail()
    assert len(stage.dispatcher.explanations) == 1


def test_the_last_records_come_latest_first() -> None:
    stage = Stage(0)
    for n in range(5):
        stage.sink = RecordingSink()
        stage.dispatch(match=a_job(id=MatchId(f"match_{n}")))
    assert [record.id for record in stage.dispatcher.last_records(2)] == ["match_4", "match_3"]


# whose fault an error is


NO_IMAGES = b'{"error":{"message":"image input is not supported"}}'


def _failures(stage: Stage) -> list[int]:
    return [row.jobs_failed for row in stage.table]


def test_an_error_that_two_servers_answer_alike_is_the_requests_own() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(NO_IMAGES, status=500)
    stage.turn(run).answer(NO_IMAGES, status=500)
    assert stage.sink.error is not None
    assert (stage.sink.error.status, stage.sink.error.code) == (400, "unsupported_content")
    assert "image input" not in stage.sink.error.message
    assert len(run.record.attempts) == 2
    assert _failures(stage) == [0] * 5
    stage.assert_nothing_left()


def test_an_error_that_another_node_does_not_make_is_the_nodes_own() -> None:
    stage = Stage()
    run = stage.dispatch()
    guilty = stage.turn(run)
    guilty.answer(NO_IMAGES, status=500)
    stage.turn(run).answer(ANSWER)
    row = stage.table.get(guilty.id)
    assert row is not None
    assert (row.jobs_failed, sum(_failures(stage))) == (1, 1)
    assert row.suspect_until_s > stage.clock.now_s()


def test_different_errors_are_nobodys_word_against_the_request() -> None:
    stage = Stage()
    run = stage.dispatch()
    for number in range(3):
        stage.turn(run).answer(b'{"error":{"message":"broke %d"}}' % number, status=500)
    assert stage.sink.error is not None
    assert stage.sink.error.status == 502


@pytest.mark.parametrize("pause_s", [0.1, 0.2, 0.3, 0.7, 1 / 3, 1e-9, 59.999])
def test_silence_ends_an_answer_whatever_the_floats_say(pause_s: float) -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ROLE, text_event("a"))
    stage.clock.advance(pause_s)
    node.data(text_event("b"))
    stage.clock.advance(stage.rules.idle_s + 1)
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


# prefixes


KEEPING = some_specs(a_model(prefix_cache_tokens=1 << 20))
LONG = a_job(prompt_tokens=4000)
PREFIX = (11, 12, 13, 14)


def test_the_next_prompt_that_begins_alike_goes_where_it_was_read_and_is_told_so() -> None:
    stage = Stage(specs=KEEPING)
    first = stage.dispatch(match=LONG, prefix=PREFIX)
    node = stage.turn(first)
    node.answer(ANSWER)
    second = stage.again(match=a_job(id=MatchId("match_2"), prompt_tokens=4000), prefix=(*PREFIX, 15))
    assert stage.turn(second) is node
    best = second.record.decision.best
    assert best is not None
    assert best.cached_tokens == node.opened[-1].cached_tokens == 4 * BLOCK_TOKENS
    assert node.opened[0].cached_tokens == 0
    assert [backlog_s for _, backlog_s, _ in stage.reserved if backlog_s] == [0.1 + (4000 - 4 * BLOCK_TOKENS) / 1000]
    node.answer(ANSWER)
    stage.assert_nothing_left()


def test_a_prompt_that_was_never_read_to_its_end_is_not_remembered() -> None:
    stage = Stage(1, specs=KEEPING)
    run = stage.dispatch(match=LONG, prefix=PREFIX)
    run.cancel()
    assert len(stage.prefixes) == 0


def test_nodes_that_keep_nothing_are_not_remembered() -> None:
    stage = Stage(1)
    stage.turn(stage.dispatch(match=LONG, prefix=PREFIX)).answer(ANSWER)
    assert len(stage.prefixes) == 0


# broken off from above


def test_a_job_that_is_broken_off_ends_in_an_error_object_once_its_reply_has_begun() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).begin(ROLE, text_event("Hel"))
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert error_of(stage)["code"] == "shutting_down"
    assert stage.sink.over
    assert DONE not in stage.sink.body
    assert stage.turn(run).cancelled == [1]
    assert (run.record.outcome, run.record.stream_error_code) == (Outcome.FAILED, "shutting_down")
    stage.assert_nothing_left()


def test_a_job_that_is_broken_off_before_its_first_token_is_refused() -> None:
    stage = Stage()
    stage.dispatch()
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert stage.sink.calls == ["fail"]
    assert isinstance(stage.sink.error, ShuttingDown)
    stage.assert_nothing_left()


def test_a_job_that_lacks_nothing_but_its_end_is_not_broken_off() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).begin(ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE, DONE)
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
