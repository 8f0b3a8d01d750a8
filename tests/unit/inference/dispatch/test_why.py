"""Why a node gets jobs, or none; and which explanations are kept for longer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.inference.dispatch.dispatcher import MATCHES_TO_STORE_MAX, ONE_IN, ExplanationQueue, is_worth_storing
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, MatchRecord, Outcome
from sparewatt.inference.dispatch.why import look_back, sentences
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.model import SCAN_REJECTIONS, Candidate, Rejection
from tests.unit.inference.nodes import MODEL, a_decision, a_job, node_id

MINE, OTHER = node_id(1), node_id(2)


def candidate(node: NodeId, **parts: float) -> Candidate:
    values = tuple(parts.get(name, 0.0) for name in (*PARTS, "jitter"))
    return Candidate(node, sum(values), values, 0.0, 0.0, 0)


def record(
    *ranked: Candidate,
    rejected: Rejection | None = None,
    tried: tuple[NodeId, ...] = (),
    outcome: Outcome = Outcome.DONE,
    policy: str = "balanced",
    model: str = MODEL,
    number: int = 0,
    barred: dict[str, int] | None = None,
    total: int = 2,
) -> MatchRecord:
    stopped = [] if rejected is None else [(MINE, rejected)]
    decision = a_decision(a_job(model=model), *ranked, stopped=stopped, policy=policy, total=total, barred=barred or {})
    attempts = [AttemptRecord(node, 0.0, outcome=outcome) for node in tried]
    return MatchRecord(MatchId(f"match_{number}"), KeyId("key"), 0.0, decision, outcome, attempts)


def test_jobs_it_got_are_counted_by_how_they_ended() -> None:
    records = [
        record(candidate(MINE), tried=(MINE,)),
        record(candidate(MINE), tried=(MINE,)),
        record(candidate(MINE), tried=(MINE, OTHER), outcome=Outcome.FAILED),
    ]
    why = look_back(MINE, records, models=[MODEL])
    assert (why.matches, why.chosen, why.sent) == (3, 3, {Outcome.DONE: 2, Outcome.FAILED: 1})
    assert sentences(why) == ["The node got 3 jobs in the last 3 matches: 2 done, 1 failed."]


def test_a_job_that_came_to_it_after_another_failed_is_its_own() -> None:
    why = look_back(MINE, [record(candidate(OTHER), candidate(MINE), tried=(OTHER, MINE))], models=[MODEL])
    assert sentences(why) == ["The node got 1 job in the last match: 1 done."]
    assert (why.chosen, why.lost.count) == (1, 0)


def test_losses_say_by_how_much_and_by_what() -> None:
    records = [
        record(candidate(OTHER, decode=1.0, queue=2.0), candidate(MINE, decode=2.0, price=0.4), tried=(OTHER,)),
        record(candidate(OTHER, decode=1.0), candidate(MINE, decode=2.4, price=0.2), tried=(OTHER,)),
    ]
    why = look_back(MINE, records, models=[MODEL])
    assert why.lost.count == 2
    assert why.lost.mean_gap_s == pytest.approx((-0.6 + 1.6) / 2)
    assert dict(why.lost.worst_parts()) == pytest.approx({"decode": 1.2, "price": 0.3})
    assert sentences(why)[1] == (
        "It could have had 2 more of 2, but others were better, by 0.5 s on the mean (decode +1.2 s, price +0.3 s)."
    )


def test_a_loss_by_score_is_counted_and_not_timed() -> None:
    lost = Candidate(MINE, -1.0, (0.5, 0.5, 0.0, 0.0), 0.0, 0.0, 0)
    won = Candidate(OTHER, -2.0, (1.0, 1.0, 0.0, 0.0), 0.0, 0.0, 0)
    why = look_back(MINE, [record(won, lost, tried=(OTHER,), policy="neuralgrid")], models=[MODEL])
    assert (why.lost.count, why.lost.mean_gap_s, why.lost.worst_parts()) == (1, None, [])
    assert sentences(why)[1] == "It could have had 1 more of 1, but others were better."


@pytest.mark.parametrize("reason", SCAN_REJECTIONS)
def test_every_filter_that_stopped_it_is_counted_and_named(reason: Rejection) -> None:
    why = look_back(MINE, [record(candidate(OTHER), rejected=reason, tried=(OTHER,))], models=[MODEL])
    assert why.rejected == {reason: 1}
    assert sentences(why)[1].endswith(" there.")


def test_a_model_it_does_not_have_and_a_place_beyond_the_best_are_told_apart() -> None:
    records = [record(candidate(OTHER), tried=(OTHER,)), record(candidate(OTHER), tried=(OTHER,), model="rare")]
    why = look_back(MINE, records, models=[MODEL])
    assert (why.unlisted, why.rejected) == (1, {Rejection.NO_MODEL: 1})
    assert sentences(why)[1] == "It did not have the model in 1 of them."
    assert sentences(why)[2].startswith("No reason was recorded in 1 of them, although it has the model:")


def test_who_is_missing_where_all_others_are_listed_was_ruled_out() -> None:
    why = look_back(MINE, [record(candidate(OTHER), tried=(OTHER,), barred={"own_node": 1})], models=[MODEL])
    assert (why.ruled_out, why.unlisted) == (1, 0)
    assert sentences(why)[1] == "It was ruled out by the request's policy or payer there."


def test_who_is_missing_where_not_all_are_listed_is_not_said_to_be_worse() -> None:
    few = record(candidate(OTHER), tried=(OTHER,), barred={"region": 1}, total=9)
    why = look_back(MINE, [few], models=[MODEL])
    assert (why.ruled_out, why.unlisted) == (0, 1)
    assert sentences(why)[1].endswith("others were better, or the request's policy or payer ruled it out.")


def test_matches_from_before_it_was_there_do_not_count() -> None:
    records = [replace(record(candidate(OTHER)), created_unix_s=at) for at in (10.0, 20.0, 30.0)]
    assert look_back(MINE, records, models=[MODEL], since_unix_s=20.0).matches == 2


def test_no_match_at_all_is_said() -> None:
    assert sentences(look_back(MINE, [], models=[])) == ["There was no match yet."]


def test_every_match_is_counted_once() -> None:
    records = [
        record(candidate(MINE), tried=(MINE,)),
        record(candidate(OTHER), candidate(MINE), tried=(OTHER,)),
        record(candidate(OTHER), rejected=Rejection.FULL, tried=(OTHER,)),
        record(candidate(OTHER)),
        record(model="rare"),
    ]
    why = look_back(MINE, records, models=[MODEL])
    assert why.chosen + why.lost.count + why.rejected.total() + why.unlisted == why.matches == 5


# what is kept for longer


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_every_failure_is_kept(outcome: Outcome) -> None:
    assert all(is_worth_storing(record(outcome=outcome, number=n)) for n in range(50))


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.CANCELLED])
def test_one_in_a_hundred_of_the_rest_is_kept(outcome: Outcome) -> None:
    kept = sum(is_worth_storing(record(outcome=outcome, number=n)) for n in range(100 * ONE_IN))
    assert 60 <= kept <= 140


def test_what_waits_is_bounded_and_the_oldest_goes() -> None:
    waiting = ExplanationQueue()
    for n in range(MATCHES_TO_STORE_MAX + 3):
        waiting.offer(record(outcome=Outcome.FAILED, number=n))
    assert (len(waiting), waiting.dropped) == (MATCHES_TO_STORE_MAX, 3)
    assert waiting.take(1)[0].id == "match_3"


def test_what_is_given_back_comes_first_again_as_far_as_there_is_room() -> None:
    waiting = ExplanationQueue()
    records = [record(outcome=Outcome.FAILED, number=n) for n in range(MATCHES_TO_STORE_MAX)]
    for item in records:
        waiting.offer(item)
    taken = waiting.take(3)
    waiting.offer(replace(records[0], id=MatchId("match_new")))
    waiting.return_unstored(taken)
    assert (len(waiting), waiting.dropped) == (MATCHES_TO_STORE_MAX, 1)
    assert [item.id for item in waiting.take(2)] == ["match_1", "match_2"]
    assert waiting.take(5000)[-1].id == "match_new"
    waiting.return_unstored([])
    assert waiting.take(1) == []


def test_what_two_processes_counted_is_as_if_one_had() -> None:
    records = [
        record(candidate(MINE), tried=(MINE,)),
        record(candidate(OTHER), candidate(MINE, prefill=2.0), tried=(OTHER,)),
        record(candidate(OTHER), rejected=Rejection.FULL, tried=(OTHER,)),
        record(candidate(OTHER), candidate(MINE, prefill=4.0), tried=(OTHER,)),
    ]
    whole, half = look_back(MINE, records, models=[MODEL]), look_back(MINE, records[:2], models=[MODEL])
    half.include(look_back(MINE, records[2:], models=[MODEL]))
    assert half == whole
    assert whole.lost.count == 2


def test_answers_of_which_it_claimed_too_much_are_told() -> None:
    marked = record(candidate(MINE), tried=(MINE,))
    marked.attempts[0].delivered = DeliveryCount(is_marked=True)
    others = record(candidate(OTHER), tried=(OTHER,))
    others.attempts[0].delivered = DeliveryCount(is_marked=True)
    why = look_back(MINE, [marked, others, record(candidate(MINE), tried=(MINE,))], models=[MODEL])
    assert why.overclaimed == 1
    assert sentences(why)[1].startswith("Of 1 answer its server counted far more tokens than other owners' servers")
    why.include(why)
    assert why.overclaimed == 2
