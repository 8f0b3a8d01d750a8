"""Errors in each server's own words."""

from __future__ import annotations

from typing import get_args

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.openai.chat import read_error_message
from sparewatt.sim.servers.facts import ServerKind
from sparewatt.testing import EngineSettings
from sparewatt.testing.engine.dialects import error_in, missing_page, server_facts
from sparewatt.testing.engine.replies import encode
from sparewatt.testing.engine.settings import (
    DIALECTS,
    EngineContextTooLong,
    EngineDialect,
    EngineModelNotFound,
    ModelStillLoading,
)

TOO_LONG = EngineContextTooLong(prompt_tokens=9000, n_ctx=8192, max_tokens=100, param="messages")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_overflow_is_told_with_the_word_context(dialect: EngineDialect) -> None:
    message = read_error_message(encode(error_in(dialect, TOO_LONG)))

    assert message is not None
    assert "context" in message
    assert "9000" in message
    assert "8192" in message


def test_vllm_counts_the_tokens_to_be_written() -> None:
    error = error_in("vllm", TOO_LONG)["error"]

    assert isinstance(error, dict)
    assert "for a total of 9100 tokens" in error["message"]
    assert (error["type"], error["code"], error["param"]) == ("BadRequestError", 400, "messages")


@pytest.mark.parametrize(
    ("prompt", "words"), [(9000, "The input (9000 tokens) is longer"), (8100, "You requested a total of 8300 tokens")]
)
def test_sglang_tells_a_long_prompt_from_a_long_sum(prompt: int, words: str) -> None:
    error = EngineContextTooLong(prompt_tokens=prompt, n_ctx=8192, max_tokens=200, param="messages")
    body = error_in("sglang", error)

    assert words in str(body["message"])
    assert body["object"] == "error"


def test_llama_cpp_tells_both_sizes() -> None:
    assert error_in("llama.cpp", TOO_LONG)["error"] == {
        "code": 400,
        "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 8192,
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_missing_model_is_named(dialect: EngineDialect) -> None:
    message = read_error_message(encode(error_in(dialect, EngineModelNotFound("gpt-9", served=("a",)))))

    assert message is not None
    assert "gpt-9" in message


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("error", [InvalidField("no such role", param="messages"), ModelStillLoading("Loading model")])
def test_other_errors_keep_their_message(dialect: EngineDialect, error: InvalidField | ModelStillLoading) -> None:
    assert read_error_message(encode(error_in(dialect, error))) == error.message


def test_llama_cpp_without_metrics_says_which_flag_is_missing() -> None:
    status, body = missing_page("llama.cpp", "/metrics")

    assert status == 501
    assert b"--metrics" in body
    assert missing_page("llama.cpp", "/elsewhere")[0] == 404


@pytest.mark.parametrize(("kind", "slots", "kv_tokens"), [("slots", 3, 300), ("batching", 7, 4000), ("simple", 3, 300)])
def test_the_facts_are_those_of_the_kind_of_engine(kind: str, slots: int, kv_tokens: int) -> None:
    settings = EngineSettings(engine_kind=kind, slots=3, max_num_seqs=7, n_ctx=100, kv_tokens=4000)  # type: ignore[arg-type]
    facts = server_facts(settings, kind="vllm", started_at=5)

    assert (facts.slots, facts.kv_tokens, facts.context_length, facts.started_at) == (slots, kv_tokens, 100, 5)


@pytest.mark.parametrize("kind", get_args(ServerKind))
def test_every_server_is_described_by_the_same_facts(kind: ServerKind) -> None:
    facts = server_facts(EngineSettings(n_params=8 * 10**9, quantization="Q4_0"), kind=kind, started_at=0)

    assert (facts.kind, facts.parameters, facts.quantization) == (kind, 8 * 10**9, "Q4_0")
    assert facts.weights_bytes == 4 * 10**9
