"""Everything about a node that its owner may set."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from sparewatt.core.limits import DRAIN_S
from sparewatt.link.websocket_library import WebSocketLibrary

REGION_DEFAULT = "local"
"""Of an owner who does not say where the node stands."""
_Positive = Annotated[float, Meta(gt=0, le=1e6)]


def default_data_dir() -> Path:
    """Of this user; XDG_DATA_HOME moves it, and on Windows it is where programs keep such things."""
    given = os.environ.get("XDG_DATA_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else None)
    return (Path(given) if given else Path.home() / ".local" / "share") / "sparewatt" / "node"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    gateway_url: str
    data_dir: Path = field(default_factory=default_data_dir)
    token: str | None = None
    backend_url: str | None = None
    backend_wait_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """What a model server that is just starting gets before a join gives up."""
    serve: Path | None = None
    """A GGUF file to serve with the built-in llama.cpp, instead of fronting a server that already runs."""
    serve_as: str | None = None
    serve_slots: Annotated[int, Meta(ge=1, le=64)] = 4
    serve_context: Annotated[int, Meta(ge=256, le=1 << 20)] = 4096
    """Tokens of context for each answer."""
    name: str | None = None
    region: str = REGION_DEFAULT
    gpu: str | None = None
    vram_gb: _Positive | None = None
    tflops: _Positive | None = None
    hourly_usd: str = "0.10"
    prompt_usd_per_mtok: str | None = None
    completion_usd_per_mtok: str | None = None
    """Without prices per million tokens they follow from the price per hour and the measured speed."""
    speed_limit_tps: _Positive | None = None
    """The most tokens per second that one answer may use: for owners who want their machine back."""
    bench_gpu: bool = True
    """Measure the GPU itself at the first join, where torch or CuPy is there to do it."""
    insecure: bool = False
    link_library: WebSocketLibrary = "auto"
    """Which WebSocket the link is on: picows where it is installed, unless told otherwise."""
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = DRAIN_S
    log_level: str = "info"
