"""How fast does a model read that only makes vectors? A short text and a long one, each embedded alone."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BadBackendReply
from sparewatt.node.backends.throttle import throttled
from sparewatt.node.measurement.chat_speed import MEASURE_S, long_prompt, rate, short_prompt
from sparewatt.protocol.link.node_report import Speed
from sparewatt.protocol.openai.chat import read_usage

_WRITES = frozenset({"chat", "completions"})
ANSWER_BYTES_MAX = 4 << 20


def is_embedding_only(capabilities: Collection[str] | None) -> bool:
    """By what its server says of it."""
    return capabilities is not None and "embeddings" in capabilities and _WRITES.isdisjoint(capabilities)


async def measure_embedding_model(
    backend: Backend, model: str, *, limit_tps: float | None, clock: Clock, rng: Rng
) -> Speed:
    """Raises BackendError. It never writes, so that how fast it would is what it reads with."""
    try:
        async with asyncio.timeout(MEASURE_S):
            short_s, _ = await _embed(backend, model, short_prompt(rng), limit_tps, clock)
            long_s, tokens = await _embed(backend, model, long_prompt(rng), limit_tps, clock)
    except TimeoutError:
        raise BadBackendReply(f"measuring {model} took longer than {MEASURE_S:.0f} s") from None
    reads = rate(tokens, long_s)
    return Speed(ttft_s=round(min(short_s, 3600.0), 4), prefill_tps=reads, decode_tps=reads)


async def _embed(backend: Backend, model: str, text: str, limit_tps: float | None, clock: Clock) -> tuple[float, int]:
    """Seconds, and tokens that were read."""
    began_s = clock.now_s()
    answer = bytearray()
    async with backend.post("/v1/embeddings", msgspec.json.encode({"model": model, "input": text})) as reply:
        if reply.status != 200:
            raise BadBackendReply(f"a measuring job was answered with {reply.status}")
        async for chunk in throttled(reply.chunks, limit_tps=limit_tps, clock=clock):
            answer += chunk
            if len(answer) > ANSWER_BYTES_MAX:
                raise BadBackendReply("the model server's vector has no end")
    usage = read_usage(bytes(answer))
    if usage is None or not usage.prompt_tokens:
        raise BadBackendReply("the model server does not count what it reads")
    return clock.now_s() - began_s, usage.prompt_tokens
