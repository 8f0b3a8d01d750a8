"""What a node finds out about a model server, beside direct timings of the same server.

    python -m bench.measured_speed http://127.0.0.1:8000 [--model NAME]

A prompt of about 2,048 tokens, and one and sixteen answers at once (as many as the server takes), after a short prompt
and after one of 2,048 tokens: the medians of five runs that know nothing of the node's curve. Ends with status 1 if a
prediction is off by more than 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.backends.discovery import AutoDetectedBackend
from sparewatt.node.measurement.job_timing import JobTimer, batch_step_s
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import Speed

PROMPT_TOKENS, ANSWER_TOKENS, RUNS = 2048, 128, 5
BATCHES = (1, 16)
ERROR_MAX = 0.15


class DirectTiming(NamedTuple):
    """What was timed: a prompt, or a step of some answers at once."""

    answers: int
    """0: it is a prompt."""
    tokens: float
    """Of the prompt, or of one answer's context."""
    seconds: float

    @property
    def what(self) -> str:
        if not self.answers:
            return f"prompt of {self.tokens:.0f} tokens"
        return f"step with {self.answers} at once, {self.tokens:.0f} tokens each"

    def found_s(self, speed: Speed, *, context_token_s: float = 0.0) -> float:
        """By a node's curve. `context_token_s` is what a token of context costs by the card's memory, which counts
        where the curve does not say."""
        if not self.answers:
            return speed.prefill_s(self.tokens)
        contexts = self.answers * self.tokens
        by_memory_s = contexts * context_token_s if speed.step_per_token_s is None else 0.0
        return speed.step_s(self.answers, contexts) + by_memory_s


class Comparison(NamedTuple):
    what: str
    found_s: float
    direct_s: float

    @property
    def error(self) -> float:
        return self.found_s / self.direct_s - 1


def compare(timings: Sequence[DirectTiming], speed: Speed, *, context_token_s: float = 0.0) -> list[Comparison]:
    return [
        Comparison(each.what, each.found_s(speed, context_token_s=context_token_s), each.seconds) for each in timings
    ]


class Measured(NamedTuple):
    quick: Speed
    """What a node serves with first."""
    full: Speed
    took_s: float


async def measure(meter: SpeedMeter, model: str, *, slots: int, context_length: int | None) -> Measured:
    """As a node would on an idle machine."""
    began_s = time.monotonic()
    run = quick = await meter.quick(model, at_once=slots)

    async def keep(samples: SpeedSamples) -> None:
        nonlocal run
        run = samples

    await meter.refine(model, run, at_once=slots, context_length=context_length, keep=keep)
    return Measured(fit_speed(quick), fit_speed(run), time.monotonic() - began_s)


async def time_directly(timer: JobTimer, model: str, *, slots: int) -> list[DirectTiming]:
    rng = SystemRng()

    def words(count: int) -> str:
        return " ".join(rng.randbytes(3).hex() for _ in range(count))

    probe = await timer.run(model, words(200), 1)
    count = round(200 * PROMPT_TOKENS / probe.prompt_tokens)
    reads = [await timer.run(model, words(count), 1) for _ in range(RUNS)]
    tokens = statistics.median(read.prompt_tokens for read in reads)
    found = [DirectTiming(0, tokens, statistics.median(read.ttft_s for read in reads))]
    for length in (8, count):
        for size in sorted({min(batch, slots) for batch in BATCHES}):
            steps, contexts = list[float](), list[float]()
            for _ in range(RUNS):
                jobs = [timer.run(model, words(length), ANSWER_TOKENS) for _ in range(size)]
                batch = await asyncio.gather(*jobs)
                steps.append(batch_step_s(batch))
                contexts.append(statistics.fmean(job.mean_context for job in batch))
            found.append(DirectTiming(size, statistics.median(contexts), statistics.median(steps)))
    return found


async def main(url: str, wanted: str | None) -> int:
    clock = SystemClock()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        backend = AutoDetectedBackend(url, session, clock=clock)
        models, slots = await backend.models(), await backend.slots() or max(BATCHES)
        model = next(each for each in models if wanted in (None, each.id))
        meter = SpeedMeter(backend=backend, clock=clock, rng=SystemRng())
        found = await measure(meter, model.id, slots=slots, context_length=model.context_length)
        print(f"{backend.kind}, {model.id}, {slots} slots, measured in {found.took_s:.1f} s: {found.full}")
        rows = compare(await time_directly(JobTimer(backend, clock), model.id, slots=slots), found.full)
    for row in rows:
        print(
            f"  {row.what:40} {row.found_s * 1000:9.2f} ms found {row.direct_s * 1000:9.2f} ms direct {row.error:+.1%}"
        )
    return int(any(abs(row.error) > ERROR_MAX for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.url, given.model)))
