"""Two nodes make a verdict, and who is contradicted has failed."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.inference.dispatch.failure_reasons import ErrorCode, ServerError
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome
from sparewatt.inference.dispatch.second_opinion import Contradiction, Opinion, SecondOpinion
from tests.unit.inference.nodes import node_id

REFUSED = ServerError(400, ErrorCode.BAD_REQUEST)
TOO_LONG = ServerError(400, ErrorCode.CONTEXT_LENGTH_EXCEEDED)


def opinion(number: int, error: ServerError = REFUSED, *, owner: str | None = None, context_tokens: int = 0) -> Opinion:
    record = AttemptRecord(node_id(number), 0.0, outcome=Outcome.FAILED)
    record.owner = None if owner is None else AccountId(owner)
    return Opinion(record, error, context_tokens)


def test_one_word_is_no_verdict_and_two_are() -> None:
    opinions = SecondOpinion()
    assert opinions.add(opinion(1)) is None
    assert opinions.add(opinion(2)) is ErrorCode.BAD_REQUEST


def test_an_owner_does_not_agree_with_itself_while_another_can_be_asked() -> None:
    opinions = SecondOpinion()
    opinions.add(opinion(1, owner="a"))
    assert opinions.add(opinion(2, owner="a")) is None
    assert opinions.owners == {"a"}
    assert opinions.add(opinion(3, owner="b")) is ErrorCode.BAD_REQUEST


def test_the_only_owner_left_may_agree_with_itself() -> None:
    opinions = SecondOpinion()
    opinions.add(opinion(1, owner="a"))
    assert opinions.add(opinion(2, owner="a"), any_owner=True) is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        (ServerError(400, ErrorCode.BAD_REQUEST), ServerError(422, ErrorCode.UNPROCESSABLE), True),
        (ServerError(500, ErrorCode.SERVER_ERROR, b"a"), ServerError(500, ErrorCode.SERVER_ERROR, b"a"), True),
        (ServerError(500, ErrorCode.SERVER_ERROR, b"a"), ServerError(500, ErrorCode.SERVER_ERROR, b"b"), False),
        (ServerError(500, ErrorCode.SERVER_ERROR, b"a"), ServerError(502, ErrorCode.SERVER_ERROR, b"a"), False),
        (ServerError(400, ErrorCode.BAD_REQUEST, b"a"), ServerError(500, ErrorCode.SERVER_ERROR, b"a"), False),
    ],
)
def test_what_counts_as_the_like(first: ServerError, second: ServerError, *, agree: bool) -> None:
    opinions = SecondOpinion()
    opinions.add(opinion(1, first))
    assert (opinions.add(opinion(2, second)) is not None) is agree


def test_the_first_refusal_is_the_one_that_may_stand() -> None:
    opinions = SecondOpinion()
    assert opinions.refusal() is None
    opinions.add(opinion(1, ServerError(500, ErrorCode.SERVER_ERROR)))
    assert opinions.refusal() is None
    opinions.add(opinion(2))
    found = opinions.refusal()
    assert found is not None
    assert found.node_id == node_id(2)
    assert len(opinions) == 2


@pytest.mark.parametrize(
    ("error", "context_tokens", "kind"),
    [
        (REFUSED, 8192, Contradiction.FAILED),
        (ServerError(500, ErrorCode.UNSUPPORTED_CONTENT), 8192, Contradiction.FAILED),
        (ServerError(400, ErrorCode.UNSUPPORTED_PARAMETER), 8192, Contradiction.LACKS_FEATURE),
        (TOO_LONG, 4096, Contradiction.SMALLER_CONTEXT),
        (TOO_LONG, 8192, Contradiction.FAILED),
        (TOO_LONG, 0, Contradiction.FAILED),
    ],
)
def test_what_a_contradiction_says_of_a_node(error: ServerError, context_tokens: int, kind: Contradiction) -> None:
    opinions = SecondOpinion()
    refused = opinion(1, error, context_tokens=context_tokens)
    opinions.add(refused)
    assert opinions.contradicted(context_tokens=8192) == [(node_id(1), kind)]
    assert opinions.contradicted(context_tokens=8192) == [], "once"
    assert refused.record.outcome is (Outcome.FAILED if kind is Contradiction.FAILED else Outcome.REFUSED)


def test_a_longer_context_may_be_one_that_is_not_stated() -> None:
    opinions = SecondOpinion()
    opinions.add(opinion(1, TOO_LONG, context_tokens=4096))
    assert opinions.contradicted(context_tokens=0) == [(node_id(1), Contradiction.SMALLER_CONTEXT)]


def test_a_settled_refusal_counts_against_nobody() -> None:
    opinions = SecondOpinion()
    refused, failed = opinion(1), opinion(2, ServerError(500, ErrorCode.SERVER_ERROR))
    for each in (refused, failed):
        opinions.add(each)
    opinions.settle()
    assert (refused.record.outcome, failed.record.outcome) == (Outcome.DONE, Outcome.FAILED)
