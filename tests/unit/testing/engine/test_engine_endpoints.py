"""The other endpoints: raw completions, embeddings, what nodes look at, and the shape of errors."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from typing import Any

import pytest

from sparewatt.testing import EngineSettings, count_tokens, expected_text, render_chat
from tests.unit.testing.client import MODEL, Client, StillClock, chat, engine_client, eventually

PATH = "/v1/completions"


def text_of(chunks: list[Any], *, index: int = 0) -> str:
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


async def test_a_raw_completion_streams_what_the_whole_reply_says(engine: Client) -> None:
    reply = await engine.post(PATH, prompt="Once")
    chunks = await engine.stream(PATH, prompt="Once", stream_options={"include_usage": True})
    assert reply["object"] == "text_completion"
    assert reply["choices"][0]["text"] == text_of(chunks) == expected_text("Once")
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == reply["usage"]


async def test_a_raw_completion_of_template_and_emitted_text_equals_the_chat(engine: Client) -> None:
    prompt = (await engine.post("/apply-template", messages=chat("Hello")))["prompt"]
    assert prompt == render_chat(chat("Hello"))
    whole = (await engine.post("/v1/chat/completions", messages=chat("Hello")))["choices"][0]["message"]["content"]
    for at in range(0, len(whole) + 1, 7):
        reply = await engine.post(PATH, prompt=prompt + whole[:at])
        assert whole[:at] + reply["choices"][0]["text"] == whole
        assert reply["choices"][0]["finish_reason"] == "stop"


async def test_every_prompt_of_a_list_gets_its_n_choices_in_order(engine: Client) -> None:
    reply = await engine.post(PATH, prompt=["One", "Two"], n=2, max_tokens=4)
    expected = [expected_text(prompt, max_tokens=4, choice=i) for prompt in ("One", "Two") for i in range(2)]
    assert [choice["text"] for choice in reply["choices"]] == expected
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]


async def test_echo_puts_the_prompt_first(engine: Client) -> None:
    chunks = await engine.stream(PATH, prompt="Once", echo=True, max_tokens=3)
    assert text_of(chunks) == "Once" + expected_text("Once", max_tokens=3)


async def test_token_ids_count_as_that_many_prompt_tokens(engine: Client) -> None:
    reply = await engine.post(PATH, prompt=[1, 2, 3], max_tokens=1)
    assert reply["usage"]["prompt_tokens"] == 3


async def test_completion_logprobs_have_offsets_into_the_text(engine: Client) -> None:
    choice = (await engine.post(PATH, prompt="Once", max_tokens=5, logprobs=2))["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"].startswith(token, offset)


@pytest.mark.parametrize("given", ["one", ["one", "two"], [1, 2], [[1, 2], [3]]])
async def test_embeddings_are_the_same_unit_vectors_as_floats_and_as_base64(engine: Client, given: Any) -> None:
    floats = await engine.post("/v1/embeddings", input=given)
    coded = await engine.post("/v1/embeddings", input=given, encoding_format="base64")
    assert floats["usage"] == coded["usage"]
    for i, (plain, packed) in enumerate(zip(floats["data"], coded["data"], strict=True)):
        raw = base64.b64decode(packed["embedding"])
        assert plain["embedding"] == list(struct.unpack(f"<{len(raw) // 4}f", raw))
        assert math.isclose(math.hypot(*plain["embedding"]), 1, abs_tol=1e-5)
        assert plain["index"] == packed["index"] == i


async def test_embeddings_have_the_requested_dimensions(engine: Client) -> None:
    reply = await engine.post("/v1/embeddings", input="one", dimensions=12)
    assert len(reply["data"][0]["embedding"]) == 12


async def test_models_have_the_metadata_of_llama_cpp(engine: Client) -> None:
    model = (await engine.get("/v1/models"))["data"][0]
    assert model == await engine.get(f"/v1/models/{MODEL}")
    assert model["id"] == MODEL
    assert set(model["meta"]) == {"n_ctx_train", "n_params", "size", "n_embd", "capabilities"}


async def test_a_model_with_slashes_in_its_name_is_found() -> None:
    async with engine_client(EngineSettings(models=("org/name",))) as engine:
        assert (await engine.get("/v1/models/org/name"))["id"] == "org/name"


async def test_props_and_slots_report_the_capacity() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), slots=3, n_ctx=512)) as engine:
        props = await engine.get("/props")
        assert props["total_slots"] == 3
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert [(slot["id"], slot["is_processing"]) for slot in await engine.get("/slots")] == [
            (0, False),
            (1, False),
            (2, False),
        ]


async def test_tokenize_gives_one_id_for_each_token(engine: Client) -> None:
    reply = await engine.post("/tokenize", content="Hello, world")
    assert len(reply["tokens"]) == count_tokens("Hello, world") == 3


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/v1/chat/completions", {"model": "other", "messages": chat("x")}, (404, "model_not_found", "model")),
        ("/v1/chat/completions", {}, (400, "invalid_value", "messages")),
        ("/v1/chat/completions", {"messages": []}, (400, "invalid_value", "messages")),
        ("/v1/chat/completions", {"messages": chat("x"), "n": 0}, (400, "invalid_value", "n")),
        ("/v1/chat/completions", {"messages": [{"role": "king"}]}, (400, "invalid_value", "messages[0].role")),
        ("/v1/completions", {"prompt": ["a", 1]}, (400, "invalid_value", "prompt")),
        ("/v1/embeddings", {"input": []}, (400, "invalid_value", "input")),
        ("/v1/nothing", {}, (404, "not_found", None)),
        ("/health", {}, (405, "method_not_allowed", None)),
    ],
)
async def test_errors_have_all_four_keys(
    engine: Client, path: str, body: dict[str, Any], error: tuple[int, str, str | None]
) -> None:
    status, reply = await engine.try_post(path, **body)
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert (status, reply["error"]["code"], reply["error"]["param"]) == error


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", {"messages": chat("x " * 9000)}), ("/v1/completions", {"prompt": "x " * 9000})],
)
async def test_an_overflow_is_told_as_a_server_tells_it_not_as_a_client_needs_it(
    engine: Client, path: str, body: dict[str, Any]
) -> None:
    status, reply = await engine.try_post(path, **body)
    assert (status, reply["error"]["code"], reply["error"]["type"]) == (400, 400, "exceed_context_size_error")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'"\xff"', b"", b'{"model": ' + b"[" * 100_000])
async def test_a_body_that_is_not_json_is_refused(engine: Client, body: bytes) -> None:
    async with engine.session.post(engine.base_url + "/v1/chat/completions", data=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_an_answer_ends_where_the_context_ends() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), n_ctx=10)) as engine:
        reply = await engine.post("/v1/chat/completions", messages=chat("Hello"))
        assert reply["usage"]["total_tokens"] == 10
        assert reply["choices"][0]["finish_reason"] == "length"


async def test_an_engine_that_loads_at_start_refuses_until_it_has() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), load_s=5), clock=StillClock()) as engine:
        status, reply = await engine.try_post("/v1/chat/completions", messages=chat("x"))
        assert (status, reply["error"]["code"]) == (503, "model_loading")
        assert (await engine.get("/health"))["error"]["code"] == "model_loading"
        assert (await engine.get("/v1/models"))["data"][0]["status"]["value"] == "loading"


async def test_a_cold_engine_is_healthy_and_loads_on_first_use() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), load_s=5, cold=True)) as engine:
        assert await engine.get("/health") == {"status": "ok"}
        assert (await engine.get("/v1/models"))["data"][0]["status"]["value"] == "unloaded"
        await engine.post("/v1/chat/completions", messages=chat("x"))
        assert (await engine.get("/v1/models"))["data"][0]["status"]["value"] == "loaded"


async def test_a_cold_engine_is_healthy_while_it_loads_and_requests_wait() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), load_s=5, cold=True), clock=StillClock()) as engine:
        waiting = asyncio.create_task(engine.try_post("/v1/chat/completions", messages=chat("x")))
        await eventually(lambda: _is_loading(engine))
        assert await engine.get("/health") == {"status": "ok"}
        assert not waiting.done()
        waiting.cancel()


async def _is_loading(engine: Client) -> bool:
    return bool((await engine.get("/v1/models"))["data"][0]["status"]["value"] == "loading")
