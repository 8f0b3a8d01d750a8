"""The composition root: all parts of one gateway process, put together once at start. Imported by `gateway/` alone.

Each part gets its collaborators by constructor, so the order below is the order in which they depend on each other.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import InitVar, dataclass, field
from functools import partial

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.custody import Custody, add_missing_chain_keys, check_secret
from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.accounts.keys import KeyRing, KeyService
from sparewatt.accounts.login_limits import DeviceTokens, LoginLimiter
from sparewatt.accounts.mail import Mailer, read_mail_server
from sparewatt.accounts.passwords import Passwords
from sparewatt.accounts.public_rate_limits import PublicRateLimiters
from sparewatt.accounts.rate_limits import RateLimiter
from sparewatt.accounts.sessions import Sessions
from sparewatt.api.operations.downloads import Downloads
from sparewatt.cluster.peer_rpc import ALONE, PeerClient, ProcessSlot
from sparewatt.cluster.peers import Peers
from sparewatt.cluster.questions import GIVE_BACK, SYNC, EmptyMessage, GiveBackRequest
from sparewatt.cluster.shared_idempotency import SharedIdempotency
from sparewatt.core.clock import Clock
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import StartupError
from sparewatt.core.health import HealthState
from sparewatt.core.ids import AccountId, NodeId, new_id
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.idempotency import Idempotency, IdempotencyCache
from sparewatt.gateway.accounting import Accounting, PeerCredits, make_money_service, open_accounting, read_usd
from sparewatt.gateway.addresses import own_hosts, own_origins, own_root_url, own_site_url
from sparewatt.gateway.health_probe import HealthProbe, log_health_change
from sparewatt.gateway.secret import network_secret
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.admission.service import AdmissionControl
from sparewatt.inference.checks.check_fund import CheckFund
from sparewatt.inference.checks.check_jobs import CheckDispatch
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.sampler import AnswerSampler
from sparewatt.inference.checks.service import AnswerChecks
from sparewatt.inference.checks.witnesses import Witnesses
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import DispatchRules
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.fleet.alias_service import AliasService
from sparewatt.inference.fleet.fleet_limits import FleetBounds
from sparewatt.inference.fleet.link_registry import LinkPorts, LinkRegistry, countersign
from sparewatt.inference.fleet.model_catalog import ModelCatalog
from sparewatt.inference.fleet.node_states import NodeStates
from sparewatt.inference.fleet.record_loader import RecordLoader
from sparewatt.inference.fleet.timing_exchange import TimingExchange
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.inference.fleet.verified_facts import VerifiedFactsReader
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.node_zones import NodeZones
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.service import Metering
from sparewatt.inference.price_caps import PriceCaps
from sparewatt.inference.responses.registry import ResponseRegistry
from sparewatt.inference.routing import check_policy, read_network_policy
from sparewatt.inference.service import InferenceService
from sparewatt.leasing.access.lease_access import LeaseAccess
from sparewatt.leasing.access.lease_sites import LeaseSites
from sparewatt.leasing.access.stream_places import StreamPlaces
from sparewatt.leasing.access.tickets import AccessTickets
from sparewatt.leasing.access.traffic_hub import TrafficHub
from sparewatt.leasing.era_standing import MarketStanding
from sparewatt.leasing.lease_requests import LeaseRequestService
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.node_keys import NodeKeyRequests
from sparewatt.leasing.orders.order_service import LeaseOrderService
from sparewatt.leasing.provider_service import ProviderService
from sparewatt.leasing.relay.collector import MatchCollector
from sparewatt.leasing.relay.lookup_relay import LookupRelay
from sparewatt.leasing.relay.lookups import OrderedContent
from sparewatt.leasing.relay.market_relay import MarketRelay
from sparewatt.leasing.relay.match_service import MatchService
from sparewatt.leasing.relay.vote_counts import RecentVoteCounts
from sparewatt.leasing.running.act_intake import ActIntake
from sparewatt.leasing.running.lease_excuses import LeaseExcuses
from sparewatt.leasing.running.leased_nodes import LeasedNodes
from sparewatt.leasing.running.task_relay import TaskRelay
from sparewatt.leasing.running.tasks import act_contracts_of
from sparewatt.leasing.uptime_credits import UptimeCredits
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.eras import EraService
from sparewatt.ledger.withheld import WithheldEarnings
from sparewatt.link.gateway_end import NodeLink
from sparewatt.machine.stranger_http import DialRules, StrangerClient
from sparewatt.policy.zones import UNKNOWN_ZONE, zone_of_region
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.link.node_report import ModelReport, NodeSpecs
from sparewatt.store.database import Database
from sparewatt.telemetry.explanations import Explanations
from sparewatt.telemetry.feed.auctions import AuctionFeed
from sparewatt.telemetry.feed.live_feed import LiveFeed
from sparewatt.telemetry.history.writer import HistoryWriter
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.metrics.collector import LoopLag, MetricsCollector
from sparewatt.telemetry.metrics.server import MetricsServer
from sparewatt.telemetry.pulse_counts import PulseCounts
from sparewatt.trust.rewards.rule import DEFAULT_RULE, with_share

REQUEST_SECRET_BYTES = 32
DEVELOPMENT_BEAT_MS, PUBLIC_BEAT_MS = 2_000, 15_000
"""Between two heartbeats of a node to a validator."""
SHARED_BUDGET_RELOAD_S = 1.0
"""Peers report spending as pending for longer than this, so that it is never left out."""


@dataclass(kw_only=True, eq=False, repr=False)
class Services:
    """Making them waits for nothing and reads nothing: `assemble` does that."""

    settings: GatewaySettings
    database: Database
    table: NodeTable
    accounting: Accounting | None
    """None on a network without books."""
    people: AccountService
    peer_client: PeerClient
    peers: Peers
    clock: Clock
    rng: Rng
    custody: Custody
    check_records: CheckRecords = field(default_factory=CheckRecords)
    secret: InitVar[bytes]
    """The network's, the same for all its gateways."""
    node_links: InitVar[dict[NodeId, NodeLink]]
    port: InitVar[int]

    def __post_init__(self, secret: bytes, node_links: dict[NodeId, NodeLink], port: int) -> None:
        settings, clock, rng = self.settings, self.clock, self.rng
        self.slot = self.peer_client.slot
        self.drain = DrainState()
        self.readiness = HealthState(on_change=log_health_change)
        self.health_probe = HealthProbe(
            state=self.readiness,
            data=settings.data.expanduser(),
            journal=self.accounting.journal if self.accounting is not None else None,
            database=self.database,
            siblings=self.peers,
            clock=clock,
        )
        self.started_unix_s = clock.unix_s()
        self.root_url = own_root_url(settings, port=port)
        self.origins = own_origins(settings, port=port)
        self.site_url = partial(own_site_url, settings, port=port)
        self.handle_secret = hashlib.blake2b(secret, digest_size=32, person=b"sparewatt names").digest()
        self.device_secret = hashlib.blake2b(secret, digest_size=32, person=b"sparewatt device").digest()
        self.request_secret = bytes.fromhex(self.slot.prompt_secret) or rng.randbytes(REQUEST_SECRET_BYTES)
        self.health = HealthRules(
            heartbeat_s=settings.heartbeat_s,
            suspect_after_missed=settings.suspect_after_missed,
            offline_after_missed=settings.offline_after_missed,
        )
        self.market = MarketIndex(self.database.market_events, has_chain=settings.chain_url is not None)
        self.leased_nodes = LeasedNodes(self.market.latest_state, self.database)
        self._make_accounts()
        self._make_providers(node_links)
        self._make_market(node_links)
        hosts = own_hosts(settings, port=port, link_port=self.slot.link_port)
        self._make_lease_access(node_links, hosts)
        self._make_inference(node_links, hosts)
        self._make_telemetry(node_links)
        cache = IdempotencyCache()
        self.shared_idempotency = SharedIdempotency(cache=cache, client=self.peer_client, clock=clock, rng=rng)
        self.idempotency = Idempotency(
            cache=cache,
            secret=self.request_secret,
            clock=clock,
            peers=self.shared_idempotency if self.slot.others else None,
        )
        self.downloads = Downloads(self.root_url)

    def _make_accounts(self) -> None:
        settings, database, clock, rng, client = self.settings, self.database, self.clock, self.rng, self.peer_client
        share = self.slot.count

        async def announce_keys() -> None:
            await client.ask_all(SYNC, EmptyMessage())

        self.keys = KeyRing()
        self.key_service = KeyService(
            database,
            self.keys,
            rng=rng,
            validate_policy=check_policy,
            announce=announce_keys if self.slot.others else None,
        )
        self.sessions = Sessions(database.accounts, clock=clock, rng=rng)
        self.public_limits = PublicRateLimiters(
            signups_per_address_hour=settings.signups_per_address_hour, clock=clock, share=share
        )
        devices = DeviceTokens(self.device_secret, rng=rng)
        self.login_limiter = LoginLimiter(devices, clock=clock, share=share)
        self.tokens = JoinTokens(database, rng=rng, is_lease_over=self.leased_nodes.is_over)
        mail_server = read_mail_server(settings.smtp_url, settings.smtp_from)
        self.mailer = Mailer(mail_server) if mail_server is not None else None
        self.limits = RateLimiter(
            share=share,
            requests_per_min=settings.requests_per_min,
            tokens_per_min=settings.tokens_per_min,
            address_requests_per_min=settings.address_requests_per_min,
            address_tokens_per_min=settings.address_tokens_per_min,
        )
        self.auth = Authenticator(
            keys=self.keys, sessions=self.sessions, limits=self.limits, origins=self.origins, clock=clock
        )
        self.money = make_money_service(settings, database, clock=clock)

    def _make_providers(self, links: dict[NodeId, NodeLink]) -> None:
        def send(node_id: NodeId, request: NodeKeyRequest) -> bool:
            link = links.get(node_id)
            if link is not None:
                link.request_node_key(request)
            return link is not None

        def specs_of(node_id: NodeId) -> NodeSpecs | None:
            row = self.table.get(node_id)
            return row.specs if row is not None else None

        self.node_keys = NodeKeyRequests(send=send)
        self.providers = ProviderService(
            database=self.database,
            requests=ChainRequestClient(self.database.chain_requests, self.clock),
            node_keys=self.node_keys,
            custody=self.custody,
            claim=self.money.claim,
            specs_of=specs_of,
            is_test_money=self.settings.development,
            free_idle_slices=self.accounting.ledger.free_idle_slices if self.accounting is not None else None,
            has_chain=self.settings.chain_url is not None,
        )

    def make_lease_orders(self) -> LeaseOrderService:
        def connected_specs(node_id: NodeId) -> NodeSpecs | None:
            row = self.table.get(node_id)
            return row.specs if row is not None and row.connected else None

        requests = LeaseRequestService(
            database=self.database,
            clock=self.clock,
            is_test_money=self.settings.development,
            free_idle_slices=self.accounting.ledger.free_idle_slices if self.accounting is not None else None,
        )
        return LeaseOrderService(
            database=self.database, requests=requests, market=self.market, connected_specs=connected_specs
        )

    def _make_inference(self, links: dict[NodeId, NodeLink], hosts: frozenset[str]) -> None:
        settings, table, clock, rng, slot = self.settings, self.table, self.clock, self.rng, self.slot
        metering = self.accounting.metering if self.accounting is not None else None
        self.counter = JobCounter(table.has_model, clock=clock)
        prefixes = PrefixIndex()

        def on_left(node_id: NodeId) -> None:
            prefixes.forget(node_id)
            self.lease_traffic.drop(node_id)

        self.catalog, self.demand = ModelCatalog(), UnmetDemand(clock=clock)
        self.price_caps = PriceCaps(
            table,
            metering.delivered.of if metering is not None else lambda _: {},
            ceiling=read_usd(settings.price_cap_usd_per_mtok, "price_cap_usd_per_mtok"),
            clock=clock,
        )
        self.links = LinkRegistry(
            links,
            table=table,
            tokens=self.tokens,
            hosts=hosts,
            health=self.health,
            clock=clock,
            rng=rng,
            ports=LinkPorts(slot.link_ports, slot.link_port),
            receipts=metering.receipts if metering is not None else None,
            before_sending=self.accounting.journal.flush if self.accounting is not None else None,
            on_left=on_left,
            catalog=self.catalog,
            demand=self.demand,
            bounds=FleetBounds(
                nodes_per_account=settings.nodes_per_account,
                models_per_account=settings.models_per_account,
                models_per_node=settings.models_per_node,
            ),
            on_forgotten=self._on_node_forgotten,
            on_node_key=self.node_keys.receive,
            price_notice=self.price_notice,
            on_lease=self.lease_acts.receive,
        )
        self.timings = TimingExchange(table, self.database.node_timings)
        self.records = RecordLoader(table, self.database.eras, self.clock)
        self.aliases = AliasService(store=self.database.model_aliases, apply=self.links.set_aliases)
        self.admission = AdmissionControl(
            table.capacity, clock=clock, rng=rng, on_waited=self.counter.totals.queue_wait.observe
        )
        self.sampler = AnswerSampler(records=self.check_records, table=table, clock=clock, rng=rng)
        self.dispatcher = Dispatcher(
            table=table,
            links=links,
            health=self.health,
            rules=DispatchRules(first_token_floor_s=settings.first_token_floor_s, idle_s=settings.idle_s),
            seed=settings.seed,
            clock=clock,
            observer=self.counter,
            prefixes=prefixes,
            is_leased=self.lease_excuses.covers,
            answers=self.sampler if settings.checks else None,
        )
        self.eligibility = Eligibility(table, clock=clock)
        self.inference = InferenceService(
            table=table,
            admission=self.admission,
            dispatcher=self.dispatcher,
            eligibility=self.eligibility,
            prices=self.price_caps,
            metering=metering,
            network_policy=read_network_policy(settings.route),
            default_ranking=settings.policy,
            prefix_secret=self.request_secret,
            drain=self.drain,
            rng=rng,
            catalog=self.catalog,
            demand=self.demand,
        )
        self.responses = ResponseRegistry(share=slot.count)
        self.checks = self._make_checks(metering)

    def _make_checks(self, metering: Metering | None) -> AnswerChecks:
        records, table, clock, rng = self.check_records, self.table, self.clock, self.rng
        daily = read_usd(self.settings.checks_daily_usd, "checks_daily_usd")
        return AnswerChecks(
            sampler=self.sampler,
            records=records,
            witnesses=Witnesses(table, records, rng),
            jobs=CheckDispatch(
                dispatcher=self.dispatcher,
                table=table,
                metering=metering,
                daily_nano=daily,
                price_cap=self.price_caps.of,
                new_match_id=self.inference.new_match_id,
            ),
            table=table,
            verdicts=self.database.check_verdicts,
            counts=self.database.check_counts,
            withheld=WithheldEarnings(self.database.ledger, clock) if metering is not None else None,
            fund=CheckFund(self.money.credits, daily_nano=daily, clock=clock) if metering is not None else None,
            clock=clock,
            rng=rng,
        )

    def price_notice(self, model: ModelReport) -> str | None:
        """What the owner of a node with this model is told about its price."""
        return self.price_caps.notice(model) if self.accounting is not None else None

    def _make_market(self, links: dict[NodeId, NodeLink]) -> None:
        """What follows the market: lookups to nodes, and matches from validators."""

        def offers_leases(node_id: NodeId) -> bool:
            row = self.table.get(node_id)
            return row is not None and row.specs.lease_offer is not None

        async def content_of(spec_hash: str, renter: str) -> OrderedContent | None:
            found = await self.database.lease_orders.find_spec(spec_hash, renter=renter)
            return None if found is None else OrderedContent(found.specification, found.content)

        development = self.settings.development
        lookups = LookupRelay(
            links=links,
            links_version=lambda: self.links.version,
            offers_leases=offers_leases,
            speaks_for=self.peers.is_first_with_link,
            content_of=content_of,
            beat_ms=DEVELOPMENT_BEAT_MS if development else PUBLIC_BEAT_MS,
            clock=self.clock,
        )
        self.lease_tasks = TaskRelay(
            link_of=lookups.link_of,
            content_of=content_of,
            renter_nonce=lookups.renter_nonce,
            store=self.database.lease_acts,
            clock=self.clock,
        )
        self.lease_acts = ActIntake(
            store=self.database.lease_acts,
            state=self.market.latest_state,
            contracts=lambda: act_contracts_of(self.market_relay.addresses),
            update_of=self.lease_tasks.proposed_update,
            on_numbered=self.lease_tasks.note_numbered,
        )
        store, fund = self.database.uptime_credits, self.money.uptime_fund
        self.uptime_credits = UptimeCredits(market=self.market, store=store, fund=fund, clock=self.clock)
        self.lease_excuses = LeaseExcuses(self.market.latest_state, self.clock)
        self.validators = StrangerClient(DialRules(allows_loopback=development))
        self.collector = MatchCollector(
            validators=self.validators,
            store=self.database.lease_matches,
            is_collector=self.peers.counts_uptime,
            asked_count=lambda order_id, attempt: lookups.asked_counts.get((order_id, attempt), 0),
            clock=self.clock,
        )
        self.market_relay = MarketRelay(
            index=self.market,
            changes=self.database.market_events,
            chain=self.database.chain,
            lookups=lookups,
            collector=self.collector,
            tasks=self.lease_tasks,
        )
        self.lease_matches = MatchService(
            index=self.market, matches=self.database.lease_matches, leases=self.make_lease_orders, clock=self.clock
        )
        self.recent_votes = RecentVoteCounts(index=self.market, matches=self.database.lease_matches, clock=self.clock)
        self.market_standing = MarketStanding(self.market, self.database.lease_matches)
        self.eras = EraService(
            database=self.database,
            chain=self.market_standing,
            clock=self.clock,
            era_s=round(self.settings.era_hours * 3_600),
            rule=with_share(DEFAULT_RULE, percent=self.settings.reward_share_percent),
        )

    def _make_lease_access(self, links: dict[NodeId, NodeLink], hosts: frozenset[str]) -> None:
        """How renters reach their leases."""

        def ask(node_id: NodeId) -> bool:
            link = links.get(node_id)
            if link is not None:
                link.request_traffic()
            return link is not None

        self.lease_traffic = TrafficHub(ask=ask, hosts=hosts, clock=self.clock, rng=self.rng)
        self.access_tickets = AccessTickets(process=self.slot.number, clock=self.clock, rng=self.rng)

    def make_lease_sites(self) -> LeaseSites:
        return LeaseSites(
            leases=self.make_lease_orders(), store=self.database.lease_sites, url_of=self.site_url, clock=self.clock
        )

    def make_lease_access(self) -> LeaseAccess:
        return LeaseAccess(
            leases=self.make_lease_orders(),
            view=self.market.view,
            streams=self.lease_traffic,
            places=StreamPlaces(),
            clock=self.clock,
        )

    def _make_telemetry(self, links: dict[NodeId, NodeLink]) -> None:
        database, table, clock, counter, peers = self.database, self.table, self.clock, self.counter, self.peers
        self.states = NodeStates(table, health=self.health, clock=clock, is_elsewhere=peers.has_link)
        self.live = LiveFeed(
            states=self.states,
            dispatcher=self.dispatcher,
            counter=counter,
            clock=clock,
            secret=self.handle_secret,
            run=new_id("feed", rng=self.rng, n_bytes=5),
            peers=peers,
            auctions=AuctionFeed(self.market),
        )
        self.history = HistoryWriter(
            counter,
            table,
            database.history,
            database.node_results,
            clock=clock,
            counts_uptime=peers.counts_uptime,
            has_peer_link=peers.has_link,
        )
        self.explanations = Explanations(
            dispatcher=self.dispatcher, table=table, keys=self.keys, database=database, peers=self.peer_client
        )
        self.pulse = PulseCounts(
            dispatcher=self.dispatcher,
            admission=self.admission,
            table=table,
            jobs=counter,
            peers=self.peer_client,
            instance=self.live.frames.run,
        )
        self.verified_facts = VerifiedFactsReader(
            table=table, history=database.history, market=self.market.latest_state, clock=clock
        )
        self.loop_lag = LoopLag(clock=clock)
        collector = MetricsCollector(
            table=table,
            health=self.health,
            dispatcher=self.dispatcher,
            admission=self.admission,
            counter=counter,
            live=self.live,
            loop_lag=self.loop_lag,
            limits=self.limits,
            power=self.links.power,
            servers=self.links.servers,
            links=links,
            ledger=self.accounting.ledger if self.accounting is not None else None,
            metering=self.accounting.metering if self.accounting is not None else None,
            drain=self.drain,
            by_node=self.settings.metrics_by_node,
            clock=clock,
        )
        self.metrics = MetricsServer(
            collector=collector, drain=self.drain, health=self.readiness, ports=self.slot.metrics_ports
        )

    async def order_of_lease(self, account: AccountId, wanted: str) -> str | None:
        return (await self.make_lease_orders().find(account, wanted)).order_id

    async def drop_leased_nodes(self) -> None:
        """Those whose leases are over leave the network."""
        ended = await self.leased_nodes.take_ended()
        self.links.drop(ended, why="its lease is over")
        self.links.forget(ended)

    def _on_node_forgotten(self, node_id: NodeId) -> None:
        self.counter.totals.node_tokens.pop(node_id, None)
        self.live.forget(node_id)

    async def load_known_nodes(self) -> None:
        """Add nodes that Postgres knows and this process has not seen: offline in the table until they connect."""
        for node in await self.database.list_nodes():
            if node.specs is not None and self.table.get(node.id) is None:
                self.links.remember(
                    node.id,
                    node.account_id,
                    node.specs,
                    last_seen_unix_s=node.last_seen_unix_s,
                    has_served=node.has_served,
                )


async def assemble(
    settings: GatewaySettings, database: Database, *, port: int, clock: Clock, rng: Rng, slot: ProcessSlot = ALONE
) -> Services:
    """All parts of a gateway, loaded with what is in Postgres. Raises StartupError."""
    may_make = not await database.accounts.has_secret()
    secret = await asyncio.to_thread(network_secret, settings, rng, may_make=may_make)
    custody = Custody(secret, rng=rng)
    await check_secret(database.accounts, custody)
    await add_missing_chain_keys(database.accounts, custody)
    client = PeerClient(slot)
    peers = Peers(client, clock=clock, run=new_id("run", rng=rng, n_bytes=5))
    links: dict[NodeId, NodeLink] = {}
    records = CheckRecords(settings.vouched_accounts)
    accounting = None
    if settings.billing:
        accounting = await open_accounting(
            settings.data,
            database.ledger,
            clock=clock,
            rng=rng,
            send=partial(countersign, links),
            peers=_peer_credits(client, peers) if slot.others else None,
            withholds=records.withholds if settings.checks else None,
        )
    services = Services(
        settings=settings,
        database=database,
        table=NodeTable(zones=NodeZones(gateway_zone=_zone_of(settings.region))),
        accounting=accounting,
        custody=custody,
        check_records=records,
        people=AccountService(database.accounts, passwords=Passwords(), custody=custody, rng=rng),
        secret=secret,
        node_links=links,
        port=port,
        peer_client=client,
        peers=peers,
        clock=clock,
        rng=rng,
    )
    await services.key_service.sync()
    await services.aliases.reload()
    await services.load_known_nodes()
    return services


def _zone_of(region: str | None) -> int:
    """The zone of this gateway, 0 if the operator does not say. Raises StartupError for a word that names none."""
    zone = zone_of_region(region) if region else UNKNOWN_ZONE
    if region and zone == UNKNOWN_ZONE:
        raise StartupError(
            f"The setting 'region' of the gateway names no one zone: {region[:60]!r}. Give a country or a part of one, "
            "such as DE or us-west."
        )
    return zone


def _peer_credits(client: PeerClient, peers: Peers) -> PeerCredits:
    async def call_in(account: AccountId) -> bool:
        return any(reply.yes for reply in await client.ask_all(GIVE_BACK, GiveBackRequest(account)))

    return PeerCredits(call_in, peers.pending, SHARED_BUDGET_RELOAD_S)
