"""What a node finds out about a model server, beside direct timings of the same server.

    python -m bench.measured_speed http://127.0.0.1:8000 [--model NAME]

A prompt of about 2,048 tokens, and one and sixteen answers at once (as many as the server takes): the medians of five
runs that know nothing of the node's curve. Ends with status 1 if a prediction is off by more than 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
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
ERROR_MAX = 0.15


class Comparison(NamedTuple):
    what: str
    found_s: float
    direct_s: float

    @property
    def error(self) -> float:
        return self.found_s / self.direct_s - 1


async def measured(meter: SpeedMeter, model: str, *, slots: int, context_length: int | None) -> tuple[Speed, float]:
    """As a node would on an idle machine, and the seconds that it took."""
    began_s = time.monotonic()
    run = await meter.quick(model, at_once=slots)

    async def keep(samples: SpeedSamples) -> None:
        nonlocal run
        run = samples

    await meter.refine(model, run, at_once=slots, context_length=context_length, keep=keep)
    return fit_speed(run), time.monotonic() - began_s


async def compare(timer: JobTimer, model: str, speed: Speed, *, slots: int) -> list[Comparison]:
    rng = SystemRng()

    def words(count: int) -> str:
        return " ".join(rng.randbytes(3).hex() for _ in range(count))

    probe = await timer.run(model, words(200), 1)
    count = round(200 * PROMPT_TOKENS / probe.prompt_tokens)
    reads = [await timer.run(model, words(count), 1) for _ in range(RUNS)]
    tokens = statistics.median(read.prompt_tokens for read in reads)
    direct_s = statistics.median(read.ttft_s for read in reads)
    rows = [Comparison(f"prompt of {tokens:.0f} tokens", speed.prefill_s(tokens), direct_s)]
    for size in sorted({1, min(16, slots)}):
        steps, contexts = list[float](), list[float]()
        for _ in range(RUNS):
            jobs = [timer.run(model, f"{words(1)} Count from one to fifty.", ANSWER_TOKENS) for _ in range(size)]
            batch = await asyncio.gather(*jobs)
            steps.append(batch_step_s(batch))
            contexts.append(sum(job.mean_context for job in batch))
        found_s = speed.step_s(size, statistics.median(contexts))
        rows.append(Comparison(f"step with {size} at once", found_s, statistics.median(steps)))
    return rows


async def main(url: str, wanted: str | None) -> int:
    clock = SystemClock()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        backend = AutoDetectedBackend(url, session, clock=clock)
        models, slots = await backend.models(), await backend.slots() or 1
        model = next(each for each in models if wanted in (None, each.id))
        meter = SpeedMeter(backend=backend, clock=clock, rng=SystemRng())
        speed, took_s = await measured(meter, model.id, slots=slots, context_length=model.context_length)
        print(f"{backend.kind}, {model.id}, {slots} slots, measured in {took_s:.1f} s: {speed}")
        rows = await compare(JobTimer(backend, clock), model.id, speed, slots=slots)
    for row in rows:
        print(
            f"  {row.what:28} {row.found_s * 1000:9.2f} ms found {row.direct_s * 1000:9.2f} ms direct {row.error:+.1%}"
        )
    return int(any(abs(row.error) > ERROR_MAX for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.url, given.model)))
