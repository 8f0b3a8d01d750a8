"""How fast is a model here? Short known jobs: one that writes a little, one that reads much, two that write at once.

Measured through the same pacing as real jobs, so a speed limit shows in the figures. What was measured is kept on disk,
so that a restart on the same server need not measure again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.core.log import Log
from sparewatt.core.rng import Rng
from sparewatt.node.backends.model import Backend, BackendBroke, BackendError
from sparewatt.node.pacing import paced
from sparewatt.protocol.node import Speed
from sparewatt.protocol.openai import read_chunk

_log = Log("sparewatt.node")

READ_WORDS = 100
WRITE_TOKENS = 24
PAIR_TOKENS = 12
SHORT_PROMPT_TOKENS = 30.0
"""About what the prompt of a job that writes holds: the first-token time is measured with it."""
MEASURE_S = 120.0
FILE = "measured.json"
_WORDS = ("river", "stone", "lamp", "paper", "seven", "green", "walk", "quiet")


@dataclass(slots=True)
class _Run:
    """What one job showed, in seconds after it began."""

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


async def measure(backend: Backend, model: str, *, limit_tps: float | None, clock: Clock, rng: Rng) -> Speed:
    """Raises BackendError if the server cannot do one job after the other."""
    try:
        async with asyncio.timeout(MEASURE_S):
            write = await _run_job(backend, _body(model, short_prompt(rng), WRITE_TOKENS), limit_tps, clock)
            read = await _run_job(backend, _body(model, long_prompt(rng), 1), limit_tps, clock)
            bodies = [_body(model, short_prompt(rng), PAIR_TOKENS) for _ in range(2)]
            pair = await _run_together(backend, bodies, limit_tps, clock)
    except TimeoutError:
        raise BackendBroke(f"measuring {model} took longer than {MEASURE_S:.0f} s") from None
    return Speed(
        ttft_s=round(min(write.first_s, 3600.0), 4),
        prefill_tps=rate(read.prompt_tokens, read.first_s),
        decode_tps=rate(1, write.step_s),
        step_per_job_s=round(min(step_per_job_s(write, pair), 3600.0), 6) if pair else None,
    )


CLEARLY = 1.05
"""Runs of the same server differ by a few per cent; what differs by less is the same figure."""


def faster_of(before: Speed, now: Speed) -> Speed:
    """The measurement that is clearly the faster, by what writing takes alone; of equal ones the earlier."""
    is_faster = now.decode_tps > CLEARLY * before.decode_tps or (
        now.decode_tps * CLEARLY >= before.decode_tps and now.prefill_tps > CLEARLY * before.prefill_tps
    )
    return now if is_faster else before


def step_per_job_s(alone: _Run, pair: Sequence[_Run]) -> float:
    """What a second answer adds to each step. One that had to wait its turn adds a whole step."""
    first, second = sorted(pair, key=lambda run: run.began_s + run.first_s)
    if second.began_s + second.first_s >= first.began_s + first.last_s:
        return alone.step_s
    return max(0.0, (first.step_s + second.step_s) / 2 - alone.step_s)


async def _run_together(
    backend: Backend, bodies: Sequence[bytes], limit_tps: float | None, clock: Clock
) -> list[_Run] | None:
    """Two jobs at once; nothing if the server will not have that."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_run_job(backend, body, limit_tps, clock)) for body in bodies]
    except* BackendError as errors:
        _log.info("pair_not_measured", why=str(errors.exceptions[0]))
        running = []
    return [task.result() for task in running] or None


def rate(tokens: int, seconds: float) -> float:
    return round(min(1e7, max(1e-3, tokens / max(seconds, 1e-6))), 3)


def _salt(rng: Rng) -> str:
    """Different each time and in front, so that no prompt cache answers for the hardware."""
    return rng.randbytes(6).hex()


def short_prompt(rng: Rng) -> str:
    return f"{_salt(rng)} Count from one to fifty."


def long_prompt(rng: Rng) -> str:
    words = " ".join(_WORDS[byte % len(_WORDS)] for byte in rng.randbytes(READ_WORDS))
    return f"{_salt(rng)} {words}"


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


async def _run_job(backend: Backend, body: bytes, limit_tps: float | None, clock: Clock) -> _Run:
    began_s = clock.now_s()
    run = _Run(began_s=began_s)
    async with backend.post("/v1/chat/completions", body) as reply:
        if reply.status != 200:
            raise BackendBroke(f"a measuring job was answered with {reply.status}")
        async for line in _lines(paced(reply.chunks, limit_tps=limit_tps, clock=clock)):
            _note(run, line, clock.now_s() - began_s)
    if not run.events or not run.prompt_tokens:
        raise BackendBroke("the model server streams no tokens or does not count them")
    return run


def _note(run: _Run, line: bytes, at_s: float) -> None:
    data = line.removeprefix(b"data:").strip()
    if not line.startswith(b"data:") or data == b"[DONE]":
        return
    chunk = read_chunk(data)
    if chunk is None or chunk.is_error():
        raise BackendBroke("the model server streams something that is no chunk")
    if chunk.usage is not None:
        run.prompt_tokens = chunk.usage.prompt_tokens
        run.completion_tokens = chunk.usage.completion_tokens
    if chunk.carries_output() or chunk.finishes():  # a token may have no text of its own
        run.first_s = run.first_s or at_s
        run.last_s = at_s
        run.events += 1


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > SSE_EVENT_BYTES_MAX:
            raise BackendBroke("the model server streams an event without end")
        for line in lines:
            yield line


class MeasuredFile:
    """Speeds by model and server, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._speeds = self._read()

    def _read(self) -> dict[str, Speed]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Speed])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def get(self, key: str) -> Speed | None:
        return self._speeds.get(key)

    def put(self, key: str, speed: Speed) -> None:
        """Keep it, on disk too if that can be: a full disk only means that it is measured again after a restart."""
        self._speeds[key] = speed
        try:
            self._write()
        except OSError as error:
            _log.warning("measure_not_kept", why=str(error))

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(self._speeds))
        temporary.replace(self._path)
