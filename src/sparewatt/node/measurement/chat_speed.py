"""How fast is a model here? Short known jobs: one that writes a little, one that reads much, several at once.

As many at once as the server works on, within bounds, and two at least. A model that only embeds is timed by what it
reads. Measured through the same pacing as real jobs, so a speed limit shows in the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BackendError, BadBackendReply
from sparewatt.node.backends.throttle import throttled
from sparewatt.protocol.link.node_report import Speed
from sparewatt.protocol.openai.chat import read_chunk

_log = Logger("sparewatt.node")

READ_WORDS = 100
WRITE_TOKENS = 24
BATCH_TOKENS = 12
BATCH_MIN, BATCH_MAX = 2, 16
"""Jobs at once: two show what a second one costs, and more than sixteen would take an owner's machine for long."""
SHORT_PROMPT_TOKENS = 30.0
"""About what the prompt of a job that writes holds: the first-token time is measured with it."""
MEASURE_S = 120.0
_WORDS = ("river", "stone", "lamp", "paper", "seven", "green", "walk", "quiet")


@dataclass(slots=True)
class _JobTiming:
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


async def measure_chat_model(
    backend: Backend,
    model: str,
    *,
    limit_tps: float | None,
    clock: Clock,
    rng: Rng,
    at_once: int = BATCH_MIN,
    progress: Callable[[str], None] = lambda _: None,
) -> Speed:
    """Raises BackendError if the server cannot do one job after the other."""
    together = max(BATCH_MIN, min(BATCH_MAX, at_once))
    try:
        async with asyncio.timeout(MEASURE_S):
            progress("writes alone (1 of 3)")
            write = await _run_job(backend, _body(model, short_prompt(rng), WRITE_TOKENS), limit_tps, clock)
            progress("reads (2 of 3)")
            read = await _run_job(backend, _body(model, long_prompt(rng), 1), limit_tps, clock)
            progress(f"writes {together} at once (3 of 3)")
            bodies = [_body(model, short_prompt(rng), BATCH_TOKENS) for _ in range(together)]
            company = await _run_batch(backend, bodies, limit_tps, clock)
    except TimeoutError:
        raise BadBackendReply(f"measuring {model} took longer than {MEASURE_S:.0f} s") from None
    return _speed(write, read, company)


def _speed(write: _JobTiming, read: _JobTiming, company: Sequence[_JobTiming] | None) -> Speed:
    return Speed(
        ttft_s=round(min(write.first_s, 3600.0), 4),
        prefill_tps=rate(read.prompt_tokens, read.first_s),
        decode_tps=rate(1, write.step_s),
        step_per_job_s=round(min(step_per_job_s(write, company), 3600.0), 6) if company else None,
        batch=len(company) if company else None,
        batch_decode_tps=_batch_decode_tps(company) if company else None,
        batch_ttft_s=round(min(max(run.first_s for run in company), 3600.0), 4) if company else None,
    )


def _batch_decode_tps(company: Sequence[_JobTiming]) -> float:
    """Tokens of all, over the time from the first one's first token to the last one's last."""
    began_s = min(run.began_s + run.first_s for run in company)
    ended_s = max(run.began_s + run.last_s for run in company)
    return rate(sum(run.completion_tokens for run in company), ended_s - began_s)


NOISE_FACTOR = 1.05
"""Runs of the same server differ by a few per cent; what differs by less is the same figure."""


def faster_of(before: Speed, now: Speed) -> Speed:
    """The better of each figure, where it is clearly better; else the earlier.

    One run may read well and write badly, since whatever else the machine did meanwhile fell on one of its jobs. What
    several at once showed belongs together and comes from one run.
    """
    company = now if _has_better_batch(before, now) else before
    return Speed(
        prefill_tps=_higher(before.prefill_tps, now.prefill_tps),
        decode_tps=_higher(before.decode_tps, now.decode_tps),
        ttft_s=now.ttft_s if now.ttft_s * NOISE_FACTOR < before.ttft_s else before.ttft_s,
        step_per_job_s=company.step_per_job_s,
        batch=company.batch,
        batch_decode_tps=company.batch_decode_tps,
        batch_ttft_s=company.batch_ttft_s,
    )


def _higher(before: float, now: float) -> float:
    return now if now > NOISE_FACTOR * before else before


def _has_better_batch(before: Speed, now: Speed) -> bool:
    """Another number at once is no better or worse: the server works on that many now."""
    if now.batch_decode_tps is None or before.batch_decode_tps is None:
        return before.batch_decode_tps is None
    return now.batch != before.batch or now.batch_decode_tps > NOISE_FACTOR * before.batch_decode_tps


def step_per_job_s(alone: _JobTiming, company: Sequence[_JobTiming]) -> float:
    """What each further answer adds to a step. Where somebody had to wait for a place, it adds a whole step."""
    in_order = sorted(company, key=lambda run: run.began_s + run.first_s)
    first_ended_s = min(run.began_s + run.last_s for run in company)
    if in_order[-1].began_s + in_order[-1].first_s >= first_ended_s:
        return alone.step_s
    mean_step_s = sum(run.step_s for run in company) / len(company)
    return max(0.0, (mean_step_s - alone.step_s) / (len(company) - 1))


async def _run_batch(
    backend: Backend, bodies: Sequence[bytes], limit_tps: float | None, clock: Clock
) -> list[_JobTiming] | None:
    """All at once; nothing if the server will not have that."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_run_job(backend, body, limit_tps, clock)) for body in bodies]
    except* BackendError as errors:
        _log.info("company_not_measured", why=str(errors.exceptions[0]))
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


async def _run_job(backend: Backend, body: bytes, limit_tps: float | None, clock: Clock) -> _JobTiming:
    began_s = clock.now_s()
    run = _JobTiming(began_s=began_s)
    async with backend.post("/v1/chat/completions", body) as reply:
        if reply.status != 200:
            raise BadBackendReply(f"a measuring job was answered with {reply.status}")
        async for line in _lines(throttled(reply.chunks, limit_tps=limit_tps, clock=clock)):
            _note(run, line, clock.now_s() - began_s)
    if not run.events or not run.prompt_tokens:
        raise BadBackendReply("the model server streams no tokens or does not count them")
    return run


def _note(run: _JobTiming, line: bytes, at_s: float) -> None:
    data = line.removeprefix(b"data:").strip()
    if not line.startswith(b"data:") or data == b"[DONE]":
        return
    chunk = read_chunk(data)
    if chunk is None or chunk.is_error():
        raise BadBackendReply("the model server streams something that is no chunk")
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
            raise BadBackendReply("the model server streams an event without end")
        for line in lines:
            yield line
