"""Times one job at the model server, from its stream of events. For measuring only: nothing is passed on."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.node.backends.backend import Backend, BadBackendReply
from sparewatt.node.backends.reply_stream import EventDataSplitter, collect, throttled
from sparewatt.protocol.openai.chat import read_chunk, read_usage

EMBEDDING_BYTES_MAX = 4 << 20
EVENTS_MAX = 10_000
WINDOW_STEPS_MIN = 3.0
"""From fewer steps in which all of a batch wrote, no step time is read."""


@dataclass(slots=True)
class JobTiming:
    """What one job showed. Tokens are counted by the server."""

    began_s: float = 0.0
    events_s: list[float] = field(default_factory=list)
    """When each piece of output came."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        return max(0.0, self.events_s[0] - self.began_s)

    @property
    def step_s(self) -> float:
        """Per token after the first."""
        return max(self.events_s[-1] - self.events_s[0], 1e-4) / max(1, self.completion_tokens - 1)

    @property
    def took_s(self) -> float:
        return max(0.0, self.events_s[-1] - self.began_s)

    @property
    def mean_context(self) -> float:
        return self.prompt_tokens + self.completion_tokens / 2

    def events_since(self, from_s: float) -> int:
        return len(self.events_s) - bisect.bisect_right(self.events_s, from_s)

    def tokens_between(self, from_s: float, until_s: float) -> float:
        """Some servers send several tokens in one event."""
        events = sum(from_s < at_s <= until_s for at_s in self.events_s)
        return events * max(1.0, self.completion_tokens / len(self.events_s))


def batch_step_s(batch: Sequence[JobTiming]) -> float:
    """Seconds per step while all of them wrote. If they hardly ever did, since some waited for a slot, all their
    tokens count as if they had: the server writes no faster than that."""
    from_s = max(job.events_s[0] for job in batch)
    until_s = min(job.events_s[-1] for job in batch)
    steps = sum(job.tokens_between(from_s, until_s) for job in batch) / len(batch)
    if steps >= WINDOW_STEPS_MIN:
        return (until_s - from_s) / steps
    span_s = max(job.events_s[-1] for job in batch) - min(job.events_s[0] for job in batch)
    return max(span_s, 1e-4) * len(batch) / max(1, sum(job.completion_tokens for job in batch))


@dataclass(frozen=True, slots=True)
class JobTimer:
    """Runs jobs and times them. Its methods raise BackendError."""

    backend: Backend
    clock: Clock
    limit_tps: float | None = None
    """The owner's speed limit: measuring jobs pass it as real ones do, so it shows in the figures."""

    async def run(
        self,
        model: str,
        prompt: str,
        max_tokens: int,
        *,
        timing: JobTiming | None = None,
        on_event: Callable[[], None] = lambda: None,
    ) -> JobTiming:
        """`timing` is filled as the job goes on, for a caller that looks before it ends."""
        timing, events = timing or JobTiming(), EventDataSplitter()
        timing.began_s = self.clock.now_s()
        async with self.backend.post("/v1/chat/completions", _body(model, prompt, max_tokens)) as reply:
            _check_status(reply.status)
            async for chunk in throttled(reply.chunks, limit_tps=self.limit_tps, clock=self.clock):
                for data in events.feed(chunk):
                    if _note(timing, data, self.clock.now_s()):
                        on_event()
        if not timing.events_s or not timing.prompt_tokens:
            raise BadBackendReply("the model server streams no tokens or does not count them")
        return timing

    async def embed(self, model: str, text: str) -> tuple[int, float]:
        """Tokens that were read, and seconds."""
        began_s = self.clock.now_s()
        async with self.backend.post("/v1/embeddings", msgspec.json.encode({"model": model, "input": text})) as reply:
            _check_status(reply.status)
            chunks = throttled(reply.chunks, limit_tps=self.limit_tps, clock=self.clock)
            usage = read_usage(await collect(chunks, bytes_max=EMBEDDING_BYTES_MAX))
        if usage is None or not usage.prompt_tokens:
            raise BadBackendReply("the model server does not count what it reads")
        return usage.prompt_tokens, self.clock.now_s() - began_s


def _body(model: str, prompt: str, max_tokens: int) -> bytes:
    request = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return msgspec.json.encode(request)


def _check_status(status: int) -> None:
    if status != 200:
        raise BadBackendReply(f"a measuring job was answered with {status}")


def _note(timing: JobTiming, data: bytes, at_s: float) -> bool:
    """Whether it was output."""
    if data == b"[DONE]":
        return False
    chunk = read_chunk(data)
    if chunk is None or chunk.is_error():
        raise BadBackendReply("the model server streams something that is no chunk")
    if chunk.usage is not None:
        timing.prompt_tokens = chunk.usage.prompt_tokens
        timing.completion_tokens = chunk.usage.completion_tokens
    is_only_token = chunk.finishes() and not timing.events_s  # a token may have no text
    if not chunk.carries_output() and not is_only_token:
        return False
    if len(timing.events_s) >= EVENTS_MAX:
        raise BadBackendReply("the model server writes without end")
    timing.events_s.append(at_s)
    return True
