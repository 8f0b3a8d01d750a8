"""What a node reports: its specs (seldom) and its load (with every heartbeat and every reply).

Claimed and measured values are separate fields, all the way to the screen. Ranges are checked when decoding, so an
absurd value never reaches the matcher. The types of text and numbers here serve all messages of the link.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX, NAME_CHARS_MAX
from sparewatt.protocol.link.lease_offer import LeaseOffer

MODEL_ID_CHARS_MAX = 256
"""Some servers name a model by the path of its file."""

ModelState = Literal["warm", "loading", "on_disk"]

Capability = Literal[
    "chat",
    "completions",
    "embeddings",
    "responses",
    "tools",
    "tools_generic",
    "json_schema",
    "logprobs",
    "vision",
    "continue_prefill",
    "continue_raw",
]
"""What a model on its server can do. `tools_generic`, beside `tools`: its chat template knows none, so that calls are
made by a schema that any model can follow and that it was not trained for. The last two are ways to continue an answer
that another node began: from an assistant message that the server extends, or from a raw prompt made with the server's
own chat template."""

Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]
Rate = Annotated[float, Meta(ge=1e-3, le=1e7)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]
COUNT_MAX = 100_000
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
PRICE_NANO_MAX = 10**15
PriceNano = Annotated[int, Meta(ge=0, le=PRICE_NANO_MAX)]
TFLOPS_MAX = 1e6
Tflops = Annotated[float, Meta(ge=0, le=TFLOPS_MAX)]
Bandwidth = Annotated[float, Meta(gt=0, le=1e15)]
"""Bytes per second."""
Watts = Annotated[float, Meta(ge=0, le=1e5)]
Celsius = Annotated[float, Meta(ge=-100, le=300)]
Share = Annotated[float, Meta(ge=0, le=1)]
Pace = Annotated[float, Meta(ge=0.01, le=1)]
Total = Annotated[float, Meta(ge=0, le=1e18)]
GPUS_MAX = 64
ShortText = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
ModelName = Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX, pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
FETCH_HOSTS_MAX = 64
HostName = Annotated[str, Meta(max_length=260, pattern=r"^[a-z0-9.-]+(:[0-9]{1,5})?\Z")]
Address = Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
Hex32 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Signature = Annotated[str, Meta(pattern=r"^[0-9a-f]{130}\Z")]

LOAD_S_MIN, LOAD_S_MAX, LOAD_FIXED_S, LOAD_BYTES_S = 10.0, 30.0, 8.0, 1.5e9
LOAD_LEFT_MIN = 0.25
"""Of a load that takes longer than expected, the share of that time that is expected to be left."""


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """How fast a model is on a node: a curve for prompts, one for decoding steps, and how each slows the other.

    A prompt of T tokens, alone: `ttft_s + T / prefill_tps + T² * prefill_square_s`. A decoding step with n jobs:
    `1 / decode_tps + (n - 1) * step_per_job_s`, and `step_per_token_s` for each token in the contexts of all of them.
    """

    prefill_tps: Rate
    """By the difference between two lengths: what every prompt costs does not count."""
    decode_tps: Rate
    """One answer alone, after a short prompt."""
    ttft_s: Seconds = 0.0
    """What every prompt costs before its length counts."""
    step_per_job_s: Seconds | None = None
    """What each further running job adds to the time of one decoding step, where that was measured."""
    batch: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """How many answers were written at once when the next was measured."""
    batch_decode_tps: Rate | None = None
    """Tokens per second of all of them together."""
    prefill_square_s: Annotated[float, Meta(ge=0, le=1e-3)] = 0.0
    """What attention adds for each token of a prompt and each token before it."""
    step_per_token_s: Annotated[float, Meta(ge=0, le=1)] | None = None
    """What one token of context adds to a decoding step; None where only the memory's figures can tell."""
    prefill_pace: Pace | None = None
    """How fast a prompt is read beside answers, as a share of its speed alone; None if not measured."""
    decode_pace: Pace | None = None
    """How fast answers go on while a prompt is read, as a share of their speed otherwise; None if not measured."""

    def prefill_s(self, tokens: float) -> float:
        """Seconds to the first token of a prompt on an idle node."""
        return self.ttft_s + tokens / self.prefill_tps + tokens * tokens * self.prefill_square_s

    def step_s(self, jobs: float, context_tokens: float = 0.0) -> float:
        """Seconds of one decoding step with `jobs` answers, whose contexts have `context_tokens` in all."""
        per_job_s, per_token_s = self.step_per_job_s or 0.0, self.step_per_token_s or 0.0
        return 1 / self.decode_tps + (jobs - 1) * per_job_s + context_tokens * per_token_s


class PriceBasis(msgspec.Struct, frozen=True, omit_defaults=True):
    """The speeds at the reference load by which a price per hour became prices per token (`reference_load`)."""

    prompt_tps: Rate
    completion_tps: Rate
    """Of all answers together."""
    jobs: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many answers at once."""
    source: Literal["measured", "expected"] = "measured"
    """`expected`: what such hardware usually does, as long as the machine was never idle enough to measure."""


class GpuSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU: its driver's description, and measurements."""

    model: ShortText
    vram_bytes: Bytes
    vendor: ShortText = "unknown"
    driver: ShortText | None = None
    copy_bytes_s: Bandwidth | None = None
    """Measured: bytes read and written per second by a copy within its memory."""
    fp16_tflops: Tflops | None = None
    """Measured: a dense matrix product at 16 bits."""


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one GPU. A value that its driver does not report is None."""

    vram_free_bytes: Bytes | None = None
    power_watts: Watts | None = None
    temperature_c: Celsius | None = None
    utilisation: Share | None = None


class Sensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the machine measured of itself since the previous report. Sent with heartbeats only."""

    power_watts: Watts | None = None
    """Mean power of its GPUs, and of its processor where that can be read."""
    working_watts: Watts | None = None
    """The same, over the time in which it had jobs of the network."""
    working_s: Seconds = 0.0
    """How long that time was."""
    gpus: Annotated[tuple[GpuReading, ...], Meta(max_length=GPUS_MAX)] = ()
    """In the order of the specs."""


class ServerMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model server's own counters, over all its clients: for operators, not for matching. Sent with heartbeats.

    Totals are since the server started; None where the server does not report them.
    """

    running: Count = 0
    waiting: Count = 0
    prompt_tokens: Total | None = None
    generation_tokens: Total | None = None
    first_token_s: Total | None = None
    first_tokens: Total | None = None
    """How many first tokens `first_token_s` is the sum over."""
    request_s: Total | None = None
    requests: Total | None = None
    """How many requests `request_s` is the sum over."""


class ModelReport(msgspec.Struct, frozen=True):
    """One model on one node."""

    id: ModelName
    state: ModelState
    weights_bytes: Bytes
    kv_bytes_per_token: Annotated[int, Meta(ge=0, le=1 << 30)]
    prompt_price_nano: PriceNano
    completion_price_nano: PriceNano
    context_length: Annotated[int, Meta(ge=1, le=1 << 26)] | None = None
    quantization: ShortText | None = None
    claimed: Speed | None = None
    measured: Speed | None = None
    prefix_cache_tokens: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    """Size of the server's prefix cache in tokens; 0 if it has none, or does not report it."""
    capabilities: Annotated[tuple[Capability, ...], Meta(max_length=32)] | None = None
    """None if the node does not report them: then it is assumed to do what every chat server does, and no more."""
    weights_digest: ShortText | None = None
    """Of the file of weights, where the server reports it: `sha256:…`."""
    price_basis: PriceBasis | None = None
    """None if the owner set the prices, or the node is of a version that divides by the speeds alone."""
    served_as: ModelName | None = None
    """The model server's own id, where a gateway has put the network's name of the model into `id`."""

    @property
    def load_s(self) -> float:
        """Estimated seconds that loading takes, the same at node and gateway: 8 s plus 1.5 GB/s, within 10-30 s."""
        if self.state == "warm":
            return 0.0
        return min(LOAD_S_MAX, max(LOAD_S_MIN, LOAD_FIXED_S + self.weights_bytes / LOAD_BYTES_S))

    def load_left_s(self, elapsed_s: float) -> float:
        """Estimated seconds until it is loaded, if loading began so long ago."""
        return max(LOAD_LEFT_MIN * self.load_s, self.load_s - max(0.0, elapsed_s))


class NodeSpecs(msgspec.Struct, frozen=True):
    """What changes seldom: hardware, region, prices, models."""

    name: ShortText
    region: ShortText
    gpu: ShortText
    gpu_count: Annotated[int, Meta(ge=0, le=1024)]
    vram_bytes: Bytes
    tflops: Tflops
    hourly_price_nano: PriceNano
    slots: Annotated[int, Meta(ge=1, le=4096)]
    backend: ShortText
    agent_version: ShortText
    models: Annotated[tuple[ModelReport, ...], Meta(max_length=MODELS_PER_NODE_MAX)] = ()
    tflops_measured: Tflops | None = None
    bandwidth_bytes_s: Bandwidth | None = None
    """Memory bandwidth of decoding, where it is known."""
    gpus: Annotated[tuple[GpuSpec, ...], Meta(max_length=GPUS_MAX)] = ()
    """One by one, where the driver reports them; `gpu`, `gpu_count` and `vram_bytes` describe all together."""
    fetch_hosts: Annotated[tuple[HostName, ...], Meta(max_length=FETCH_HOSTS_MAX)] = ()
    """Hosts from which the owner lets this node fetch pictures. The agent fetches them; the model server gets data."""
    leases: bool = False
    """Whether the owner offers the machine for leases. Such a node knows PROVIDER."""
    lease_offer: LeaseOffer | None = None
    """What it offers. A node that says so knows MARKET, LOOKUP and OUTCOME; an older one omits it."""


class NodeLoad(msgspec.Struct, frozen=True):
    """What changes by the second. `foreign`: jobs that this gateway did not send, but the owner or another gateway."""

    running: Count = 0
    queued: Count = 0
    foreign: Count = 0
    draining: bool = False
    foreign_backlog_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Prefill time of foreign jobs that is still to come."""
    foreign_kv_bytes: Bytes = 0
    foreign_active_bytes: Bytes = 0
    """Weights in use by foreign jobs only, of models that are not in `foreign_models`."""
    foreign_models: Annotated[tuple[ModelName, ...], Meta(max_length=MODELS_PER_NODE_MAX)] = ()
    """Models that foreign jobs use: a further job of such a model needs no weights of its own."""
    kv_capacity_bytes: Bytes | None = None
    prefill_share: Share = 0.0
    """Share of the last seconds spent in prefill."""
    kv_used: Share | None = None
    """Share of the KV cache in use, where the server reports it."""
    paused: ShortText | None = None
    """Why the owner's rules pause the node; None if they do not. It is also `draining` then, for older gateways."""
    sensors: Sensors | None = None
    """None: unchanged since the last report."""
    server: ServerMetrics | None = None
    """None: unchanged since the last report."""

    def is_news_after(self, before: NodeLoad) -> bool:
        """Whether a gateway that has `before` needs this before the next heartbeat. It counts its own jobs itself."""
        return bool(_urgent_fields(self) != _urgent_fields(before))


_urgent_fields = attrgetter("draining", "paused", "foreign", "foreign_models")
_S = TypeVar("_S", bound=msgspec.Struct)


def validated(report: _S) -> _S:
    """The same report, after the checks that the receiver will make. Raises msgspec.ValidationError."""
    return msgspec.convert(msgspec.to_builtins(report), type(report))
