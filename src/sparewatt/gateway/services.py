"""All parts of one gateway process, put together once at start. Imported by `gateway/` alone.

Each part gets its collaborators by constructor, so the order below is the order in which they depend on each other.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import partial

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.custody import Custody, add_missing_chain_keys, check_secret
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyRing, KeyService
from sparewatt.accounts.mail import Mailer, read_mail_server
from sparewatt.accounts.passwords import Passwords
from sparewatt.accounts.public_rate_limits import PublicRateLimiters
from sparewatt.accounts.rate_limits import RateLimiter
from sparewatt.accounts.sessions import Sessions
from sparewatt.api.operations.downloads import Downloads
from sparewatt.cluster.peer_client import PeerClient
from sparewatt.cluster.peers import Peers
from sparewatt.cluster.process_slot import ALONE, ProcessSlot
from sparewatt.cluster.questions import GIVE_BACK, SYNC, EmptyMessage, GiveBackRequest
from sparewatt.cluster.shared_idempotency import SharedIdempotency
from sparewatt.core.clock import Clock
from sparewatt.core.drain import DrainState
from sparewatt.core.ids import AccountId, NodeId, new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.idempotency import Idempotency, IdempotencyCache
from sparewatt.gateway.accounting import Accounting, PeerCredits, open_accounting
from sparewatt.gateway.addresses import own_hosts, own_origins, own_root_url
from sparewatt.gateway.known_nodes import load_known_nodes
from sparewatt.gateway.money import make_money_service
from sparewatt.gateway.secret import network_secret
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import DispatchRules
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.fleet.link_registry import LinkPorts, LinkRegistry, countersign
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.price_caps import PriceCaps
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.inference.routing import check_policy, read_network_policy
from sparewatt.inference.service import InferenceService
from sparewatt.ledger.money_service import MoneyService
from sparewatt.link.gateway_end import NodeLink
from sparewatt.store.database import Database
from sparewatt.telemetry.explanations import Explanations
from sparewatt.telemetry.feed.live_feed import LiveFeed
from sparewatt.telemetry.history.writer import HistoryWriter
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.metrics.collector import MetricsCollector
from sparewatt.telemetry.metrics.process_metrics import LoopLag
from sparewatt.telemetry.metrics.server import MetricsServer
from sparewatt.telemetry.pulse_counts import PulseCounts

PREFIX_SECRET_BYTES = 32
SHARED_BUDGET_RELOAD_S = 1.0
"""Peers report spending as pending for longer than this, so that it is never left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    settings: GatewaySettings
    database: Database
    clock: Clock
    rng: Rng
    drain: DrainState
    started_unix_s: float
    root_url: str
    """The address that people use, without a slash at its end."""
    origins: frozenset[str]
    """Where pages of ours come from, as a browser names it."""
    handle_secret: bytes
    """Keys the handles by which strangers know nodes; the same for every gateway of a network."""
    # accounts
    keys: KeyRing
    key_service: KeyService
    people: AccountService
    sessions: Sessions
    doors: PublicRateLimiters
    tokens: JoinTokens
    mailer: Mailer | None
    limits: RateLimiter
    auth: Authenticator
    # money
    money: MoneyService
    accounting: Accounting | None
    """None on a network without books."""
    # inference
    table: NodeTable
    states: NodeStates
    links: LinkRegistry
    admission: AdmissionControl
    dispatcher: Dispatcher
    inference: InferenceService
    responses: ResponseRegistry
    # telemetry
    counter: JobCounter
    loop_lag: LoopLag
    history: HistoryWriter
    live: LiveFeed
    explanations: Explanations
    pulse: PulseCounts
    metrics: MetricsServer
    # the edge, and other processes
    idempotency: Idempotency
    downloads: Downloads
    slot: ProcessSlot
    peer_client: PeerClient
    peers: Peers
    shared_idempotency: SharedIdempotency


async def assemble(
    settings: GatewaySettings, database: Database, *, port: int, clock: Clock, rng: Rng, slot: ProcessSlot = ALONE
) -> Services:
    """All parts of a gateway, loaded with what Postgres knows. Raises StartupError."""
    may_make = not await database.accounts.has_secret()
    secret = await asyncio.to_thread(network_secret, settings, rng, may_make=may_make)
    custody = Custody(secret, rng=rng)
    await check_secret(database.accounts, custody)
    await add_missing_chain_keys(database.accounts, custody)
    client = PeerClient(slot)
    peers = Peers(client, clock=clock, run=new_id("run", rng=rng, n_bytes=5))
    links: dict[NodeId, NodeLink] = {}
    accounting = None
    if settings.billing:
        accounting = await open_accounting(
            settings.data,
            database.ledger,
            clock=clock,
            rng=rng,
            send=partial(countersign, links),
            peers=_peer_credits(client, peers) if slot.others else None,
        )
    services = build(
        settings,
        database,
        table=NodeTable(gateways=slot.count),
        accounting=accounting,
        people=AccountService(database.accounts, passwords=Passwords(), custody=custody, rng=rng),
        secret=secret,
        links=links,
        port=port,
        client=client,
        peers=peers,
        clock=clock,
        rng=rng,
    )
    await services.key_service.sync()
    await load_known_nodes(database, services.links, services.table)
    return services


def _peer_credits(client: PeerClient, peers: Peers) -> PeerCredits:
    async def call_in(account: AccountId) -> bool:
        return any(reply.yes for reply in await client.ask_all(GIVE_BACK, GiveBackRequest(account)))

    return PeerCredits(call_in, peers.pending, SHARED_BUDGET_RELOAD_S)


def build(
    settings: GatewaySettings,
    database: Database,
    *,
    table: NodeTable,
    accounting: Accounting | None,
    people: AccountService,
    secret: bytes,
    links: dict[NodeId, NodeLink],
    port: int,
    client: PeerClient,
    peers: Peers,
    clock: Clock,
    rng: Rng,
) -> Services:
    """Put the parts together; nothing here waits."""
    slot, drain, started_unix_s = client.slot, DrainState(), clock.unix_s()
    handle_secret = hashlib.blake2b(secret, digest_size=32, person=b"sparewatt names").digest()
    request_secret = bytes.fromhex(slot.prompt_secret) or rng.randbytes(PREFIX_SECRET_BYTES)
    origins, root_url = own_origins(settings, port=port), own_root_url(settings, port=port)
    health = HealthRules(
        heartbeat_s=settings.heartbeat_s,
        suspect_after_missed=settings.suspect_after_missed,
        offline_after_missed=settings.offline_after_missed,
    )

    # accounts
    keys, limits = KeyRing(), rate_limits(settings, share=slot.count)
    sessions = Sessions(database.accounts, clock=clock, rng=rng)
    mail_server = read_mail_server(settings.smtp_url, settings.smtp_from)

    async def announce_keys() -> None:
        await client.ask_all(SYNC, EmptyMessage())

    # inference
    counter = JobCounter(table.has_model, clock=clock)
    prefixes = PrefixIndex()
    tokens = JoinTokens(database, rng=rng)
    registry = LinkRegistry(
        links,
        table=table,
        tokens=tokens,
        hosts=own_hosts(settings, port=port, link_port=slot.link_port),
        health=health,
        clock=clock,
        rng=rng,
        ports=LinkPorts(slot.link_ports, slot.link_port),
        receipts=accounting.metering.receipts if accounting is not None else None,
        before_sending=accounting.journal.flush if accounting is not None else None,
        on_left=prefixes.forget,
    )
    admission = AdmissionControl(table.capacity, clock=clock, rng=rng, on_waited=counter.totals.queue_wait.observe)
    dispatcher = Dispatcher(
        table=table,
        links=links,
        health=health,
        rules=DispatchRules(first_token_floor_s=settings.first_token_floor_s, idle_s=settings.idle_s),
        seed=settings.seed,
        clock=clock,
        observer=counter,
        prefixes=prefixes,
    )
    inference = InferenceService(
        table=table,
        admission=admission,
        dispatcher=dispatcher,
        eligibility=Eligibility(table, clock=clock),
        prices=PriceCaps(table.median_price, clock=clock),
        metering=accounting.metering if accounting is not None else None,
        network_policy=read_network_policy(settings.route),
        default_ranking=settings.policy,
        prefix_secret=request_secret,
        drain=drain,
        rng=rng,
    )

    # telemetry
    states = NodeStates(table, health=health, clock=clock, is_elsewhere=peers.has_link)
    live = LiveFeed(
        states=states,
        dispatcher=dispatcher,
        counter=counter,
        clock=clock,
        secret=handle_secret,
        run=new_id("feed", rng=rng, n_bytes=5),
        peers=peers,
    )
    loop_lag = LoopLag(clock=clock)
    collector = MetricsCollector(
        table=table,
        health=health,
        dispatcher=dispatcher,
        admission=admission,
        counter=counter,
        live=live,
        loop_lag=loop_lag,
        limits=limits,
        power=registry.power,
        servers=registry.servers,
        links=links,
        ledger=accounting.ledger if accounting is not None else None,
        metering=accounting.metering if accounting is not None else None,
        drain=drain,
        by_node=settings.metrics_by_node,
        clock=clock,
    )

    # the edge, and other processes
    cache = IdempotencyCache()
    shared = SharedIdempotency(cache, client, clock=clock, rng=rng)
    return Services(
        settings=settings,
        database=database,
        clock=clock,
        rng=rng,
        drain=drain,
        started_unix_s=started_unix_s,
        root_url=root_url,
        origins=origins,
        handle_secret=handle_secret,
        keys=keys,
        key_service=KeyService(
            database,
            keys,
            rng=rng,
            check_policy=check_policy,
            announce=announce_keys if slot.others else None,
        ),
        people=people,
        sessions=sessions,
        doors=PublicRateLimiters(
            signups_per_address_hour=settings.signups_per_address_hour, clock=clock, share=slot.count
        ),
        tokens=tokens,
        mailer=Mailer(mail_server) if mail_server is not None else None,
        limits=limits,
        auth=Authenticator(keys=keys, sessions=sessions, limits=limits, origins=origins, clock=clock),
        money=make_money_service(settings, database, clock=clock),
        accounting=accounting,
        table=table,
        states=states,
        links=registry,
        admission=admission,
        dispatcher=dispatcher,
        inference=inference,
        responses=ResponseRegistry(share=slot.count),
        counter=counter,
        loop_lag=loop_lag,
        history=HistoryWriter(
            counter,
            table,
            database.history,
            database.node_results,
            clock=clock,
            counts_uptime=peers.counts_uptime,
            has_peer_link=peers.has_link,
        ),
        live=live,
        explanations=Explanations(dispatcher=dispatcher, table=table, keys=keys, database=database, peers=client),
        pulse=PulseCounts(
            dispatcher=dispatcher,
            admission=admission,
            table=table,
            jobs=counter,
            peers=client,
            instance=live.frames.run,
        ),
        metrics=MetricsServer(collector=collector, drain=drain, ports=slot.metrics_ports),
        idempotency=Idempotency(cache=cache, secret=request_secret, clock=clock, peers=shared if slot.others else None),
        downloads=Downloads(root_url),
        slot=slot,
        peer_client=client,
        peers=peers,
        shared_idempotency=shared,
    )


def rate_limits(settings: GatewaySettings, *, share: int = 1) -> RateLimiter:
    """`share`: of how many processes this is one."""
    return RateLimiter(
        share=share,
        requests_per_min=settings.requests_per_min,
        tokens_per_min=settings.tokens_per_min,
        address_requests_per_min=settings.address_requests_per_min,
        address_tokens_per_min=settings.address_tokens_per_min,
    )
