"""Every route of the gateway: the endpoint classes of `api/`, each with the collaborators it needs."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from sparewatt.api.accounts.accounts import (
    AccountCaches,
    JoinTokenEndpoints,
    OperatorEndpoints,
    OwnAccountEndpoints,
)
from sparewatt.api.accounts.keys import KeyEndpoints
from sparewatt.api.accounts.sessions import SessionEndpoints
from sparewatt.api.conversations.conversations import ConversationEndpoints
from sparewatt.api.dashboard.pages import Bundle, DashboardEndpoints, not_found_page
from sparewatt.api.endpoint import aiohttp_route, routes_of
from sparewatt.api.inference.endpoints import READERS, InferenceRoutes
from sparewatt.api.inference.stored_chats import StoredChatEndpoints
from sparewatt.api.inference.translated import TranslatedCalls
from sparewatt.api.leases.changes import LeaseChangeEndpoints
from sparewatt.api.leases.lease_logs import LeaseLogEndpoints
from sparewatt.api.leases.lease_match import LeaseMatchEndpoints
from sparewatt.api.leases.lease_secrets import LeaseSecretEndpoints
from sparewatt.api.leases.lease_sites import LeaseSiteEndpoints
from sparewatt.api.leases.lease_sockets import LeaseSocketEndpoints
from sparewatt.api.leases.leases import LeaseEndpoints
from sparewatt.api.leases.providers import ProviderEndpoints
from sparewatt.api.leases.site_proxy import SiteProxy
from sparewatt.api.market.market import MarketEndpoints
from sparewatt.api.market.tables import MarketTableEndpoints
from sparewatt.api.matches.matches import DryRunEndpoints, MatchEndpoints
from sparewatt.api.messages.messages import MessageEndpoints
from sparewatt.api.models.aliases import ModelAliasEndpoints
from sparewatt.api.models.models import ModelEndpoints
from sparewatt.api.money.chain_money import ChainMoneyEndpoints
from sparewatt.api.money.credits import CreditEndpoints, KeyInfoEndpoints
from sparewatt.api.money.earnings import EarningsEndpoints
from sparewatt.api.money.lease_income import LeaseIncomeEndpoints
from sparewatt.api.money.ledger import LedgerEndpoints
from sparewatt.api.money.payouts import PayoutEndpoints
from sparewatt.api.money.rewards import RewardEndpoints
from sparewatt.api.money.uptime_fund import UptimeFundEndpoints
from sparewatt.api.money.usage import UsageEndpoints
from sparewatt.api.network.feed import FeedEndpoints
from sparewatt.api.network.history import HistoryEndpoints
from sparewatt.api.network.network import NetworkEndpoints
from sparewatt.api.nodes.checks import CheckEndpoints
from sparewatt.api.nodes.link import LinkEndpoints
from sparewatt.api.nodes.nodes import NodeEndpoints
from sparewatt.api.nodes.track_record import TrackRecordEndpoints
from sparewatt.api.nodes.traffic import TrafficEndpoints
from sparewatt.api.nodes.trust import TrustEndpoints
from sparewatt.api.nodes.why import WhyEndpoints
from sparewatt.api.ollama.generation import OllamaGenerationEndpoints
from sparewatt.api.ollama.models import OllamaModelEndpoints
from sparewatt.api.openapi.document import OpenApiEndpoints
from sparewatt.api.operations.chain import ChainEndpoints, RpcRateLimit
from sparewatt.api.operations.health import HealthEndpoints
from sparewatt.api.operations.pulse import PulseEndpoints
from sparewatt.api.responses.compaction import CompactionEndpoints
from sparewatt.api.responses.drafts import ResponseDrafts
from sparewatt.api.responses.responses import ResponseEndpoints
from sparewatt.api.responses.sockets import ResponseSocketEndpoints
from sparewatt.api.responses.stored import StoredResponseEndpoints
from sparewatt.api.responses.submissions import ResponseSubmissions, id_maker
from sparewatt.edge.connection_registry import Refusals
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.middleware import error_boundary, remember_reply, reply_headers, request_log
from sparewatt.edge.proxies import refuse_bypass
from sparewatt.gateway.services import Services
from sparewatt.inference.checks.retrial import Retrials
from sparewatt.inference.responses.completions import CompletionRecorder
from sparewatt.inference.responses.shelf import ShelfFactory
from sparewatt.leasing.changes.change_service import LeaseChangeService
from sparewatt.leasing.changes.secret_intake import SecretIntake
from sparewatt.leasing.running.programs import LeasePrograms
from sparewatt.ledger.payouts import PayoutService


def endpoint_groups(services: Services) -> list[object]:
    """Made once per process: some have state, and answer questions of other processes."""
    return [
        *_inference_groups(services),
        *_network_groups(services),
        *_account_groups(services),
        *_money_groups(services),
        *_lease_groups(services),
        *_operation_groups(services),
    ]


def _inference_groups(services: Services) -> list[object]:
    clock, responses, make_id = services.clock, services.responses, id_maker(services.rng)
    shelves = _shelves(services)
    submissions = ResponseSubmissions(
        service=services.inference, limiter=services.auth, idempotency=services.idempotency, shelves=shelves
    )
    drafts = ResponseDrafts(submissions=submissions, registry=responses, make_id=make_id, clock=clock)
    calls = TranslatedCalls(service=services.inference, limiter=services.auth, idempotency=services.idempotency)
    models = ModelEndpoints(rows=services.table, catalog=services.catalog, started_unix_s=services.started_unix_s)
    return [
        InferenceRoutes(),
        ResponseEndpoints(submissions=submissions, drafts=drafts, registry=responses),
        ResponseSocketEndpoints(
            submissions=submissions, drafts=drafts, auth=services.auth, errors=services.counter, clock=clock
        ),
        CompactionEndpoints(submissions=submissions, shelves=shelves, make_id=make_id, clock=clock),
        StoredChatEndpoints(shelves=shelves),
        ConversationEndpoints(shelves=shelves, make_id=make_id, clock=clock),
        StoredResponseEndpoints(shelves=shelves, registry=responses, peers=services.peer_client),
        MessageEndpoints(calls=calls, make_id=make_id),
        OllamaGenerationEndpoints(calls=calls, clock=clock),
        OllamaModelEndpoints(models=models),
        models,
        ModelAliasEndpoints(aliases=services.aliases),
    ]


def _shelves(services: Services) -> ShelfFactory:
    return ShelfFactory(
        store=services.database.responses,
        documents=services.database.documents,
        rng=services.rng,
        retention_of=services.inference.retention_of,
    )


def _network_groups(services: Services) -> list[object]:
    clock, table, database = services.clock, services.table, services.database
    books = database.ledger if services.accounting is not None else None
    return [
        NodeEndpoints(
            table=table,
            states=services.states,
            sensors_of=services.links.power.latest,
            peers=services.peer_client,
            price_notice=services.price_notice,
            handle_secret=services.handle_secret,
            clock=clock,
        ),
        WhyEndpoints(
            table=table,
            matches=services.dispatcher,
            owners=services.links.owners,
            joined_unix_s=services.links.joined_unix_s,
            peers=services.peer_client,
            process_count=services.slot.count,
            demand=services.demand,
            price_notice=services.price_notice,
        ),
        TrackRecordEndpoints(table=table, results=database.node_results, history=database.history, clock=clock),
        CheckEndpoints(
            table=table,
            records=services.check_records,
            sampler=services.sampler,
            verdicts=database.check_verdicts,
            retrials=Retrials(services.checks),
            withheld=services.checks.withheld,
        ),
        FeedEndpoints(live=services.live, drain=services.drain),
        NetworkEndpoints(
            states=services.states,
            totals=services.live.totals,
            public_limiter=services.public_limits.published,
            clock=clock,
            signup_mode=services.settings.signup_mode,
            has_billing=services.settings.billing,
            has_chain=services.market.has_chain,
            is_development=services.settings.development,
        ),
        HistoryEndpoints(store=database.history, public_limiter=services.public_limits.published, clock=clock),
        DryRunEndpoints(inference=services.inference, explanations=services.explanations, books=books, clock=clock),
        MatchEndpoints(explanations=services.explanations),
        MarketTableEndpoints(public_limiter=services.public_limits.published),
        MarketEndpoints(limiter=services.auth, market=services.market, votes=services.recent_votes),
    ]


def _account_groups(services: Services) -> list[object]:
    people, keys, sessions = services.people, services.key_service, services.sessions
    limiters, caches = services.public_limits, AccountCaches(sessions=sessions, keys=keys)
    return [
        SessionEndpoints(
            accounts=people,
            sessions=sessions,
            limiters=limiters,
            login_limiter=services.login_limiter,
            signup_mode=services.settings.signup_mode,
            signup_hook=services.money.credits,
            mailer=services.mailer,
            root_url=services.root_url,
            origins=services.origins,
        ),
        OwnAccountEndpoints(accounts=people, keys=keys, caches=caches, login_limiter=services.login_limiter),
        OperatorEndpoints(accounts=people, pages=services.database.accounts, caches=caches),
        KeyEndpoints(keys=keys, clock=services.clock),
        JoinTokenEndpoints(
            tokens=services.tokens,
            caches=caches,
            join_line=services.downloads.join_line,
            order_of=services.order_of_lease,
        ),
    ]


def _money_groups(services: Services) -> list[object]:
    people, money, database = services.people, services.money, services.database
    clock, table = services.clock, services.table
    return [
        CreditEndpoints(
            accounts=people,
            credits=money.credits,
            adapters=money.adapters,
            chain=money.chain_credits,
            rng=services.rng,
        ),
        ChainMoneyEndpoints(
            accounts=people,
            chain=money.chain_credits,
            free_idle_slices=services.accounting.ledger.free_idle_slices if services.accounting is not None else None,
            rng=services.rng,
        ),
        KeyInfoEndpoints(limiter=services.auth, spending=database.ledger, credits=money.credits, clock=clock),
        UsageEndpoints(accounts=people, statements=database.statements, nodes=table, clock=clock),
        EarningsEndpoints(
            accounts=people,
            statements=database.statements,
            books=database.ledger,
            payouts=database.payouts,
            power=database.power,
            credits=money.credits,
            nodes=table,
            clock=clock,
        ),
        LeaseIncomeEndpoints(accounts=people, providers=database.providers, market=services.market, clock=clock),
        PayoutEndpoints(
            accounts=people,
            payouts=database.payouts,
            settlement=money.settlement,
            rewards=database.reward_payouts,
            reward_settlement=PayoutService(database.reward_payouts, clock=clock),
            on_chain=money.on_chain,
            public_limiter=services.public_limits.published,
            clock=clock,
        ),
        RewardEndpoints(
            accounts=people,
            eras=database.eras,
            payouts=database.reward_payouts,
            books=database.ledger,
            credits=money.credits,
            providers=database.providers,
            nodes=table,
            owners=services.links.owners,
            era_s=services.eras.era_s,
            public_limiter=services.public_limits.published,
            clock=clock,
            rng=services.rng,
        ),
        TrustEndpoints(
            table=table,
            eras=database.eras,
            tiers=database.node_tiers,
            timings=database.node_timings,
            chain=services.market_standing,
            rule=services.eras.rule,
            clock=clock,
        ),
        LedgerEndpoints(books=database.ledger, chain=money.chain_credits),
        UptimeFundEndpoints(fund=money.uptime_fund, credits=database.uptime_credits, rng=services.rng),
    ]


def _lease_groups(services: Services) -> list[object]:
    orders, clock, rng = services.make_lease_orders(), services.clock, services.rng
    secrets = SecretIntake(orders, services.database.lease_acts)
    programs = LeasePrograms(services.lease_acts.reports, services.database.lease_acts)
    access, sites = services.make_lease_access(), services.make_lease_sites()
    return [
        ProviderEndpoints(
            providers=services.providers, accounts=services.people, nodes=services.table, rng=services.rng
        ),
        LeaseEndpoints(
            orders=orders,
            secrets=secrets,
            uptime_credits=services.uptime_credits,
            programs=programs,
            clock=clock,
            rng=rng,
        ),
        LeaseChangeEndpoints(changes=LeaseChangeService(orders), clock=clock, rng=rng),
        LeaseSecretEndpoints(orders=orders, secrets=secrets, chain=services.database.chain),
        LeaseMatchEndpoints(limiter=services.auth, matches=services.lease_matches),
        LeaseLogEndpoints(access=access, tickets=services.access_tickets, clock=services.clock),
        LeaseSiteEndpoints(sites=sites),
        SiteProxy(sites=sites, access=access, settings=services.settings.edge),
        LeaseSocketEndpoints(
            access=access,
            tickets=services.access_tickets,
            auth=services.auth,
            peers=services.peer_client,
        ),
    ]


def _operation_groups(services: Services) -> list[object]:
    clock = services.clock
    return [
        PulseEndpoints(
            rows=services.table,
            state_of=services.states.of,
            sensors_of=services.links.power.latest,
            counts=services.pulse,
            clock=clock,
            started_unix_s=services.started_unix_s,
        ),
        ChainEndpoints(
            payouts=services.database.payouts,
            limiter=services.auth,
            store=services.database.chain,
            chain_url=services.settings.chain_url,
            rate_limit=RpcRateLimit(clock, services.slot.count),
        ),
        HealthEndpoints(rows=services.table, drain=services.drain, health=services.readiness),
        services.downloads,
        LinkEndpoints(links=services.links),
        TrafficEndpoints(traffic=services.lease_traffic),
        DashboardEndpoints(
            bundle=Bundle(),
            states=services.states,
            jobs_running=lambda: services.dispatcher.running + services.peers.totals().jobs,
        ),
    ]


def make_app(services: Services, groups: Sequence[object] | None = None) -> web.Application:
    """What aiohttp serves: every route except those that models answer and, with picows, node links."""
    settings, clock = services.settings, services.clock
    groups = endpoint_groups(services) if groups is None else groups
    dashboard = next(group for group in groups if isinstance(group, DashboardEndpoints))
    boundary = error_boundary(settings.edge, services.counter, clock=clock, rng=services.rng)
    log = [request_log(services.dispatcher.record, clock=clock)] if settings.request_log else []
    sites = next(group for group in groups if isinstance(group, SiteProxy))
    app = web.Application(
        middlewares=[
            sites.middleware(),
            *log,
            boundary,
            *refuse_bypass(settings.edge),
            not_found_page(dashboard.home_page),
        ]
    )
    app.on_response_prepare.append(reply_headers(clock))
    if settings.request_log:
        app.on_response_prepare.append(remember_reply)
    routes = routes_of(groups)
    routes += routes_of([OpenApiEndpoints(routes)])
    app.add_routes(aiohttp_route(route, services.auth) for route in routes)
    return app


def make_link_app(services: Services) -> web.Application:
    """What the link port of a process serves: node links and their lease traffic, and nothing else."""
    boundary = error_boundary(services.settings.edge, services.counter, clock=services.clock, rng=services.rng)
    app = web.Application(middlewares=[boundary, *refuse_bypass(services.settings.edge)])
    app.on_response_prepare.append(reply_headers(services.clock))
    routes = routes_of([LinkEndpoints(links=services.links), TrafficEndpoints(traffic=services.lease_traffic)])
    app.add_routes(aiohttp_route(route, services.auth) for route in routes)
    return app


def inference_endpoints(services: Services) -> InferenceEndpoints:
    """The endpoints that models answer, served without aiohttp."""
    return InferenceEndpoints(
        readers=READERS,
        service=services.inference,
        auth=services.auth,
        idempotency=services.idempotency,
        errors=services.counter,
        settings=services.settings.edge,
        clock=services.clock,
        rng=services.rng,
        recorder=CompletionRecorder(_shelves(services)),
    )


def refusals(services: Services) -> Refusals:
    return Refusals(errors=services.counter, is_logged=services.settings.request_log, rng=services.rng)
