"""What a node says about itself: its specs (seldom) and its load (on every heartbeat and every reply).

Claimed and measured are separate fields, all the way to the screen. Ranges are checked when decoding, so an absurd
figure never reaches the matcher.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODEL_ID_CHARS_MAX, MODELS_PER_NODE_MAX, NAME_CHARS_MAX

ModelState = Literal["warm", "loading", "on_disk"]

Capability = Literal[
    "chat",
    "completions",
    "embeddings",
    "responses",
    "tools",
    "json_schema",
    "logprobs",
    "vision",
    "continue_prefill",
    "continue_raw",
]
"""What a model on its server can do. The last two are ways to go on with an answer that another node began: from an
assistant message that is taken up as it stands, or from a raw prompt over the server's own template."""

Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]
Rate = Annotated[float, Meta(ge=1e-3, le=1e7)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]
COUNT_MAX = 100_000
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
PRICE_NANO_MAX = 10**15
PriceNano = Annotated[int, Meta(ge=0, le=PRICE_NANO_MAX)]
TFLOPS_MAX = 1e6
Tflops = Annotated[float, Meta(ge=0, le=TFLOPS_MAX)]
ShortText = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
ModelName = Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX, pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]


LOADING_S = 10.0
"""A model that is being loaded right now: half of a typical load is still ahead."""
LOAD_S_MIN, LOAD_S_MAX, LOAD_FIXED_S, LOAD_BYTES_S = 10.0, 30.0, 8.0, 1.5e9


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """How fast one stream of one model runs on a node that does nothing else, and several together."""

    prefill_tps: Rate
    decode_tps: Rate
    ttft_s: Seconds = 0.0
    step_per_job_s: Seconds | None = None
    """What each further running job adds to the time of one step, where that was measured."""
    batch: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """How many answers were written at once when the next two were measured."""
    batch_decode_tps: Rate | None = None
    """Tokens a second of all of them together."""
    batch_ttft_s: Seconds | None = None
    """Until the last of them had its first token."""


Watts = Annotated[float, Meta(ge=0, le=1e5)]
Celsius = Annotated[float, Meta(ge=-100, le=300)]
Share = Annotated[float, Meta(ge=0, le=1)]
GPUS_MAX = 64


class GpuSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU: as its driver describes it, and what was measured on it."""

    model: ShortText
    vram_bytes: Bytes
    vendor: ShortText = "unknown"
    driver: ShortText | None = None
    copy_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    """Measured: bytes read and written a second by a copy in its own memory."""
    fp16_tflops: Tflops | None = None
    """Measured: a dense product of matrices at 16 bits."""


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU now. What its driver does not tell is None."""

    vram_free_bytes: Bytes | None = None
    power_watts: Watts | None = None
    temperature_c: Celsius | None = None
    utilisation: Share | None = None


class Sensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node's machine measured of itself since the report before. Sent with heartbeats only."""

    power_watts: Watts | None = None
    """Mean of what its GPUs, and its processor where that can be read, drew."""
    working_watts: Watts | None = None
    """The same, over the seconds in which it had jobs of the network."""
    working_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """How many seconds those were."""
    gpus: Annotated[tuple[GpuReading, ...], Meta(max_length=GPUS_MAX)] = ()
    """In the order of the specs."""


Total = Annotated[float, Meta(ge=0, le=1e18)]


class ServerMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model server counts of itself, whoever asked it: for operators, not for matching. Sent with heartbeats.

    Totals are since the server started; None where it does not tell.
    """

    running: Count = 0
    waiting: Count = 0
    prompt_tokens: Total | None = None
    generation_tokens: Total | None = None
    first_token_s: Total | None = None
    first_tokens: Total | None = None
    """How many first tokens those seconds are the sum of."""
    request_s: Total | None = None
    requests: Total | None = None
    """Likewise, of whole requests."""


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
    """Tokens of prompts read before that the server keeps, so as not to read them again. None if it does not say."""
    capabilities: Annotated[tuple[Capability, ...], Meta(max_length=32)] | None = None
    """None if the node does not say: then it is taken to do what every chat server does, and no more."""
    weights_digest: ShortText | None = None
    """Of the file of weights, where the server tells: `sha256:…`."""

    @property
    def load_s(self) -> float:
        """Seconds until it can start, as node and gateway both reckon: 8 s and 1.5 GB/s of reading, within 10-30 s."""
        match self.state:
            case "warm":
                return 0.0
            case "loading":
                return LOADING_S
            case "on_disk":
                return min(LOAD_S_MAX, max(LOAD_S_MIN, LOAD_FIXED_S + self.weights_bytes / LOAD_BYTES_S))


class NodeSpecs(msgspec.Struct, frozen=True):
    """What changes seldom: hardware, place, price, models."""

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
    bandwidth_bytes_s: Annotated[float, Meta(gt=0, le=1e15)] | None = None
    """What decoding reads per second, where it is known."""
    gpus: Annotated[tuple[GpuSpec, ...], Meta(max_length=GPUS_MAX)] = ()
    """One by one, where the driver tells; `gpu`, `gpu_count` and `vram_bytes` are of all together."""


class NodeLoad(msgspec.Struct, frozen=True):
    """What changes by the second. `foreign` is work that this gateway did not send: the owner's, other gateways'."""

    running: Count = 0
    queued: Count = 0
    foreign: Count = 0
    draining: bool = False
    foreign_backlog_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Prompts of foreign jobs that are still to be read, in seconds."""
    foreign_kv_bytes: Bytes = 0
    foreign_active_bytes: Bytes = 0
    """Weights in use by foreign jobs only, of models that are not named."""
    foreign_models: Annotated[tuple[ModelName, ...], Meta(max_length=MODELS_PER_NODE_MAX)] = ()
    """Models that foreign jobs use: one more job of such a model reads no weights of its own."""
    kv_capacity_bytes: Bytes | None = None
    prefill_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Of the last seconds, the share spent reading prompts."""
    kv_used: Share | None = None
    """Of the memory for contexts, where the server tells."""
    paused: ShortText | None = None
    """Why its owner's rules keep it from new jobs for a while. Such a node is also `draining`, for older gateways."""
    sensors: Sensors | None = None
    """None says nothing new: what was told before stands."""
    server: ServerMetrics | None = None
    """Likewise."""

    def is_news_after(self, before: NodeLoad) -> bool:
        """Whether a gateway that knows `before` should hear this at once. Its own jobs it counts itself."""
        return (self.draining, self.paused, self.foreign, self.foreign_models) != (
            before.draining,
            before.paused,
            before.foreign,
            before.foreign_models,
        )


_S = TypeVar("_S", bound=msgspec.Struct)


def validated(report: _S) -> _S:
    """The same report, held to the bounds that the other end will hold it to. Raises msgspec.ValidationError."""
    return msgspec.convert(msgspec.to_builtins(report), type(report))
