"""Settings of the chain's process, and where a chain may be."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import CHAIN_DEPTH_MAX


@dataclass(frozen=True, slots=True)
class ChainSettings:
    chain_url: str
    database_url: str
    data: Path
    """Holds the keys and the record of what is deployed."""
    depth: Annotated[int, Meta(ge=1, le=CHAIN_DEPTH_MAX)] = 6
    """Blocks, its own included, after which a transaction counts as final."""
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    deploy: bool = False
    """Put the contracts there if they are not."""
    mine: bool = False
    """Have a local chain make a block every second while something waits for one."""
    test_money: bool = False
    """The chain's token is for trying out: its faucet gives what deposits and payouts lack."""
    secret: str | None = field(default=None, repr=False)
    """The network's: what accounts' chain keys are sealed under, 64 hex digits."""
    secret_file: Path | None = None
    """Where a gateway on this machine keeps it."""
    ready_file: Path | None = None
    """Written once the chain is followed; for supervisors."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


def check_chain_url(url: str) -> str:
    """Refuse an address over which somebody could lie to us about the chain. Raises StartupError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise StartupError("CHAIN_URL must be the address of a JSON-RPC endpoint, like https://rpc.example.")
    if parts.scheme == "http" and not _is_this_machine(parts.hostname):
        raise StartupError(f"Refusing plain http:// to {parts.hostname}: anyone on the way could lie about the chain.")
    return url


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
