"""A node continues another node's answer (failover), and refuses where its server cannot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.node.backends.backend import Backend, BackendLoad, BackendModel, BackendReply, BadBackendReply
from sparewatt.node.backends.continuation_probe import (
    CHAT,
    COMPLETIONS,
    NO_CONTINUATION,
    AssistantPrefill,
    ContinuationSupport,
    probe_continuation,
)
from sparewatt.node.jobs.continuation import CannotContinue, as_chat_stream, continuation_request
from sparewatt.protocol.link.frames import Opcode
from sparewatt.testing import expected_text, render_chat
from tests.unit.node.rig import MODEL, chat_body, rigged

Answer = dict[str, Any] | None


def text_in(data: bytes) -> str:
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


# jobs


async def test_a_node_reports_that_it_can_continue_answers(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        [model] = rig.inventory.specs.models
        assert set(model.capabilities or ()) >= {"chat", "continue_prefill", "continue_raw"}


async def test_a_server_that_comes_back_is_probed_again(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        started = (await rig.stats())["started"]
        await rig.inventory.refresh()
        assert (await rig.stats())["started"] == started
        rig.inventory.probed.forget()
        await rig.inventory.refresh()
        assert (await rig.stats())["started"] > started


@pytest.mark.parametrize("more", [{}, {"logprobs": True}], ids=["raw", "prefill"])
async def test_the_rest_of_an_answer_is_streamed_as_chat_chunks(tmp_path: Path, more: dict[str, Any]) -> None:
    whole = expected_text(render_chat([{"role": "user", "content": "hi"}]), max_tokens=12)
    had = whole[:17]  # inside a token
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        request = chat_body(max_tokens=12, stream_options={"include_usage": True}, **more)
        rig.send(1, body=request + had.encode(), continue_bytes=len(had.encode()))
        await rig.ended(1)
        assert rig.ops(1) == [Opcode.HEAD, Opcode.DATA, Opcode.END]
        assert (had + text_in(rig.data(1))).startswith(whole)
        assert rig.data(1).endswith(b"data: [DONE]\n\n")
        assert rig.data(1).count(b'"usage":{') == 1


async def test_a_continuation_is_refused_where_the_server_supports_none(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        rig.inventory.probed._continuations[MODEL] = NO_CONTINUATION
        rig.send(1, body=chat_body() + b"text", continue_bytes=4)
        fail = await rig.failed(1)
        assert fail.code == "refused"
        assert rig.jobs.count() == 0


async def test_a_text_that_is_not_utf8_fails_its_job_alone(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        rig.send(1, body=chat_body() + b"\xff\xfe", continue_bytes=2)
        assert (await rig.failed(1)).code == "protocol"


# requests to the model server


async def test_a_text_whose_white_space_the_server_would_trim_is_refused() -> None:
    ways = ContinuationSupport(prefill=AssistantPrefill(needs_flags=True, trims=True))
    with pytest.raises(CannotContinue):
        await continuation_request(Quirky(lambda _, __: None), ways, "m", chat_body(), "so far ")
    posted = await continuation_request(Quirky(lambda _, __: None), ways, "m", chat_body(), "so far")
    body = json.loads(posted.body)
    assert body["messages"][-1] == {"role": "assistant", "content": "so far"}
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False


async def test_a_raw_prompt_keeps_the_sampling_fields_and_the_limit_of_the_chat() -> None:
    backend = Quirky(lambda path, _: {"prompt": "<user>hi<bot>"} if path == "/apply-template" else None)
    request = chat_body(max_completion_tokens=9, temperature=0.5, tools=[], stop=["x"])
    posted = await continuation_request(backend, ContinuationSupport(raw="template"), "m", request, "so far")
    body = json.loads(posted.body)
    assert (posted.path, posted.has_requested_shape) == (COMPLETIONS, False)
    assert body["prompt"] == "<user>hi<bot>so far"
    assert body["max_tokens"] == 9
    assert (body["temperature"], body["stop"]) == (0.5, ["x"])
    assert not {"messages", "tools", "max_completion_tokens"} & set(body)


async def test_a_completion_continues_after_its_own_prompt() -> None:
    request = b'{"model":"m","prompt":"Once","max_tokens":5}'
    posted = await continuation_request(
        Quirky(lambda _, __: None), ContinuationSupport(raw="template"), "m", request, " upon"
    )
    assert posted == (COMPLETIONS, b'{"model":"m","prompt":"Once upon","max_tokens":5}', True)


async def test_a_raw_prompt_may_be_tokens() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        assert path == "/tokenize"
        return {"tokens": [1, 2, 3] if "messages" in body else [4, 5]}

    posted = await continuation_request(Quirky(answer), ContinuationSupport(raw="tokens"), "m", chat_body(), "so far")
    assert json.loads(posted.body)["prompt"] == [1, 2, 3, 4, 5]


async def test_a_server_that_returns_no_prompt_fails_the_job() -> None:
    with pytest.raises(BadBackendReply):
        await continuation_request(
            Quirky(lambda _, __: None), ContinuationSupport(raw="template"), "m", chat_body(), "so far"
        )


@pytest.mark.parametrize("data", [b"data: <html>\n\n", b"data: [1]\n\n", b'data: {"choices": [3]}\n\n'])
async def test_garbage_is_no_answer(data: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    with pytest.raises(BadBackendReply):
        [_ async for _ in as_chat_stream(chunks())]


async def test_an_error_in_the_stream_stays_one() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'data: {"error": {"mess'
        yield b'age": "no"}}\n\n'

    assert b"".join([each async for each in as_chat_stream(chunks())]) == b'data: {"error": {"message": "no"}}\n\n'


# finding out


class Quirky(Backend):
    """A model server with a template of its own, which a function answers for: an object, or None for 404."""

    kind = "quirky"
    aborts_on_disconnect = False
    capabilities_to_probe = ()

    def __init__(self, answer: Callable[[str, dict[str, Any]], Answer]) -> None:
        self._answer = answer

    async def models(self) -> list[BackendModel]:
        return []

    async def load(self) -> BackendLoad | None:
        return None

    async def slots(self) -> int:
        return 1

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        answer = self._answer(path, json.loads(body))

        async def chunks() -> AsyncIterator[bytes]:
            yield msgspec.json.encode(answer) if path.startswith("/v1") is False else _stream(answer)

        yield BackendReply(200 if answer is not None else 404, "text/event-stream", chunks())


def _stream(answer: Answer) -> bytes:
    return b"data: " + msgspec.json.encode(answer) + b"\n\ndata: [DONE]\n\n"


def streamed_reply(text: str, prompt_tokens: int, written: int) -> Answer:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": written}
    return {"choices": [{"index": 0, "delta": {"content": text}}], "usage": usage}


def server(*, closing: int = 0, needs_flags: bool = False, trims: bool = False, echoes: bool = False) -> Quirky:
    """A chat server whose prompts have 10 tokens and a letter each; `closing` are those around a finished message."""

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if path != CHAT:
            return None
        last = body["messages"][-1]
        if last["role"] == "user":
            return streamed_reply("abcdefgh", 10, 8)
        given = last["content"].rstrip() if trims else last["content"]
        is_open = not needs_flags or body.get("continue_final_message")
        return streamed_reply(given + "x" if echoes else "x", 10 + len(given) + (0 if is_open else 5) + closing, 1)

    return Quirky(answer)


@pytest.mark.parametrize(
    ("backend", "ways"),
    [
        (server(), ContinuationSupport(prefill=AssistantPrefill(needs_flags=True, trims=False))),
        (server(needs_flags=True), ContinuationSupport(prefill=AssistantPrefill(needs_flags=True, trims=False))),
        (server(trims=True), ContinuationSupport(prefill=AssistantPrefill(needs_flags=True, trims=True))),
        (server(closing=1), NO_CONTINUATION),
        (server(echoes=True), NO_CONTINUATION),
        (Quirky(lambda path, _: streamed_reply("", 10, 0) if path == CHAT else None), NO_CONTINUATION),
        (Quirky(lambda path, _: streamed_reply("abc", 0, 0) if path == CHAT else None), NO_CONTINUATION),
    ],
    ids=["right", "by flags", "trims", "closes the message", "repeats", "writes nothing", "counts nothing"],
)
async def test_a_way_to_continue_is_accepted_by_its_count_of_prompt_tokens(
    backend: Quirky, ways: ContinuationSupport
) -> None:
    assert await probe_continuation(backend, "m") == ways


async def test_a_template_that_differs_from_the_chats_own_is_rejected() -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        if path == "/apply-template":
            return {"prompt": "<user>"}
        if path == COMPLETIONS:
            return streamed_reply("x", 12 + len(body["prompt"]), 1)
        return streamed_reply("abcdefgh", 10, 8) if path == CHAT and len(body["messages"]) == 1 else None

    assert await probe_continuation(Quirky(answer), "m") == NO_CONTINUATION


async def test_a_server_that_refuses_to_chat_is_probed_again_later() -> None:
    with pytest.raises(BadBackendReply):
        await probe_continuation(Quirky(lambda _, __: None), "m")
