"""The page of `bench.gpu`: what a node finds beside direct timings, and the simulator's physics beside them. Pure.

python -m bench.gpu_report FILE.json > docs/measurements/gpu.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from bench.figures import percentile
from bench.measured_speed import ERROR_MAX, Comparison, DirectTiming, compare

from sparewatt.protocol.link.node_report import Speed
from sparewatt.sim.fleet.physics import BATCHING, SQUARE_SHARE, EngineFamily, prefill_of
from sparewatt.sim.scenario import SimGpu, read_fleet

Json = dict[str, Any]
FACTORS = (1.5, 3.0)
GB = 1e9
JUDGED_TOKENS_MAX = 2500
"""Longer contexts are shown only."""
SATURATED_TOKENS = 512
"""Shorter prompts take as long as reading the weights, however short they are."""


def report(found: Json) -> str:
    parts = [
        _head(found),
        _judged(found),
        _curves(found),
        _direct(found),
        _physics(found),
        _predictions(found),
        _status(found),
        _failed(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(found: Json) -> str:
    lines = [
        "# A node on a GPU",
        "",
        f"Made by `make bench-gpu` (bench/gpu_steps.py), Python {found['python']}.",
        "",
        "| what | reading |",
        "| --- | --- |",
    ]
    doctor = found.get("doctor") or {}
    for gpu, reading in zip(doctor.get("gpus") or (), doctor.get("readings") or (), strict=False):
        lines.append(f"| GPU | {gpu['model']}, {gpu['vram_bytes']:,} bytes, driver {gpu['driver']} |")
        lines.append(f"| when idle | {json.dumps(reading)} |")
    measured = doctor.get("measured") or {}
    if measured.get("copy_bytes_s"):
        lines.append(f"| copy within its memory | {measured['copy_bytes_s'] / 1e12:.2f} TB/s (read and written) |")
        lines.append(f"| dense product at 16 bits | {measured['fp16_tflops']:.0f} TFLOP/s |")
    elif measured:
        lines.append(f"| the GPU itself | not measured: {measured.get('why_not')} |")
    if direct := found.get("direct"):
        graphs = "CUDA graphs" if direct["not_captured"] is None else f"no CUDA graphs ({direct['not_captured']})"
        works = f"continuous batching, chunks of 2,048 tokens, {graphs}, attention by {direct['attention']}"
        lines.append(f"| model server | bench/torch_server.py, shown as vLLM: {works} |")
        size = f"{direct['parameters']:,} random parameters, {direct['slots']} slots of {direct['context']:,} tokens"
        lines.append(f"| model | {direct['model']}: {size} |")
    if node := found.get("node"):
        full = f"whole curve after {node['full_s']:.1f} s" if node.get("full") else "no whole curve within the time"
        lines.append(f"| joined and measured | first figures after {node['first_s']:.1f} s, {full} |")
    for number, answer in enumerate(found.get("answers") or (), 1):
        lines.append(
            f"| answer {number}, through the gateway | first token after {answer['first_token_s'] * 1000:.1f} ms, then "
            f"{answer['tokens_per_s']:.1f} tokens/s, {answer['tokens']} tokens, {answer['cost_usd']} USD |"
        )
    if after := found.get("node_after"):
        lines.append(f"| sensors at the gateway after it | {json.dumps(after.get('sensors'))} |")
    return "\n".join(lines)


# what the node finds


def speeds(found: Json) -> dict[str, Speed]:
    """The curves by who found them; the published ones last."""
    meter, node = found.get("meter") or {}, found.get("node") or {}
    whole = {
        "the meter, quick": meter.get("quick"),
        "the meter, full": meter.get("full"),
        "published at first": (node.get("first") or {}).get("measured"),
        "published": (node.get("full") or {}).get("measured"),
    }
    return {who: msgspec.convert(speed, Speed, strict=False) for who, speed in whole.items() if speed}


def direct_timings(found: Json) -> dict[str, list[DirectTiming]]:
    """By a client over HTTP, and by the model itself at the judged points."""
    by_client = [DirectTiming(*each) for each in (found.get("meter") or {}).get("timings") or ()]
    model = found.get("direct") or {}
    prompts = [DirectTiming(0, tokens, seconds) for tokens, seconds in model.get("prefill") or () if tokens == 2048]
    steps = [DirectTiming(*each) for each in model.get("decode") or () if each[0] in (1, 16)]
    return {"HTTP": by_client, "the model itself": [*prompts, *steps]}


def context_token_s(found: Json) -> float:
    """What a token of context costs by the card's memory, which the matcher takes where the curve does not say."""
    status = found.get("status") or {}
    facts, models = (status.get("server") or {}).get("facts") or {}, status.get("models") or [{}]
    bandwidth = (facts.get("bandwidth_bytes_s") or {}).get("value")
    kv_bytes = models[0].get("kv_bytes_per_token")
    return float(kv_bytes / bandwidth) if bandwidth and kv_bytes else 0.0


def verdict(timing: DirectTiming, row: Comparison) -> str:
    if timing.tokens > JUDGED_TOKENS_MAX:
        return "not judged"
    return "met" if abs(row.error) <= ERROR_MAX else "**lost**"


def _judged(found: Json) -> str:
    curves = speeds(found)
    who = next((name for name in ("published", "the meter, full") if name in curves), None)
    if who is None:
        return ""
    rows = []
    for by, timings in direct_timings(found).items():
        compared = compare(timings, curves[who], context_token_s=context_token_s(found))
        rows += [(by, row, verdict(timing, row)) for timing, row in zip(timings, compared, strict=True)]
    if not rows:
        return ""
    cells = [
        (
            row.what,
            by,
            f"{row.direct_s * 1000:.2f}",
            f"{row.found_s * 1000:.2f}",
            f"{row.error:+.1%}",
            met,
        )
        for by, row, met in rows
    ]
    table = _table(("what", "timed by", "direct ms", "node ms", "difference", f"within {ERROR_MAX:.0%}"), cells)
    return f"## What the node finds, beside direct timings\n\nThe curve: {who}.\n\n{table}"


def _curves(found: Json) -> str:
    names = (
        *("prefill_tps", "ttft_s", "prefill_square_s", "decode_tps", "step_per_job_s", "step_per_token_s"),
        *("prefill_pace", "decode_pace"),
    )
    curves = speeds(found)
    if not curves:
        return ""
    rows = [(who, *(_short(getattr(speed, name)) for name in names)) for who, speed in curves.items()]
    took = (found.get("meter") or {}).get("took_s")
    return f"## Curves\n\nThe meter alone took {took} s.\n\n{_table(('found by', *names), rows)}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


# the model itself, and the simulator


def _direct(found: Json) -> str:
    direct = found.get("direct") or {}
    if not direct:
        return ""
    prompts = [(f"{tokens:,}", f"{s * 1000:.2f}", f"{tokens / s:,.0f}") for tokens, s in direct["prefill"]]
    steps = [
        (str(batch), f"{context:,}", f"{s * 1000:.2f}", f"{batch / s:,.0f}") for batch, context, s in direct["decode"]
    ]
    return (
        "## The model itself, without a server around it\n\nMedians of five.\n\n"
        f"{_table(('prompt tokens', 'ms', 'tokens/s'), prompts)}\n\n"
        f"{_table(('batch', 'context of each', 'ms per step', 'tokens/s'), steps)}"
    )


def simulated_gpu(found: Json) -> SimGpu | None:
    """The card in the simulator's table."""
    names = [gpu["model"] for gpu in (found.get("doctor") or {}).get("gpus") or ()]
    return next((gpu for gpu in read_fleet() if any(gpu.name in name.split() for name in names)), None)


def physics_rows(found: Json, gpu: SimGpu, family: EngineFamily = BATCHING) -> list[tuple[str, float, float]]:
    """What, direct seconds and the simulator's."""
    direct = found["direct"]
    weights, kv_bytes = 2.0 * direct["parameters"], _kv_bytes(direct)
    bandwidth = family.bandwidth_share * gpu.bandwidth_gb_s * GB
    alone_s = weights / bandwidth + family.step_fixed_s + family.step_per_job_s
    prefill = prefill_of(family, flops=gpu.tflops * 1e12, params=direct["parameters"], alone_step_s=alone_s)
    rows = [(f"prompt of {tokens:,} tokens", seconds, prefill.seconds(tokens)) for tokens, seconds in direct["prefill"]]
    for batch, context, seconds in direct["decode"]:
        step_s = alone_s + (batch - 1) * family.step_per_job_s + batch * context * kv_bytes / bandwidth
        rows.append((f"step of {batch} with {context:,} tokens each", seconds, step_s))
    return rows


def _kv_bytes(direct: Json) -> float:
    return float(direct["kv_bytes_per_token"])


def fitted_family(found: Json, gpu: SimGpu) -> tuple[EngineFamily, float] | None:
    """The constants of `BATCHING` that fit this run best, by least squares of the relative errors; and the share that
    attention adds per token of a prompt. None if neither memory nor length seems to cost anything."""
    direct = found["direct"]
    weights, kv_bytes = 2.0 * direct["parameters"], _kv_bytes(direct)
    steps = [
        ((weights + batch * context * kv_bytes, 1.0, float(batch)), seconds)
        for batch, context, seconds in direct["decode"]
    ]
    per_byte, fixed_s, per_job_s = _least_squares(steps)
    prompts = [
        ((1.0, tokens, tokens * tokens), seconds) for tokens, seconds in direct["prefill"] if tokens >= SATURATED_TOKENS
    ]
    prefill_fixed_s, token_s, square_s = _least_squares(prompts)
    if not per_byte or not token_s:
        return None
    alone_s = weights * per_byte + fixed_s + per_job_s
    shortest_s = min(seconds for _, seconds in direct["prefill"])
    family = EngineFamily(
        bandwidth_share=1 / (per_byte * gpu.bandwidth_gb_s * GB),
        flops_share=2 * direct["parameters"] / (token_s * gpu.tflops * 1e12),
        step_fixed_s=fixed_s,
        step_per_job_s=per_job_s,
        prefill_fixed_s=prefill_fixed_s,
        prefill_steps_min=shortest_s / alone_s,
        chunk_tokens=BATCHING.chunk_tokens,
    )
    return family, square_s / token_s


def _least_squares(samples: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """A column whose coefficient comes out negative is left out, and counts as zero."""
    rows = np.array([[value / seconds for value in values] for values, seconds in samples])
    scale = np.abs(rows).max(axis=0)
    columns = list(range(rows.shape[1]))
    while columns:
        found, *_ = np.linalg.lstsq(rows[:, columns] / scale[columns], np.ones(len(rows)), rcond=None)
        if min(found) < 0:
            del columns[int(np.argmin(found))]
            continue
        values = dict(zip(columns, found / scale[columns], strict=True))
        return [float(values.get(column, 0.0)) for column in range(rows.shape[1])]
    return [0.0] * rows.shape[1]


def _physics(found: Json) -> str:
    gpu = simulated_gpu(found)
    if gpu is None or not (found.get("direct") or {}).get("decode"):
        return ""
    rows = [
        (what, f"{direct_s * 1000:.2f}", f"{sim_s * 1000:.2f}", f"{sim_s / direct_s - 1:+.1%}")
        for what, direct_s, sim_s in physics_rows(found, gpu)
    ]
    table = _table(("what", "direct ms", "simulated ms", "difference"), rows)
    return f"## The simulator's physics (`BATCHING` on an {gpu.name})\n\n{table}{_constants(fitted_family(found, gpu))}"


def _constants(fitted: tuple[EngineFamily, float] | None) -> str:
    if fitted is None:
        return ""
    family, square_share = fitted
    rows = [(name, f"{getattr(BATCHING, name):.4g}", f"{getattr(family, name):.4g}") for name in _CONSTANTS]
    rows.append(("attention's share per token", f"{SQUARE_SHARE:.3g}", f"{square_share:.3g}"))
    return f"\n\n{_table(('constant', 'simulator', 'fitted to this run'), rows)}"


_CONSTANTS = (
    *("bandwidth_share", "flops_share", "step_fixed_s", "step_per_job_s"),
    *("prefill_fixed_s", "prefill_steps_min"),
)


# predictions


def _predictions(found: Json) -> str:
    rows = []
    for name, requests in found.items():
        if not name.startswith("predictions_") or not requests:
            continue
        pairs = [(each["predicted_s"], each["first_token_s"]) for each in requests if each["predicted_s"]]
        off = [predicted / real for predicted, real in pairs]
        if not off:
            continue
        shares = [f"{sum(1 / factor <= one <= factor for one in off) / len(off):.0%}" for factor in FACTORS]
        spans = " / ".join(f"{percentile(off, share):.2f}" for share in (0.05, 0.5, 0.95))
        first = " / ".join(f"{percentile([real for _, real in pairs], share) * 1000:.0f}" for share in (0.5, 0.95))
        rows.append((name.removeprefix("predictions_"), str(len(off)), *shares, spans, first))
    if not rows:
        return ""
    heads = (
        *("requests at once", "requests", *(f"within {factor}" for factor in FACTORS)),
        *("predicted / real p5 / p50 / p95", "first token p50 / p95 ms"),
    )
    return f"## Predicted and real first token, through the gateway\n\n{_table(heads, rows)}"


def _status(found: Json) -> str:
    text = found.get("status_text")
    return f"## `sparewatt node status`\n\n```text\n{text.rstrip()}\n```" if text else ""


def _failed(found: Json) -> str:
    lines = [f"- {name}: {why.splitlines()[0]}" for name, why in found["failed"].items()]
    return "## Failed\n\n" + "\n".join(lines) if lines else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


if __name__ == "__main__":
    print(report(json.loads(Path(sys.argv[1]).read_text())), end="")
