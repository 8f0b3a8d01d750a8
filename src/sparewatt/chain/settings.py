"""Settings of the chain's process, and the check of the chain's URL."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from sparewatt.core.errors import StartupError


@dataclass(frozen=True, slots=True)
class ChainSettings:
    chain_url: str
    database_url: str
    data: Path
    """Holds the keys and the record of the deployment."""
    depth: Annotated[int, Meta(ge=1, le=1_000)] = 6
    """Blocks, its own included, after which a transaction is final. A thousand are hours on any chain."""
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    deploy: bool = False
    """Deploy the contracts if they are missing."""
    mine: bool = False
    """Have a local chain mine a block every second while a transaction or event waits for one."""
    test_money: bool = False
    """The chain's token is for trying out: its faucet covers what deposits and payouts lack."""
    senders: Annotated[int, Meta(ge=0, le=32)] = 0
    """Keys beside the operator's that relay requests: sender-1.key and so on in `data`, made if they are missing."""
    max_fee_gwei: Annotated[int, Meta(ge=1, le=1_000_000)] = 500
    """The most that a transaction may pay per gas."""
    secret: str | None = field(default=None, repr=False)
    """The network's secret in 64 hex digits; the accounts' chain keys are sealed under it."""
    secret_file: Path | None = None
    """Where a gateway on this machine keeps the secret."""
    ready_file: Path | None = None
    """Written once the chain is followed; for supervisors."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


def check_chain_url(url: str) -> str:
    """Refuse a URL over which a man in the middle could lie about the chain. Raises StartupError."""
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
