"""Replies of the endpoints beside chat, as dispatch reads them."""

from __future__ import annotations

import json

import pytest

from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.inference.dispatch.model import BilledAnswer
from sparewatt.inference.dispatch.reply import EmbeddingReply, ReplyBroken, StreamReply, WholeReply, whole_reply
from sparewatt.protocol.openai.chat import Usage
from tests.unit.inference.scripted import DONE

VECTORS = b'{"object":"list","data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":4,"total_tokens":4}}'


def text_event(text: str, index: int = 0, **more: object) -> bytes:
    usage = {"usage": more.pop("usage")} if "usage" in more else {}
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None, **more}
    return b"data: " + json.dumps({"object": "text_completion", "choices": [choice], **usage}).encode() + b"\n\n"


def test_a_text_starts_with_its_first_words() -> None:
    reply = StreamReply(wants_usage=False)
    assert reply.feed(text_event("")).data == b""
    assert reply.feed(text_event("Hi")).data == text_event("") + text_event("Hi")
    assert (reply.delivered.chunks, reply.delivered.text_bytes) == (1, 2)
    reply.feed(DONE)
    assert reply.end() == b""


def test_texts_that_are_counted_one_by_one_are_counted_together() -> None:
    reply = StreamReply(wants_usage=True)
    counts = {"prompt_tokens": 3, "completion_tokens": 1}
    reply.feed(b"data: null\n\n" + text_event("a") + text_event("b", 1))
    reply.feed(text_event("", 1, finish_reason="stop", usage=counts))
    assert (reply.delivered.prompt_tokens, reply.delivered.completion_tokens) == (3, 1)
    reply.feed(text_event("", 0, finish_reason="stop", usage=counts) + DONE)
    assert (reply.delivered.prompt_tokens, reply.delivered.completion_tokens) == (
        None,
        2,
    )  # the gateway's own guess counts
    assert reply.tokens == 2


def test_vectors_are_read_whole_and_write_nothing() -> None:
    reply = whole_reply(
        "/v1/embeddings", bill=lambda seen, _: BilledAnswer(Usage(seen.prompt_tokens or 0, 0), Nano(4 * NANO_PER_USD))
    )
    reply.feed(VECTORS)
    assert json.loads(reply.end())["usage"] == {"prompt_tokens": 4, "total_tokens": 4, "cost": 4.0}
    assert (reply.delivered.prompt_tokens, reply.delivered.completion_tokens, reply.tokens) == (4, 0, 0)


@pytest.mark.parametrize("body", [b"", b'{"choices":[]}', b'{"data":[]}'])
def test_what_holds_no_vectors_is_broken(body: bytes) -> None:
    reply = EmbeddingReply()
    reply.feed(body)
    with pytest.raises(ReplyBroken):
        reply.end()


def test_only_the_endpoint_for_vectors_reads_vectors() -> None:
    reply = whole_reply("/v1/chat/completions", bill=None)
    assert type(reply) is WholeReply
    reply.feed(VECTORS)
    with pytest.raises(ReplyBroken):
        reply.end()
