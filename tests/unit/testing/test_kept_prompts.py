"""An engine that keeps prompts says so, and says of each how much it had."""

from __future__ import annotations

from sparewatt.testing import EngineSettings
from sparewatt.testing.engine.prefix_cache import BLOCK_TOKENS, EnginePrefixCache
from tests.unit.testing.client import MODEL, chat, engine_client

LONG = "one two three four " * 40


async def cached(settings: EngineSettings) -> list[int]:
    async with engine_client(settings) as client:
        replies = [await client.post("/v1/chat/completions", messages=chat(LONG)) for _ in range(2)]
        (model,) = (await client.get("/v1/models"))["data"]
    assert model["meta"].get("prefix_cache_tokens", 0) == settings.prefix_cache_tokens
    return [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]


async def test_the_second_time_the_prompt_is_there() -> None:
    first, second = await cached(EngineSettings(models=(MODEL,), prefix_cache_tokens=10_000))
    assert first == 0
    assert second > 100


async def test_an_engine_that_keeps_nothing_reads_all_again() -> None:
    assert await cached(EngineSettings(models=(MODEL,))) == [0, 0]


def test_only_whole_blocks_from_the_start_count_and_one_token_is_always_read() -> None:
    kept, tokens = EnginePrefixCache(10 * BLOCK_TOKENS), [str(n) for n in range(2 * BLOCK_TOKENS)]
    assert kept.read(tokens) == 0
    assert kept.read(tokens) == 2 * BLOCK_TOKENS - 1
    assert kept.read([*tokens, "more"]) == 2 * BLOCK_TOKENS
    assert kept.read(["other", *tokens[1:]]) == 0


def test_the_latest_are_kept() -> None:
    kept = EnginePrefixCache(BLOCK_TOKENS)
    first, second = (["a"] * BLOCK_TOKENS, ["b"] * BLOCK_TOKENS)
    kept.read(first)
    kept.read(second)
    assert (kept.read(second), kept.read(first)) == (BLOCK_TOKENS - 1, 0)
