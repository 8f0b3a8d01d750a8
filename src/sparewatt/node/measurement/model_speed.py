"""Measures how fast a model is on this machine, with short known jobs.

A model that writes gets one job that writes a little, one that reads much, and a batch: as many at once as the server
runs, within bounds. A model that only embeds is timed by what it reads. Jobs pass the owner's speed limit, as real ones
do, so it shows in the figures. `SpeedFile` saves them. When to measure is decided in `measurement_schedule`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BackendError, BadBackendReply
from sparewatt.node.backends.reply_stream import EventDataSplitter, collect, throttled
from sparewatt.protocol.link.node_report import Speed
from sparewatt.protocol.openai.chat import read_chunk, read_usage

_log = Logger("sparewatt.node")
READ_WORDS = 100
WRITE_TOKENS = 24
BATCH_TOKENS = 12
BATCH_MIN, BATCH_MAX = 2, 16
"""Two show what a second job costs; more than sixteen would keep an owner's machine busy for long."""
SHORT_PROMPT_TOKENS = 30.0
"""About the length of the prompt with which the first-token time is measured."""
MEASURE_S = 120.0
TIME_S_MAX = 3600.0
EMBEDDING_BYTES_MAX = 4 << 20
NOISE_FACTOR = 1.05
"""Runs on the same server differ by a few per cent; figures that differ by less count as equal."""
_T = TypeVar("_T")
_WORDS = ("river", "stone", "lamp", "paper", "seven", "green", "walk", "quiet")
_WRITES = frozenset({"chat", "completions"})


def is_embedding_only(capabilities: Collection[str] | None) -> bool:
    return capabilities is not None and "embeddings" in capabilities and _WRITES.isdisjoint(capabilities)


@dataclass(slots=True)
class _JobTiming:
    """What one job showed. Times but `began_s` count from its start."""

    began_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    events: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def step_s(self) -> float:
        """Per token after the first."""
        return max(self.last_s - self.first_s, 1e-4) / max(1, self.completion_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedMeter:
    """Measures the models of one backend. Its methods raise BackendError if the server cannot do the jobs."""

    backend: Backend
    clock: Clock
    rng: Rng
    limit_tps: float | None = None

    async def measure_chat(
        self, model: str, *, at_once: int = BATCH_MIN, progress: Callable[[str], None] = lambda _: None
    ) -> Speed:
        batch_size = max(BATCH_MIN, min(BATCH_MAX, at_once))
        try:
            async with asyncio.timeout(MEASURE_S):
                progress("writes alone (1 of 3)")
                write = await self._run_job(_body(model, self._short_prompt(), WRITE_TOKENS))
                progress("reads (2 of 3)")
                read = await self._run_job(_body(model, self._long_prompt(), 1))
                progress(f"writes {batch_size} at once (3 of 3)")
                bodies = [_body(model, self._short_prompt(), BATCH_TOKENS) for _ in range(batch_size)]
                batch = await self._run_batch(bodies)
        except TimeoutError:
            raise _too_slow(model) from None
        return _speed(write, read, batch)

    async def measure_embedding(self, model: str) -> Speed:
        """It never writes: as its decode speed counts how fast it reads."""
        try:
            async with asyncio.timeout(MEASURE_S):
                short_s, _ = await self._embed(model, self._short_prompt())
                long_s, tokens = await self._embed(model, self._long_prompt())
        except TimeoutError:
            raise _too_slow(model) from None
        read_tps = _rate(tokens, long_s)
        return Speed(ttft_s=_seconds(short_s), prefill_tps=read_tps, decode_tps=read_tps)

    async def _run_batch(self, bodies: Sequence[bytes]) -> list[_JobTiming] | None:
        """All at once; None if the server refuses that."""
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._run_job(body)) for body in bodies]
        except* BackendError as errors:
            _log.info("batch_not_measured", why=str(errors.exceptions[0]))
            running = []
        return [task.result() for task in running] or None

    async def _run_job(self, body: bytes) -> _JobTiming:
        began_s = self.clock.now_s()
        timing, events = _JobTiming(began_s=began_s), EventDataSplitter()
        async with self.backend.post("/v1/chat/completions", body) as reply:
            _check_status(reply.status)
            async for chunk in throttled(reply.chunks, limit_tps=self.limit_tps, clock=self.clock):
                for data in events.feed(chunk):
                    _note(timing, data, self.clock.now_s() - began_s)
        if not timing.events or not timing.prompt_tokens:
            raise BadBackendReply("the model server streams no tokens or does not count them")
        return timing

    async def _embed(self, model: str, text: str) -> tuple[float, int]:
        """Seconds, and tokens that were read."""
        began_s = self.clock.now_s()
        async with self.backend.post("/v1/embeddings", msgspec.json.encode({"model": model, "input": text})) as reply:
            _check_status(reply.status)
            chunks = throttled(reply.chunks, limit_tps=self.limit_tps, clock=self.clock)
            usage = read_usage(await collect(chunks, bytes_max=EMBEDDING_BYTES_MAX))
        if usage is None or not usage.prompt_tokens:
            raise BadBackendReply("the model server does not count what it reads")
        return self.clock.now_s() - began_s, usage.prompt_tokens

    def _short_prompt(self) -> str:
        return f"{self._salt()} Count from one to fifty."

    def _long_prompt(self) -> str:
        words = " ".join(_WORDS[byte % len(_WORDS)] for byte in self.rng.randbytes(READ_WORDS))
        return f"{self._salt()} {words}"

    def _salt(self) -> str:
        """New each time and at the front, so that no prefix cache shortens the work."""
        return self.rng.randbytes(6).hex()


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


def _too_slow(model: str) -> BadBackendReply:
    return BadBackendReply(f"measuring {model} took longer than {MEASURE_S:.0f} s")


def _note(timing: _JobTiming, data: bytes, at_s: float) -> None:
    if data == b"[DONE]":
        return
    chunk = read_chunk(data)
    if chunk is None or chunk.is_error():
        raise BadBackendReply("the model server streams something that is no chunk")
    if chunk.usage is not None:
        timing.prompt_tokens = chunk.usage.prompt_tokens
        timing.completion_tokens = chunk.usage.completion_tokens
    if chunk.carries_output() or chunk.finishes():  # a last token may have no text
        timing.first_s = timing.first_s or at_s
        timing.last_s = at_s
        timing.events += 1


def _speed(write: _JobTiming, read: _JobTiming, batch: Sequence[_JobTiming] | None) -> Speed:
    single = Speed(
        ttft_s=_seconds(write.first_s),
        prefill_tps=_rate(read.prompt_tokens, read.first_s),
        decode_tps=_rate(1, write.step_s),
    )
    if not batch:
        return single
    return msgspec.structs.replace(
        single,
        step_per_job_s=round(min(step_per_job_s(write, batch), TIME_S_MAX), 6),
        batch=len(batch),
        batch_decode_tps=_batch_decode_tps(batch),
        batch_ttft_s=_seconds(max(job.first_s for job in batch)),
    )


def _batch_decode_tps(batch: Sequence[_JobTiming]) -> float:
    """Tokens of all, over the time from the first one's first token to the last one's last."""
    began_s = min(job.began_s + job.first_s for job in batch)
    ended_s = max(job.began_s + job.last_s for job in batch)
    return _rate(sum(job.completion_tokens for job in batch), ended_s - began_s)


def step_per_job_s(single: _JobTiming, batch: Sequence[_JobTiming]) -> float:
    """What each further job adds to a step. If one had to wait for a slot, that is a whole step."""
    last_first_token_s = max(job.began_s + job.first_s for job in batch)
    if last_first_token_s >= min(job.began_s + job.last_s for job in batch):
        return single.step_s
    mean_step_s = sum(job.step_s for job in batch) / len(batch)
    return max(0.0, (mean_step_s - single.step_s) / (len(batch) - 1))


def _rate(tokens: int, seconds: float) -> float:
    return round(min(1e7, max(1e-3, tokens / max(seconds, 1e-6))), 3)


def _seconds(value_s: float) -> float:
    return round(min(value_s, TIME_S_MAX), 4)


def faster_of(before: Speed, now: Speed) -> Speed:
    """The better of each figure, where it is clearly better; else the earlier.

    Other load on the machine may have slowed one job of a run and not another. The figures of a batch belong together
    and come from one run.
    """
    batch = now if _has_better_batch(before, now) else before
    return msgspec.structs.replace(
        batch,
        prefill_tps=_higher(before.prefill_tps, now.prefill_tps),
        decode_tps=_higher(before.decode_tps, now.decode_tps),
        ttft_s=now.ttft_s if now.ttft_s * NOISE_FACTOR < before.ttft_s else before.ttft_s,
    )


def _higher(before: float, now: float) -> float:
    return now if now > NOISE_FACTOR * before else before


def _has_better_batch(before: Speed, now: Speed) -> bool:
    """Batches of different sizes cannot be compared: the later one counts, as the server runs that many now."""
    if now.batch_decode_tps is None or before.batch_decode_tps is None:
        return before.batch_decode_tps is None
    return now.batch != before.batch or now.batch_decode_tps > NOISE_FACTOR * before.batch_decode_tps


class SpeedFile(Generic[_T]):
    """Figures on disk, by what they were measured on: a restart on the same server need not measure again."""

    def __init__(self, path: Path, shape: type[_T]) -> None:
        self._path = path
        try:
            self._speeds = msgspec.json.decode(path.read_bytes(), type=dict[str, shape])  # type: ignore[valid-type]
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            self._speeds = dict[str, _T]()

    def get(self, key: str) -> _T | None:
        return self._speeds.get(key)

    def put(self, key: str, speed: _T) -> None:
        """If the disk is full, it is kept in memory only, and measured again after a restart."""
        self._speeds[key] = speed
        try:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(self._speeds))
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("speed_file_unwritable", why=str(error))
