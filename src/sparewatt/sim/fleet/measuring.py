"""How the agent of a simulated machine measures its models: the samples that its server would give, with noise.

The curve is fitted to them by the node's own code, so it has the same gaps as a real one: a straight line through a few
lengths where the truth bends, and a few per cent of noise.
"""

from __future__ import annotations

import random

import msgspec

from sparewatt.node.measurement.model_speed import context_samples
from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import Speed
from sparewatt.sim.fleet.physics import shared_pace
from sparewatt.sim.scenario import SimModel, Site

PROMPTS = (200, 2000, 8000)
BATCHES = (1, 4, 16)
SHORT_CONTEXT, LONG_CONTEXT = 200.0, 8000.0
BESIDE = 4
"""Answers that are written while a prompt is timed."""
NOISE = 0.03


def measured_speed(site: Site, model: SimModel) -> Speed:
    """What the node publishes; a liar multiplies it."""
    rng = random.Random(f"measured {site.number} {site.gpu.name} {site.server} {site.speed} {model.number}")
    return _times(fit_speed(_samples(site, model, rng)), site.claims)


def _samples(site: Site, model: SimModel, rng: random.Random) -> SpeedSamples:
    prefill = site.prefill(model)
    lengths = [tokens for tokens in PROMPTS if tokens == PROMPTS[0] or prefill.seconds(tokens) < 10.0]
    batches = sorted({min(batch, site.slots) for batch in BATCHES})
    timed = [(tokens, _noisy(prefill.seconds(tokens), rng)) for tokens in lengths]
    decode = [(batch, SHORT_CONTEXT, _noisy(_step_s(site, model, batch, SHORT_CONTEXT), rng)) for batch in batches]
    if lengths[-1] == PROMPTS[-1]:
        step_s = _noisy(_step_s(site, model, 1, LONG_CONTEXT), rng)
        decode += context_samples(LONG_CONTEXT, step_s, alone_s=decode[0][2])
    return SpeedSamples(
        prefill=tuple(timed),
        decode=tuple(decode),
        shared=_shared(site, model, rng),
        writers=min(BESIDE, max(1, site.slots - 1)),
    )


def _shared(site: Site, model: SimModel, rng: random.Random) -> tuple[float, float, float] | None:
    """A prompt beside some answers: how long it took, and how many steps they made meanwhile."""
    if site.slots == 1:
        return None
    tokens, prefill = PROMPTS[1], site.prefill(model)
    alone_s, writers = prefill.seconds(tokens), min(BESIDE, site.slots - 1)
    step_s = _step_s(site, model, writers, SHORT_CONTEXT)
    base_s = (site.alone_step_s(model) - site.family.step_per_job_s) * site.family.hidden_share
    pace = shared_pace(alone_s * min(1.0, site.family.chunk_tokens / tokens), step_s, base_s)
    took_s = _noisy(alone_s / pace.prefill, rng)
    return float(tokens), took_s, took_s * pace.decode / step_s


def _step_s(site: Site, model: SimModel, batch: int, context: float) -> float:
    contexts_s = batch * context * model.kv_bytes_per_token / site.bandwidth
    return site.alone_step_s(model) + (batch - 1) * site.family.step_per_job_s + contexts_s


def _noisy(seconds: float, rng: random.Random) -> float:
    return seconds * rng.lognormvariate(0.0, NOISE)


def _times(speed: Speed, claims: float) -> Speed:
    if claims == 1.0:
        return speed
    faster = {name: getattr(speed, name) * claims for name in ("prefill_tps", "decode_tps")}
    shorter = {
        name: value / claims
        for name in ("ttft_s", "step_per_job_s", "prefill_square_s", "step_per_token_s")
        if (value := getattr(speed, name)) is not None
    }
    return msgspec.structs.replace(speed, **faster, **shorter)
