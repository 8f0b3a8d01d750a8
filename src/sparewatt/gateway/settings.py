"""Everything about a gateway that its operator may set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from sparewatt.accounts.account_service import SignupMode
from sparewatt.core.limits import DRAIN_S, GATEWAY_PROCESSES_MAX, REQUESTS_PER_MIN_DEFAULT, TOKENS_PER_MIN_DEFAULT
from sparewatt.edge.settings import EdgeSettings

Seconds = Annotated[float, Meta(gt=0, le=3600)]
PerMinute = Annotated[int, Meta(ge=1, le=1_000_000_000)]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    database_url: str | None = field(default=None, repr=False)
    """Without one, the gateway runs a Postgres of its own in its data directory."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8484
    processes: Annotated[int, Meta(ge=1, le=GATEWAY_PROCESSES_MAX)] = 1
    """How many serve the one port; a process uses one core."""
    link_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Of several processes, where the first takes links; the others have the ports after it. By default free ones."""
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
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = DRAIN_S
    """What running answers have left when it is asked to stop. Less than whoever asks will wait for it."""
    policy: Literal["fast", "balanced", "economy", "neuralgrid"] = "balanced"
    seed: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    port_file: Path | None = None
    """Written with the port when listening; for supervisors that ask for port 0."""
    metrics: bool = True
    """Whether there is a second port with figures for the operator."""
    metrics_host: str = "127.0.0.1"
    """Of this machine or a private network: whoever reaches it may read it."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """9484, or where that is taken a free one. One that is named must be had; 0 takes a free one."""
    metrics_port_file: Path | None = None
    """Likewise, before the first."""
    metrics_by_node: bool = False
    """Whether nodes are told one by one, by their address: some 25 series each."""
    request_log: bool = False
    """Whether every request leaves a line in the log: ids, route, model, node, times and counts, never content."""
    data: Path = Path("~/.local/share/sparewatt/gateway")
    """Where the journals of its gateways are kept, and the network's secret, unless `secret` is given."""
    secret: str | None = field(default=None, repr=False)
    """What chain keys are sealed under: 64 hex digits, the same for every gateway of a network."""
    signup: SignupMode | None = None
    """Who may sign up. By default everybody on this machine, and with a public address those who were invited."""
    signups_per_address_hour: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    behind_proxy: bool = False
    """A proxy in front adds the client's address to X-Forwarded-For. Without one, anybody could."""
    trusted_proxies: str | None = None
    """Where that proxy may be: networks, with commas. By default this machine and private networks."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    """A certificate chain and its key, in PEM files. Read again when they change."""
    smtp_url: str | None = field(default=None, repr=False)
    smtp_from: str | None = None
    route: str | None = None
    """Who may serve jobs here at all, as a line of the policy vocabulary: 'region=EU uptime>=0.95'."""
    keep_months: Annotated[int, Meta(ge=0, le=1200)] = 0
    """Whole months of jobs, receipts and postings that are kept besides the current one; 0 keeps all."""
    billing: bool = True
    """Without it nothing is held, charged or earned: for a network among friends."""
    requests_per_min: PerMinute = REQUESTS_PER_MIN_DEFAULT
    tokens_per_min: PerMinute = TOKENS_PER_MIN_DEFAULT
    """What a key may use where its own limits say nothing."""
    address_requests_per_min: PerMinute = 2 * REQUESTS_PER_MIN_DEFAULT
    address_tokens_per_min: PerMinute = 2 * TOKENS_PER_MIN_DEFAULT
    """What all keys together may use from one address."""
    development: bool = False
    """A network to try things on: anybody may deposit test money, and the treasury is filled with it."""
    signup_credit_usd: str = "1"
    """Free credits for who signs up."""
    promo_days: Annotated[float, Meta(gt=0, le=3660)] = 30.0
    """How long free credits last."""
    grants_per_address_day: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    """How many who sign up from one address get them, per day."""
    treasury_daily_usd: str = "0"
    """What of the treasury becomes payable per day, to those who served free credits."""
    payout_hours: Annotated[float, Meta(gt=0, le=24 * 366)] = 24.0
    """How often what owners earned is put into a batch for the chain."""

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def edge(self) -> EdgeSettings:
        """What the HTTP edge must know of it."""
        return EdgeSettings(
            public_url=self.public_url,
            has_tls=self.has_tls,
            behind_proxy=self.behind_proxy,
            trusted_proxies=self.trusted_proxies,
            request_log=self.request_log,
        )

    @property
    def signup_mode(self) -> SignupMode:
        """Who is reachable by TLS or by a public address is reachable by strangers."""
        return self.signup or ("open" if self.public_url is None and not self.has_tls else "invite")
