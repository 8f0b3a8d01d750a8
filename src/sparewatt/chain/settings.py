"""Settings of the chain's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta


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
    saved_block_file: Path | None = None
    """Names the newest block that a local chain has on disk; later ones are not final."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
