"""Everything about a gateway that its operator may set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=3600)]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    database_url: str
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8484
    public_url: str | None = None
    """The address that nodes and clients use, if it is not http://host:port."""
    chain_url: str | None = None
    """The JSON-RPC endpoint of the network's chain, passed on to nodes and validators in part."""
    heartbeat_s: Seconds = 5.0
    suspect_after_missed: Annotated[int, Meta(ge=1, le=100)] = 2
    offline_after_missed: Annotated[int, Meta(ge=1, le=100)] = 3
    """NeuralGrid pings every 30 s and gives a node up after 3."""
    first_token_floor_s: Seconds = 30.0
    idle_s: Seconds = 60.0
    policy: Literal["fast", "balanced", "economy", "neuralgrid"] = "balanced"
    seed: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    port_file: Path | None = None
    """Written with the port when listening; for supervisors that ask for port 0."""
