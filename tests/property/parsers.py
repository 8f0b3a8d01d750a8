"""Everything that reads bytes from outside, as targets for a fuzzer: each may refuse in its own words, and no other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import httptools
import msgspec

from sparewatt.api.inference.chat import read_chat
from sparewatt.api.inference.completions import read_completion_request
from sparewatt.api.inference.embeddings import read_embedding_request
from sparewatt.api.inference.translated import TranslatedReply
from sparewatt.api.messages.messages import message_call
from sparewatt.api.ollama.generation import read_ollama_chat, read_ollama_embed, read_ollama_prompt
from sparewatt.core.errors import JobFailed, ProtocolViolation, SparewattError
from sparewatt.inference.dispatch.failure_reasons import classify
from sparewatt.inference.dispatch.reply import EventSplitter, ReplyBroken, StreamReply, WholeReply, event_data
from sparewatt.policy.parser import read_line, read_object, read_query, split_model
from sparewatt.protocol.anthropic.reply import AnthropicReply
from sparewatt.protocol.anthropic.request import parse_messages
from sparewatt.protocol.link.frames import (
    Credit,
    Hello,
    JobEnd,
    JobFailure,
    JobReplyHead,
    JobRequest,
    LinkProof,
    Opcode,
    decode_frames,
    decode_message,
)
from sparewatt.protocol.link.frames import encode_frame as frame
from sparewatt.protocol.ollama.reply import OllamaReply
from sparewatt.protocol.responses.request import parse_request
from sparewatt.testing.clocks import ManualClock
from tests.mutation import pieces
from tests.property.front import replies_to
from tests.unit.gateway.small_gateway import USER
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, text_event
from tests.unit.link.ends import Listener, job_of, lone_gateway, lone_node
from tests.unit.protocol.anthropic.anthropic_requests import a_translator
from tests.unit.protocol.reports import SPECS

N_JOBS = 3
WINDOW_BYTES = 50


Part = Literal["http", "sse", "link"]
PARTS: tuple[Part, ...] = ("http", "sse", "link")


@dataclass(frozen=True, slots=True)
class Parser:
    part: Part
    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes, random.Random], None]
    """Raises for what must never happen."""


def _body(**fields: object) -> bytes:
    return json.dumps({"model": "llama", **fields}).encode()


CHAT = {"messages": [{"role": "user", "content": "hi"}]}
CHATS = (
    _body(**CHAT, stream=True, stream_options={"include_usage": True}, max_tokens=5, n=2),
    _body(messages=[{"role": "developer", "content": [{"type": "text", "text": "é"}]}], provider={"sort": "price"}),
    _body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}], tools=[{}]),
    _body(**CHAT, response_format={"type": "json_schema", "json_schema": {}}, logprobs=True, max_completion_tokens=0),
)
COMPLETIONS = (_body(prompt="a", echo=True), _body(prompt=["a", "b"], n=2, best_of=3), _body(prompt=[[1, 2], [3]]))
EMBEDDINGS = (_body(input="a"), _body(input=["a", "b"], encoding_format="base64"), _body(input=[1, 2, 3]))
RESPONSES = (
    _body(input="hi", store=True, stream=True, metadata={"a": "b"}),
    _body(input=[{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], tools=[{"type": "function"}]),
    _body(input=[{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}], text={"format": {}}),
)
CONVERSATIONS = (
    _body(
        max_tokens=9, stream=True, system=[{"type": "text", "text": "a"}], messages=[{"role": "user", "content": "b"}]
    ),
    _body(
        max_tokens=9,
        messages=[
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r", "is_error": True}],
            },
        ],
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
        tool_choice={"type": "tool", "name": "f"},
        thinking={"type": "enabled", "budget_tokens": 1024},
    ),
    _body(
        max_tokens=9,
        messages=[
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}],
            }
        ],
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    ),
)
OLLAMA_CHATS = (
    _body(
        messages=[{"role": "user", "content": "a", "images": ["iVBORw0KGgo="]}], options={"num_predict": 5, "stop": "b"}
    ),
    _body(
        messages=[
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}], "thinking": "t"},
            {"role": "tool", "tool_name": "f", "content": "r"},
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
        format={"type": "object"},
        think="low",
        keep_alive="5m",
    ),
    _body(messages=[], stream=False),
)
OLLAMA_PROMPTS = (
    _body(prompt="a", system="b", options={"temperature": 0.5, "num_ctx": 9}, stream=False),
    _body(prompt="a", raw=True, suffix="c", format="json"),
)
OLLAMA_TEXTS = (_body(input="a"), _body(input=["a", "b"], dimensions=4, truncate=True))
LINES = (
    b"region=EU uptime>=0.95 max_price.prompt=0.10",
    b'gpu="RTX 4090",l4 sort=price warm=require',
    b"gpu_class>=a100 vram_gb>=24 vram_gb<80 compliance=gdpr,soc2",
)
OBJECTS = (b'{"sort":"price","order":["a"]}', b'{"region":["EU"],"max_price":{"prompt":1}}', b'{"uptime":">=0.9"}')
STREAMS = (
    ROLE + text_event("Hel") + text_event("lo") + FINISH + USAGE + DONE,
    b": comment\n\n" + ROLE + b"data: null\n\n" + text_event("x") + b'data: {"error": {"message": "m"}}\n\n',
    (ROLE + text_event("\u20ac") + DONE).replace(b"\n\n", b"\r\n\r\n"),
)
_CALL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f",%b}}]}}]}\n\n'
)
CALLS = (
    ROLE + _CALL % (0, 0, b'"arguments":"{\\"a\\":"') + _CALL % (1, 1, b'"arguments":"{}"') + FINISH + USAGE + DONE,
    ROLE + _CALL % (0, 0, b'"arguments":"1}"') + text_event("x") + _CALL % (0, 1, b'"arguments":""') + FINISH + DONE,
    b'data: {"choices":[{"delta":{"reasoning_content":"h"}}]}\n\n' + STREAMS[1],
)
MESSAGES = (
    frame(Opcode.PING, 0, b"12345678") + frame(Opcode.SPECS, 0, msgspec.json.encode(SPECS)),
    frame(Opcode.HEAD, 1, b'{"status":200}') + frame(Opcode.DATA, 1, b"data") + frame(Opcode.END, 1, b'{"load":{}}'),
    frame(Opcode.OPEN, 1, msgspec.json.encode(job_of(b"ab"))) + frame(Opcode.BODY, 1, b"ab"),
    frame(Opcode.CREDIT, 1, b'{"n_bytes":1}') + frame(Opcode.CANCEL, 1),
    frame(Opcode.FAIL, 2, b'{"code":"refused","message":""}') + frame(Opcode.GOODBYE, 0, b'{"reason":"bye"}'),
)


HEADS = b"Host: a\r\nAuthorization: Bearer %b\r\n" % USER.encode()
REQUESTS = (
    b"POST /v1/chat/completions HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (HEADS, len(CHATS[0]), CHATS[0]),
    b"POST /v1/embeddings HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % HEADS,
    b"GET /v1/models HTTP/1.1\r\n%b\r\nPOST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}" % HEADS,
    b"POST /v1/chat/completions HTTP/1.1\r\n%bExpect: 100-continue\r\nContent-Length: 9\r\n\r\n" % HEADS,
    b"GET /v1/link HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n",
)
BUSY = frozenset({501, 503, 505})
"""Statuses of 500 and more that are no fault: nobody serves a model here."""


class _Statuses:
    """What llhttp calls for each reply."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.found.append(self.parser.get_status_code())


def _connection(data: bytes, chance: random.Random) -> None:
    """What comes back is HTTP, and no fault of ours, however the network cut the request."""
    statuses = _Statuses()
    replies = replies_to(pieces(data, chance), is_late=chance.choice((False, True)))
    statuses.parser.feed_data(replies or b"HTTP/1.1 200 OK\r\n\r\n")
    assert all(status < 500 or status in BUSY for status in statuses.found), statuses.found


def _refusing(read: Callable[[bytes], object]) -> Callable[[bytes, random.Random], None]:
    """A client's fault is told in an error of ours, with a status below 500."""

    def run(data: bytes, _: random.Random) -> None:
        try:
            read(data)
        except SparewattError as error:
            if error.status >= 500:
                raise

    return run


def _events(data: bytes, chance: random.Random) -> None:
    """However it was cut, the same events come out, and nothing is lost."""
    whole, cut = EventSplitter(), EventSplitter()
    events = whole.feed(data)
    assert [event for piece in pieces(data, chance) for event in cut.feed(piece)] == events
    assert b"".join(events) + whole.rest == data
    for event in events:
        event_data(event)


def _stream(data: bytes, chance: random.Random) -> None:
    """What a client gets does not depend on how the network cut it."""
    assert _passed([data]) == _passed(pieces(data, chance))


def _passed(received: list[bytes]) -> tuple[bytes, bool]:
    reply, passed = StreamReply(wants_usage=True), b""
    for piece in received:
        found = reply.feed(piece)
        passed += found.data
        if found.broken is not None:
            return passed, False
    try:
        return passed + reply.end(), True
    except ReplyBroken:
        return passed, False


def _translated(make: Callable[[], TranslatedReply]) -> Callable[[bytes, random.Random], None]:
    """A node's stream comes out the same however it was cut, as events or lines of JSON; a whole one is read or not."""

    def run(data: bytes, chance: random.Random) -> None:
        at_once = _translate(make(), [data])
        assert _translate(make(), pieces(data, chance)) == at_once
        for line in at_once.splitlines():
            if line and not line.startswith(b"event: "):
                json.loads(line.removeprefix(b"data: "))
        with suppress(JobFailed):
            make().whole(data.removeprefix(b"data: "))

    return run


def _translate(reply: TranslatedReply, received: list[bytes]) -> bytes:
    return reply.begin() + b"".join(map(reply.feed, received)) + reply.finish()


def _message_reply() -> AnthropicReply:
    return AnthropicReply(a_translator(shows_thinking=True), request_id="req_1")


def _ollama_reply() -> OllamaReply:
    return OllamaReply("chat", model="llama", clock=ManualClock())


def _whole(data: bytes, _: random.Random) -> None:
    reply = WholeReply()
    with suppress(ReplyBroken):
        reply.feed(data)
        reply.end()
    classify(400, reply.body())


def _frames(data: bytes, _: random.Random) -> None:
    with suppress(ProtocolViolation):
        for op, _stream, payload in decode_frames(data):
            for shape in (Hello, LinkProof, JobRequest, Credit, JobReplyHead, JobEnd, JobFailure):
                with suppress(ProtocolViolation):
                    decode_message(payload, shape)
            assert op in Opcode


def _gateway_end(data: bytes, chance: random.Random) -> None:
    link, *_ = lone_gateway()
    listeners = [Listener() for _ in range(N_JOBS)]
    for listener in listeners:
        link.open(job_of(b"{}", window_bytes=WINDOW_BYTES), b"{}", listener)
    with suppress(ProtocolViolation):
        for message in (data, chance.choice(MESSAGES)):
            link.receive(message)
    link.on_lost("over")
    assert all(len(listener.ends) + len(listener.fails) == 1 for listener in listeners)
    assert all(len(listener.data) <= WINDOW_BYTES for listener in listeners)


def _node_end(data: bytes, chance: random.Random) -> None:
    link, _, runner, _ = lone_node()
    with suppress(ProtocolViolation):
        for message in (data, chance.choice(MESSAGES)):
            link.receive(message)
    link.on_lost()
    assert set(runner.started) <= set(runner.cancelled)
    assert len(set(runner.cancelled)) == len(runner.cancelled)


def _provider(data: bytes) -> None:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    read_object(value)


def _words(data: bytes) -> None:
    text = data.decode("latin-1")
    read_line(text)


def _query(data: bytes) -> None:
    name, _, value = data.decode("latin-1").partition("=")
    read_query([(name, value)])


def _model(data: bytes) -> None:
    split_model(data.decode("latin-1"))


PARSERS = (
    Parser("http", "connection", REQUESTS, _connection),
    Parser("http", "chat", CHATS, _refusing(read_chat)),
    Parser("http", "completion", COMPLETIONS, _refusing(read_completion_request)),
    Parser("http", "embedding", EMBEDDINGS, _refusing(read_embedding_request)),
    Parser("http", "response", RESPONSES, _refusing(parse_request)),
    Parser("http", "messages", CONVERSATIONS, _refusing(lambda body: message_call(parse_messages(body)))),
    Parser("http", "ollama chat", OLLAMA_CHATS, _refusing(lambda body: read_ollama_chat(body, ManualClock()))),
    Parser("http", "ollama prompt", OLLAMA_PROMPTS, _refusing(lambda body: read_ollama_prompt(body, ManualClock()))),
    Parser("http", "ollama embed", OLLAMA_TEXTS, _refusing(lambda body: read_ollama_embed(body, ManualClock()))),
    Parser("http", "route line", LINES, _refusing(_words)),
    Parser("http", "route query", LINES, _refusing(_query)),
    Parser("http", "route object", OBJECTS, _refusing(_provider)),
    Parser("http", "model name", (b"llama:floor", b"a/b:nitro", b"llama@region=EU"), _refusing(_model)),
    Parser("sse", "events", STREAMS, _events),
    Parser("sse", "stream", STREAMS, _stream),
    Parser("sse", "whole reply", (COMPLETION,), _whole),
    Parser("sse", "message reply", (*STREAMS, *CALLS), _translated(_message_reply)),
    Parser("sse", "ollama reply", (*STREAMS, *CALLS), _translated(_ollama_reply)),
    Parser("link", "frames", MESSAGES, _frames),
    Parser("link", "gateway's end", MESSAGES, _gateway_end),
    Parser("link", "node's end", MESSAGES, _node_end),
)


def fuzz(parser: Parser, seed: int, make: Callable[[tuple[bytes, ...], random.Random], bytes]) -> None:
    """One case. The seed alone says which; a failure carries it."""
    chance = random.Random(seed)  # noqa: S311 (repeatable)
    data = make(parser.seeds, chance)
    try:
        parser.read(data, chance)
    except Exception as error:
        error.add_note(f"{parser.name}, seed {seed}: {data!r}")
        raise
