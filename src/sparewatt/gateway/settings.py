"""The settings of a gateway: everything that its operator may configure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from sparewatt.accounts.account_service import SignupMode
from sparewatt.core.address_rules import names_loopback
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.limits import DRAIN_S, GATEWAY_PROCESSES_MAX, MODELS_PER_NODE_MAX, NODES_MAX
from sparewatt.edge.settings import EdgeSettings
from sparewatt.inference.fleet.fleet_limits import MODELS_PER_ACCOUNT, NODES_PER_ACCOUNT

REQUESTS_PER_MIN_DEFAULT = 6_000
"""Of a key without limits of its own: 100 requests a second, which keeps a runaway loop bearable."""
TOKENS_PER_MIN_DEFAULT = 10_000_000
"""Likewise: as many tokens as several big machines write."""

Seconds = Annotated[float, Meta(gt=0, le=3600)]
PerMinute = Annotated[int, Meta(ge=1, le=1_000_000_000)]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    database_url: str | None = field(default=None, repr=False)
    """Without one, the gateway runs an embedded Postgres in its data directory."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8484
    processes: Annotated[int, Meta(ge=1, le=GATEWAY_PROCESSES_MAX)] = 1
    """How many share the public port; a process uses one core."""
    link_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Where the first of several processes accepts links; the others use the ports after it. Default: free ports."""
    public_url: str | None = None
    """The address that nodes and clients use, if it is not http://host:port."""
    chain_url: str | None = None
    """The JSON-RPC endpoint of the network's chain; nodes and validators may use part of it through the gateway."""
    heartbeat_s: Seconds = 5.0
    suspect_after_missed: Annotated[int, Meta(ge=1, le=100)] = 2
    offline_after_missed: Annotated[int, Meta(ge=1, le=100)] = 3
    """For comparison: NeuralGrid pings every 30 s, and drops a node after 3 missed replies."""
    nodes_per_account: Annotated[int, Meta(ge=1, le=NODES_MAX)] = NODES_PER_ACCOUNT
    """Nodes that an account may have here, those included that are away."""
    models_per_account: Annotated[int, Meta(ge=1, le=10_000_000)] = MODELS_PER_ACCOUNT
    """Models of all connected nodes of an account together, counted on each node."""
    models_per_node: Annotated[int, Meta(ge=1, le=MODELS_PER_NODE_MAX)] = MODELS_PER_NODE_MAX
    first_token_floor_s: Seconds = 30.0
    idle_s: Seconds = 60.0
    drain_s: Annotated[float, Meta(ge=0, le=3600)] = DRAIN_S
    """How long running answers may take to finish after SIGTERM. Must be shorter than the supervisor's patience."""
    policy: Literal["fast", "balanced", "economy", "neuralgrid"] = "balanced"
    seed: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    port_file: Path | None = None
    """The port is written there when the gateway listens; for supervisors that start it with port 0."""
    metrics: bool = True
    """Whether Prometheus metrics are served, on a port of their own."""
    metrics_host: str = "127.0.0.1"
    """An address of this machine or a private network: metrics need no key."""
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """Default: 9484, or a free one if that is taken. A configured port must be free; 0 takes any."""
    metrics_port_file: Path | None = None
    """As `port_file`, and written before it."""
    metrics_by_node: bool = False
    """Whether each node has metrics of its own, labelled with its address: some 25 series each."""
    request_log: bool = False
    """Whether every request is logged: ids, route, model, node, times and counts, never content."""
    data: Path = Path("~/.local/share/sparewatt/gateway")
    """The data directory: journals, and the network's secret unless `secret` is set."""
    secret: str | None = field(default=None, repr=False)
    """Encrypts chain keys: 64 hex digits, the same for every gateway of a network."""
    signup: SignupMode | None = None
    """Who may sign up. Default: anybody on this machine; with a public address, invited people."""
    signups_per_address_hour: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    behind_proxy: bool = False
    """Whether a reverse proxy ends TLS and adds the client's address to X-Forwarded-For."""
    trusted_proxies: str | None = None
    """Networks of that proxy, separated by commas. Default: this machine and private networks."""
    sites_host: str | None = None
    """Names below this one lead to public sites of leases: a wildcard DNS record, and a certificate for it."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    """A certificate chain and its key, in PEM files. Read again when they change."""
    smtp_url: str | None = field(default=None, repr=False)
    smtp_from: str | None = None
    route: str | None = None
    """The network's policy, which every node must meet: 'region=EU uptime>=0.95'."""
    region: str | None = None
    """Where this gateway is: `DE`, `us-west`. With it, measured round trips check where nodes say that they are."""
    keep_months: Annotated[int, Meta(ge=0, le=1200)] = 0
    """Retention of jobs, receipts and postings, in whole months besides the current one; 0: for ever."""
    billing: bool = True
    """Whether jobs cost credits. Off for a network among friends: no holds, charges or earnings."""
    requests_per_min: PerMinute = REQUESTS_PER_MIN_DEFAULT
    tokens_per_min: PerMinute = TOKENS_PER_MIN_DEFAULT
    """The rate limit of a key without limits of its own."""
    address_requests_per_min: PerMinute = 2 * REQUESTS_PER_MIN_DEFAULT
    address_tokens_per_min: PerMinute = 2 * TOKENS_PER_MIN_DEFAULT
    """The rate limit of all keys together from one address."""
    development: bool = False
    """A network for experiments: anybody may deposit test money, and the treasury is filled with it."""
    signup_credit_usd: str = "1"
    """Free credits for a new account."""
    promo_days: Annotated[float, Meta(gt=0, le=3660)] = 30.0
    """How long free credits last."""
    grants_per_address_day: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    """How many new accounts from one address get them, per day."""
    price_cap_usd_per_mtok: str = "20"
    """The most that a request without `max_price` pays per million tokens, whatever nodes ask."""
    treasury_daily_usd: str = "0"
    """The part of the treasury that becomes payable per day, to nodes that served free credits."""
    uptime_credit_daily_usd: str = "0"
    """What renters are credited per day, in all, for leases below 99.9 % of uptime. 0: nothing."""
    checks: bool = True
    """Whether answers are checked, and nodes are paid once they passed."""
    checks_daily_usd: str = "1"
    """The most that the network pays for checks per day, of free credits."""
    own_accounts: str | None = None
    """Accounts whose nodes the operator vouches for besides its own, by commas: they are trusted, and paid at once."""
    payout_hours: Annotated[float, Meta(gt=0, le=24 * 366)] = 24.0
    """Between two payout batches for the chain."""
    era_hours: Annotated[float, Meta(ge=0.01, le=24 * 31)] = 24.0
    """How long an era of rewards is."""
    reward_share_percent: Annotated[float, Meta(ge=0, le=100)] = 50.0
    """Of the fees, what era rewards pay out."""

    @property
    def has_tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def vouched_accounts(self) -> frozenset[AccountId]:
        named = (AccountId(name.strip()) for name in (self.own_accounts or "").split(","))
        return frozenset({NETWORK_ACCOUNT, *filter(None, named)})

    @property
    def edge(self) -> EdgeSettings:
        return EdgeSettings(
            public_url=self.public_url,
            has_tls=self.has_tls,
            behind_proxy=self.behind_proxy,
            trusted_proxies=self.trusted_proxies,
            sites_host=self.effective_sites_host,
            request_log=self.request_log,
        )

    @property
    def effective_sites_host(self) -> str | None:
        """On this machine alone browsers know every name below `localhost`."""
        is_local = self.public_url is None and names_loopback(self.host)
        return self.sites_host.lower().strip(".") if self.sites_host else ("localhost" if is_local else None)

    @property
    def signup_mode(self) -> SignupMode:
        """A gateway with TLS or a public address can be reached by strangers: by default they need an invitation."""
        return self.signup or ("open" if self.public_url is None and not self.has_tls else "invite")
