"""Settings of the validator's process."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from sparewatt.core.address_rules import names_loopback
from sparewatt.core.errors import StartupError
from sparewatt.evm.chain_url import check_chain_url
from sparewatt.machine.stranger_http import PRIVATE_TOO, PUBLIC_ONLY, DialRules

DEFAULT_PORT = 8700


@dataclass(frozen=True, slots=True)
class ValidatorSettings:
    data: Path
    """Holds the vote key, its write-ahead file, and the records of matches."""
    chain_url: str
    contracts: Path
    """The record of the deployment: contracts.json of the chain's process."""
    operator_key: Path | None = None
    """The key that stakes and pays for gas; on a chain of test money it is made if it is missing."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_PORT
    """0: any free one."""
    public_url: str | None = None
    """Where others reach this validator; registered on chain."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    """A certificate chain and its key, in PEM files."""
    behind_proxy: bool = False
    """A proxy in front terminates TLS."""
    private_peers: bool | None = None
    """Whether to dial validators at private addresses and, on loopback, without TLS. By default on loopback only."""
    depth: Annotated[int, Meta(ge=1, le=1_000)] = 6
    """Blocks, its own included, after which an event is final."""
    poll_s: Annotated[float, Meta(gt=0, le=60)] = 0.25
    """Seconds between two looks at the chain while nothing happens."""
    beat_s: Annotated[float, Meta(ge=0.1, le=600)] | None = None
    """Seconds between two heartbeats of a node; the same on the whole network."""
    timing: Literal["local", "public"] | None = None
    """Of rounds and resends. By default as the chain is."""
    join_stake: str | None = None
    """In dollars: join by itself with this much at stake."""
    challenges: bool = True
    """Send proofs of faults that it sees in matches and snapshots; a tenth of what a culprit loses is its reward."""
    new_vote_key: bool = False
    """Retire the vote key and its write-ahead file, and make a new pair."""
    retire_unusable_key: bool = False
    """Where the chain is a local one, and was started over, or the write-ahead file is damaged or not in a backup: make
    a new vote key instead of refusing to start."""
    ready_file: Path | None = None
    """Written once the chain is followed and the API listens; for supervisors."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def dial_rules(self) -> DialRules:
        """Which peers are dialled. A validator on loopback has its peers there, too."""
        is_private = names_loopback(self.host) if self.private_peers is None else self.private_peers
        return PRIVATE_TOO if is_private else PUBLIC_ONLY

    def check(self) -> None:
        """Raises StartupError for settings that do not go together."""
        check_chain_url(self.chain_url)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise StartupError("--tls-cert and --tls-key go together.")
        if not names_loopback(self.host) and self.tls_cert is None and not self.behind_proxy:
            raise StartupError(
                f"Refusing to listen on {self.host} without TLS. Give --tls-cert and --tls-key, or --behind-proxy if a "
                "proxy in front terminates TLS."
            )
        if self.behind_proxy and self.public_url is None:
            raise StartupError("--behind-proxy needs --public-url: the address that others dial.")

    def tls(self) -> ssl.SSLContext | None:
        """Raises StartupError, whose text never contains the key."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise StartupError(f"The certificate {self.tls_cert} cannot be used: {error}.") from None
        return context

    def url(self, port: int) -> str:
        """Where others reach the validator that listens on this port."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{port}"
