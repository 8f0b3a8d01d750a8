"""Measures how fast a model is on this machine, with short jobs that look like real ones.

`quick` is enough to serve: one answer alone, one prompt, one batch. `refine` adds what makes a curve of it: longer
prompts, a smaller batch, and a prompt that is read beside answers. Lengths are the server's own counts. When to measure
is decided in `measurement_schedule`, what the samples mean in `speed_fit`; nothing here knows how busy the machine is.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.backends.backend import Backend, BackendError, BadBackendReply
from sparewatt.node.measurement.job_timing import JobTimer, JobTiming, batch_step_s
from sparewatt.node.measurement.speed_fit import SpeedSamples

_log = Logger("sparewatt.node")
LENGTHS = (200, 2000, 8000)
"""Prompt tokens, about."""
LENGTH_FACTOR_MIN = 2.0
"""Two prompts that differ by less tell noise from length badly."""
SECOND_LENGTH_S = 5.0
THIRD_LENGTH_S = 10.0
"""The second length is cut to what takes about so long; a third that would take longer is left out. The owner's machine
is not ours."""
CONTEXT_SHARE_MAX = 0.9
TEMPLATE_TOKENS = 64
"""What a chat template and the answer may add to a prompt."""
TOKENS_PER_WORD = 1.3
"""Until a server has counted some."""
LENGTH_MISSED_FACTOR = 1.5
"""A prompt of another length than was meant, since words have other lengths here, only teaches those."""
WRITE_TOKENS = 24
LONG_WRITE_TOKENS = 16
WRITE_S = 0.5
"""About so long does a timed answer take, within these bounds."""
WRITE_TOKENS_MIN, WRITE_TOKENS_MAX = 12, 64
REPEAT_S = 0.7
"""A sample that took less is taken twice, and the better counts: the other one was disturbed, or a kernel compiled."""
BATCH_MIN, BATCH_MAX = 2, 16
"""Two show what a second job costs; more than sixteen would keep an owner's machine busy for long."""
BATCH_STEPS = 24
"""Timed with all of a batch writing."""
BATCH_LEAD_FACTOR, BATCH_LEAD_MAX = 1.5, 256
"""What the first of a batch may write while the prompts of the others are read: their time, and a bound."""
SMALL_BATCH = 4
WRITERS_MAX = 4
WRITERS_TOKENS_MAX = 512
WRITER_EVENTS = 3
"""A writer is at full speed after so many."""
BOTH_SHARE_MIN = 0.3
"""Of a prompt: if less was read beside writers, nothing is said about how they share."""
CONTEXT_COSTS_FACTOR = 1.1
"""A step that a long context makes longer by less shows no cost of context, only noise that it would multiply."""
CONTEXT_SHOWS_TOKENS = 4000
"""From this length on, a context that shows no cost is a finding, too: it costs next to nothing."""
MEASURE_S = 120.0
STAGE_S = 60.0
_WORDS = (
    *("river", "stone", "lamp", "paper", "seven", "green", "walk", "quiet"),
    *("table", "under", "bread", "cloud", "winter", "music", "garden", "silver"),
)
_WRITES = frozenset({"chat", "completions"})
Progress = Callable[[str], None]
Keep = Callable[[SpeedSamples], Awaitable[None]]
"""Raises if the sample that was just added must not count."""


def is_embedding_only(capabilities: Collection[str] | None) -> bool:
    return capabilities is not None and "embeddings" in capabilities and _WRITES.isdisjoint(capabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedMeter:
    """Measures the models of one backend. Its methods raise BackendError if the server cannot do the jobs."""

    backend: Backend
    clock: Clock
    rng: Rng
    limit_tps: float | None = None
    _tokens_per_word: dict[str, float] = field(default_factory=dict)

    @property
    def _timer(self) -> JobTimer:
        return JobTimer(self.backend, self.clock, self.limit_tps)

    async def quick(self, model: str, *, at_once: int, progress: Progress = lambda _: None) -> SpeedSamples:
        """What a model needs before it can serve."""
        size = batch_size(at_once)
        try:
            async with asyncio.timeout(MEASURE_S):
                progress("writes alone (1 of 3)")
                alone = await self._write(model)
                progress("reads (2 of 3)")
                read = await self._read(model, LENGTHS[0], max_tokens=1)
                progress(f"writes {size} at once (3 of 3)")
                single = (1, alone.mean_context, alone.step_s)
                batch = await self._write_at_once(model, size, single, lead_s=alone.ttft_s)
        except TimeoutError:
            raise _too_slow(model, MEASURE_S) from None
        return SpeedSamples(
            prefill=((read.prompt_tokens, read.ttft_s),),
            decode=(single, *([batch] if batch else [])),
        )

    async def refine(
        self,
        model: str,
        run: SpeedSamples,
        *,
        at_once: int,
        context_length: int | None,
        keep: Keep,
        progress: Progress = lambda _: None,
    ) -> None:
        """Give `keep` the run with one more sample each time, until it is complete. What it has is not repeated."""
        try:
            run = await self._longer_prompts(model, run, context_length, keep, progress)
            if batch_size(at_once) > SMALL_BATCH and all(jobs != SMALL_BATCH for jobs, _, _ in run.decode):
                progress(f"writes {SMALL_BATCH} at once")
                async with asyncio.timeout(STAGE_S):
                    batch = await self._write_at_once(model, SMALL_BATCH, run.decode[0], lead_s=run.prefill[0][1])
                if batch is not None:
                    run = msgspec.structs.replace(run, decode=(*run.decode, batch))
                    await keep(run)
            if at_once >= BATCH_MIN and run.shared is None:
                progress("reads while it writes")
                async with asyncio.timeout(STAGE_S):
                    run = await self._read_beside_writers(model, run, min(WRITERS_MAX, at_once - 1))
                await keep(run)
        except TimeoutError:
            raise _too_slow(model, STAGE_S) from None

    async def embedding(self, model: str, *, context_length: int | None) -> SpeedSamples:
        """It never writes: only prompts are timed."""
        samples = list[tuple[float, float]]()
        try:
            async with asyncio.timeout(MEASURE_S):
                for length in LENGTHS[:2]:
                    tokens = length if not samples else next_length(samples, length, context_length)
                    if tokens is not None and (sample := await self._embed(model, tokens, is_first=not samples)):
                        samples.append(sample)
        except TimeoutError:
            raise _too_slow(model, MEASURE_S) from None
        return SpeedSamples(prefill=tuple(samples), decode=())

    async def _embed(self, model: str, tokens: int, *, is_first: bool) -> tuple[float, float] | None:
        """None if a longer text is refused: its context may be short, and not every server says how short."""
        text = self._words(model, tokens)
        try:
            counted, seconds = await self._timer.embed(model, text)
        except BadBackendReply:
            if is_first:
                raise
            return None
        self._tokens_per_word[model] = counted / len(text.split())
        if seconds < REPEAT_S:
            again, again_s = await self._timer.embed(model, self._words(model, tokens))
            counted, seconds = min((counted, seconds), (again, again_s), key=lambda sample: sample[1] / sample[0])
        return counted, seconds

    async def _write(self, model: str) -> JobTiming:
        first = await self._timer.run(model, self._short_prompt(), WRITE_TOKENS)
        if first.took_s >= REPEAT_S:
            return first
        again = await self._timer.run(model, self._short_prompt(), _write_tokens(first.step_s))
        return min(first, again, key=lambda job: job.step_s)

    async def _read(self, model: str, tokens: int, *, max_tokens: int) -> JobTiming:
        prompt = self._words(model, tokens)
        first = await self._timer.run(model, prompt, max_tokens)
        self._tokens_per_word[model] = first.prompt_tokens / len(prompt.split())
        if first.took_s >= REPEAT_S:
            return first
        again = await self._timer.run(model, self._words(model, tokens), max_tokens)
        if not 1 / LENGTH_MISSED_FACTOR < first.prompt_tokens / tokens < LENGTH_MISSED_FACTOR:
            return again
        return min(first, again, key=lambda job: job.ttft_s / job.prompt_tokens)

    async def _longer_prompts(
        self, model: str, run: SpeedSamples, context_length: int | None, keep: Keep, progress: Progress
    ) -> SpeedSamples:
        for length in LENGTHS[len(run.prefill) :]:
            tokens = next_length(run.prefill, length, context_length)
            if tokens is None:
                break
            progress(f"reads {tokens:,} tokens")
            try:
                async with asyncio.timeout(STAGE_S):
                    read = await self._read(model, tokens, max_tokens=LONG_WRITE_TOKENS)
            except BadBackendReply as error:  # not every server says how long its context is
                _log.info("longer_prompt_refused", tokens=tokens, why=str(error))
                break
            run = _with_read(run, read)
            await keep(run)
        return run

    async def _write_at_once(
        self, model: str, size: int, single: tuple[int, float, float], *, lead_s: float
    ) -> tuple[int, float, float] | None:
        """As `single` is for one answer, with a short prompt that takes at most `lead_s`; None if refused.

        Their prompts are read one after the other, so the first may have written much when the last begins: all may
        write for longer, and are stopped as soon as all have written together for a while.
        """
        _, context, step_s = single
        steps = min(BATCH_STEPS, _write_tokens(step_s))
        limit = round(steps + min(BATCH_LEAD_MAX, BATCH_LEAD_FACTOR * size * lead_s / step_s))
        timings, are_done = [JobTiming() for _ in range(size)], asyncio.Event()

        def note() -> None:
            if all(timing.events_s for timing in timings):
                from_s = max(timing.events_s[0] for timing in timings)
                if min(timing.events_since(from_s) for timing in timings) >= steps:
                    are_done.set()

        try:
            async with self._writing(model, self._short_prompt, limit, timings, note) as jobs:
                await _wait_for(are_done, jobs)
        except BackendError as error:
            _log.info("batch_not_measured", why=str(error))
            return None
        return size, context, batch_step_s(timings)

    async def _read_beside_writers(self, model: str, run: SpeedSamples, writers: int) -> SpeedSamples:
        """Unchanged if the server refuses so many, or the answers ended too soon after the prompt came."""
        tokens, alone_s = max(
            (sample for sample in run.prefill if sample[1] <= SECOND_LENGTH_S), default=run.prefill[0]
        )
        steps_max = alone_s / max(_alone_s(run), 1e-4)
        limit = round(min(WRITERS_TOKENS_MAX, max(2.0 * steps_max + 8 * WRITER_EVENTS, WRITE_TOKENS_MAX)))
        timings, are_writing = [JobTiming() for _ in range(writers)], asyncio.Event()

        def note() -> None:
            if min(len(timing.events_s) for timing in timings) >= WRITER_EVENTS:
                are_writing.set()

        try:
            async with self._writing(model, self._long_task, limit, timings, note) as jobs:
                await _wait_for(are_writing, jobs)
                read = await self._timer.run(model, self._words(model, round(tokens)), 1)
                ends_s = [timing.events_s[-1] for job, timing in zip(jobs, timings, strict=True) if job.done()]
        except BadBackendReply as error:  # it may refuse so many
            _log.info("sharing_not_measured", why=str(error))
            return run
        shared = shared_sample(read, timings, until_s=min(ends_s, default=math.inf), alone_s=alone_s / tokens)
        return run if shared is None else msgspec.structs.replace(run, shared=shared, writers=writers)

    @asynccontextmanager
    async def _writing(
        self,
        model: str,
        prompt: Callable[[], str],
        max_tokens: int,
        timings: Sequence[JobTiming],
        on_event: Callable[[], None],
    ) -> AsyncIterator[list[asyncio.Task[JobTiming]]]:
        """Jobs that are stopped on leaving."""
        run = self._timer.run
        jobs = [
            asyncio.create_task(run(model, prompt(), max_tokens, timing=timing, on_event=on_event))
            for timing in timings
        ]
        try:
            yield jobs
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    def _short_prompt(self) -> str:
        return f"{self._salt()} Count from one to fifty."

    def _long_task(self) -> str:
        return f"{self._salt()} Count from one to one thousand in words, and do not stop before."

    def _words(self, model: str, tokens: int) -> str:
        count = max(1, round(tokens / self._tokens_per_word.get(model, TOKENS_PER_WORD)))
        words = " ".join(_WORDS[byte % len(_WORDS)] for byte in self.rng.randbytes(count))
        return f"{self._salt()} {words}"

    def _salt(self) -> str:
        """New each time and at the front, so that no prefix cache shortens the work."""
        return self.rng.randbytes(6).hex()


async def _wait_for(event: asyncio.Event, jobs: Sequence[asyncio.Task[JobTiming]]) -> None:
    """Until it is set or all jobs have ended. Raises BackendError if one of them fails before."""
    waiting = asyncio.ensure_future(event.wait())
    running: set[asyncio.Future[Any]] = {waiting, *jobs}
    try:
        while not waiting.done() and len(running) > 1:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
    finally:
        waiting.cancel()


def batch_size(at_once: int) -> int:
    return max(BATCH_MIN, min(BATCH_MAX, at_once))


def next_length(samples: Collection[tuple[float, float]], length: int, context_length: int | None) -> int | None:
    """How long the next prompt should be; None if there is no room or no time for one that is clearly longer."""
    longest, took_s = max(samples)
    if context_length is not None:
        length = min(length, round(CONTEXT_SHARE_MAX * context_length) - TEMPLATE_TOKENS)
    s_per_token = max(took_s, 1e-4) / longest
    if len(samples) == 1:
        length = min(length, round(SECOND_LENGTH_S / s_per_token))
    elif length * s_per_token > THIRD_LENGTH_S:
        return None
    return length if length >= LENGTH_FACTOR_MIN * longest else None


def shared_sample(
    read: JobTiming, writers: Sequence[JobTiming], *, until_s: float, alone_s: float
) -> tuple[float, float, float] | None:
    """The prompt's tokens, its time beside writers, and their steps in that time; None if they ended too soon.

    `until_s`: when the first of the writers ended. What was read after that, at `alone_s` per token, does not count,
    and the rest is scaled to the whole prompt.
    """
    both_s = min(until_s, read.events_s[0]) - read.began_s
    read_s = alone_s * read.prompt_tokens
    meanwhile_s = read_s - (read.ttft_s - both_s)
    if both_s < BOTH_SHARE_MIN * read.ttft_s or meanwhile_s < BOTH_SHARE_MIN * read_s:
        return None
    scale = read_s / meanwhile_s if both_s < read.ttft_s else 1.0
    steps = sum(each.tokens_between(read.began_s, read.began_s + both_s) for each in writers) / len(writers)
    return read.prompt_tokens, both_s * scale, steps * scale


def _with_read(run: SpeedSamples, read: JobTiming) -> SpeedSamples:
    decode = run.decode
    if read.completion_tokens >= LONG_WRITE_TOKENS / 2:
        decode += context_samples(read.mean_context, read.step_s, alone_s=_alone_s(run))
    return msgspec.structs.replace(run, prefill=(*run.prefill, (read.prompt_tokens, read.ttft_s)), decode=decode)


def context_samples(context: float, step_s: float, *, alone_s: float) -> tuple[tuple[int, float, float], ...]:
    """What a step with a long context says about the cost of context; `alone_s` is one with a short context.

    A cost that does not rise above noise is none, and that is said: left out, others would guess it from the weights.
    """
    if step_s > CONTEXT_COSTS_FACTOR * alone_s:
        return ((1, context, step_s),)
    return ((1, context, alone_s),) if context >= CONTEXT_SHOWS_TOKENS else ()


def _alone_s(run: SpeedSamples) -> float:
    return run.decode[0][2]


def _write_tokens(step_s: float) -> int:
    return max(WRITE_TOKENS_MIN, min(WRITE_TOKENS_MAX, round(WRITE_S / step_s)))


def _too_slow(model: str, limit_s: float) -> BadBackendReply:
    return BadBackendReply(f"measuring {model} took longer than {limit_s:.0f} s")
