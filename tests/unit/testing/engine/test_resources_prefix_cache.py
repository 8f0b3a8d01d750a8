"""The prefix cache: what it advertises, and how much of each prompt was cached."""

from __future__ import annotations

from sparewatt.testing import EngineSettings
from sparewatt.testing.engine.resources import BLOCK_TOKENS, EnginePrefixCache
from tests.unit.testing.client import MODEL, chat, engine_client

LONG = "one two three four " * 40


async def cached(settings: EngineSettings) -> list[int]:
    async with engine_client(settings) as client:
        replies = [await client.post("/v1/chat/completions", messages=chat(LONG)) for _ in range(2)]
        (model,) = (await client.get("/v1/models"))["data"]
    assert model["meta"].get("prefix_cache_tokens", 0) == settings.prefix_cache_tokens
    return [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]


async def test_the_same_prompt_is_cached_the_second_time() -> None:
    first, second = await cached(EngineSettings(models=(MODEL,), prefix_cache_tokens=10_000))
    assert first == 0
    assert second > 100


async def test_without_a_cache_every_prompt_is_prefilled_whole() -> None:
    assert await cached(EngineSettings(models=(MODEL,))) == [0, 0]


def test_only_whole_blocks_from_the_start_count_and_one_token_is_always_read() -> None:
    cache, tokens = EnginePrefixCache(10 * BLOCK_TOKENS), [str(n) for n in range(2 * BLOCK_TOKENS)]
    assert cache.read(tokens) == 0
    assert cache.read(tokens) == 2 * BLOCK_TOKENS - 1
    assert cache.read([*tokens, "more"]) == 2 * BLOCK_TOKENS
    assert cache.read(["other", *tokens[1:]]) == 0


def test_the_least_recently_used_block_is_evicted() -> None:
    cache = EnginePrefixCache(BLOCK_TOKENS)
    first, second = (["a"] * BLOCK_TOKENS, ["b"] * BLOCK_TOKENS)
    cache.read(first)
    cache.read(second)
    assert (cache.read(second), cache.read(first)) == (BLOCK_TOKENS - 1, 0)
