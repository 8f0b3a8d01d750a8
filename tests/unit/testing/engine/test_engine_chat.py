"""Chat completions over HTTP: streamed and whole replies say the same, in OpenAI's shapes."""

from __future__ import annotations

import pytest

from sparewatt.testing import EngineSettings, count_tokens, expected_text, render_chat
from tests.unit.testing.client import MODEL, Client, chat, engine_client, joined

PATH = "/v1/chat/completions"


async def test_a_whole_reply_is_the_expected_text(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"))
    prompt = render_chat(chat("Hello"))
    choice = reply["choices"][0]
    assert reply["object"] == "chat.completion"
    assert reply["id"].startswith("chatcmpl-")
    assert choice["message"] == {"role": "assistant", "content": expected_text(prompt), "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert reply["usage"]["prompt_tokens"] == count_tokens(prompt)
    assert reply["usage"]["completion_tokens"] == count_tokens(expected_text(prompt))
    assert reply["usage"]["total_tokens"] == count_tokens(prompt + expected_text(prompt))


async def test_a_stream_says_what_the_whole_reply_says(engine: Client) -> None:
    chunks = await engine.stream(PATH, messages=chat("Hello"))
    assert joined(chunks) == expected_text(render_chat(chat("Hello")))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_requested_usage_comes_last_and_is_null_before(engine: Client) -> None:
    whole = await engine.post(PATH, messages=chat("Hello"))
    chunks = await engine.stream(PATH, messages=chat("Hello"), stream_options={"include_usage": True})
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]


async def test_usage_is_absent_from_a_stream_unless_requested(engine: Client) -> None:
    assert not any("usage" in chunk for chunk in await engine.stream(PATH, messages=chat("Hello")))


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_on_tokens_ends_with_length(engine: Client, field: str) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), **{field: 7})
    assert reply["choices"][0]["message"]["content"] == expected_text(render_chat(chat("Hello")), max_tokens=7)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 7


async def test_a_limit_that_is_not_reached_changes_nothing(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), max_tokens=5000)
    assert reply["choices"][0]["finish_reason"] == "stop"


async def test_a_fixed_answer_length_holds_for_every_prompt() -> None:
    async with engine_client(EngineSettings(models=(MODEL,), answer_tokens=3)) as engine:
        for content in ("a", "b"):
            reply = await engine.post(PATH, messages=chat(content))
            assert reply["usage"]["completion_tokens"] == 3
            assert reply["choices"][0]["finish_reason"] == "stop"


async def test_ignore_eos_runs_to_the_limit(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), max_tokens=500, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == 500
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_a_prefill_returns_only_the_rest_at_every_cut(engine: Client) -> None:
    whole = expected_text(render_chat(chat("Go on")), max_tokens=12)
    for at in range(len(whole) + 1):
        reply = await engine.post(PATH, messages=chat("Go on", prefill=whole[:at]), max_tokens=12)
        assert reply["choices"][0]["message"]["content"].startswith(whole[at:])


async def test_a_finished_prefill_returns_nothing_more(engine: Client) -> None:
    whole = expected_text(render_chat(chat("Go on")))
    reply = await engine.post(PATH, messages=chat("Go on", prefill=whole))
    assert reply["choices"][0]["message"]["content"] == ""
    assert reply["choices"][0]["finish_reason"] == "stop"


async def test_text_ends_before_the_earliest_stop(engine: Client) -> None:
    whole = expected_text(render_chat(chat("Hello")))
    late, early = whole[40:44], whole[20:23]
    reply = await engine.post(PATH, messages=chat("Hello"), stop=[late, early])
    chunks = await engine.stream(PATH, messages=chat("Hello"), stop=[late, early])
    assert reply["choices"][0]["message"]["content"] == whole[: min(whole.find(early), whole.find(late))]
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert joined(chunks) == reply["choices"][0]["message"]["content"]


async def test_a_stop_that_never_comes_changes_nothing(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), stop="<never>")
    assert reply["choices"][0]["message"]["content"] == expected_text(render_chat(chat("Hello")))


async def test_each_of_n_choices_streams_its_own_text(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"), n=3)
    chunks = await engine.stream(PATH, messages=chat("Hello"), n=3)
    texts = [choice["message"]["content"] for choice in reply["choices"]]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert texts == [expected_text(render_chat(chat("Hello")), choice=i) for i in range(3)]
    assert [joined(chunks, index=i) for i in range(3)] == texts
    assert reply["usage"]["completion_tokens"] == sum(map(count_tokens, texts))


async def test_a_seed_gives_another_answer_and_always_the_same(engine: Client) -> None:
    replies = [await engine.post(PATH, messages=chat("Hello"), seed=seed) for seed in (5, 5, 6)]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[1] == expected_text(render_chat(chat("Hello")), seed=5)
    assert texts[0] != texts[2]


async def test_logprobs_cover_every_token_with_the_chosen_one_on_top(engine: Client) -> None:
    wanted = {"messages": chat("Hello"), "max_tokens": 6, "logprobs": True, "top_logprobs": 3}
    reply = await engine.post(PATH, **wanted)
    chunks = await engine.stream(PATH, **wanted)
    content = reply["choices"][0]["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == reply["choices"][0]["message"]["content"]
    assert all(bytes(each["bytes"]).decode() == each["token"] for each in content)
    assert all(each["top_logprobs"][0]["token"] == each["token"] for each in content)
    assert all(len(each["top_logprobs"]) == 3 for each in content)
    assert [each["choices"][0]["logprobs"]["content"][0] for each in chunks[1:-1]] == content


async def test_logprobs_are_null_unless_requested(engine: Client) -> None:
    reply = await engine.post(PATH, messages=chat("Hello"))
    assert reply["choices"][0]["logprobs"] is None
