"""A streamed reply becomes one piece, however the link cuts it."""

from __future__ import annotations

import json

import pytest

from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.core.money import Nano
from sparewatt.inference.dispatch.assembled_reply import AssembledReply
from sparewatt.inference.dispatch.model import BilledAnswer
from sparewatt.inference.dispatch.reply import ReplyBroken
from sparewatt.protocol.openai.chat import Usage
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, text_event

WIRE = ROLE + text_event("Hel") + text_event("lo") + b": a comment\n\n" + FINISH + USAGE + DONE


@pytest.mark.parametrize("size", [1, 7, len(WIRE)])
def test_the_pieces_become_an_answer(size: int) -> None:
    reply = AssembledReply()
    for at in range(0, len(WIRE), size):
        reply.feed(WIRE[at : at + size])
    whole = json.loads(reply.end())
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert reply.tokens == 2
    assert reply.delivered.completion_tokens == 2


def test_it_has_started_once_there_is_more_than_a_role() -> None:
    reply = AssembledReply()
    reply.feed(ROLE)
    assert not reply.started
    reply.feed(text_event("a"))
    assert reply.started


def test_price_and_name_are_those_of_any_reply() -> None:
    reply = AssembledReply(
        bill=lambda _seen, _units: BilledAnswer(Usage(4, 2), Nano(500_000_000)), reply_model=b'"mine"'
    )
    reply.feed(WIRE.replace(b'"id":"c1"', b'"id":"c1","model":"theirs"'))
    whole = json.loads(reply.end())
    assert (whole["usage"]["cost"], whole["model"]) == (0.5, "mine")


def test_a_server_that_does_not_stream_is_read_as_it_comes() -> None:
    reply = AssembledReply(reply_model=b'"mine"').unstreamed()
    reply.feed(COMPLETION)
    assert reply.end() == COMPLETION


@pytest.mark.parametrize(
    "data", [b"data: <html>\n\n", b'data: {"error":{"message":"marker"}}\n\n', b"x" * (SSE_EVENT_BYTES_MAX + 1)]
)
def test_what_is_no_stream_breaks_it_in_our_words(data: bytes) -> None:
    with pytest.raises(ReplyBroken) as caught:
        AssembledReply().feed(data)
    assert "marker" not in str(caught.value)


def test_a_stream_without_end_is_no_answer() -> None:
    reply = AssembledReply()
    reply.feed(text_event("a"))
    with pytest.raises(ReplyBroken, match="ended early"):
        reply.end()
