"""Every route of the gateway: the endpoint classes of `api/`, each with the collaborators it needs."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from sparewatt.api.accounts.join_tokens import JoinTokenEndpoints
from sparewatt.api.accounts.keys import KeyEndpoints
from sparewatt.api.accounts.me import OwnAccountEndpoints
from sparewatt.api.accounts.operators import OperatorEndpoints
from sparewatt.api.accounts.passwords import PasswordEndpoints
from sparewatt.api.accounts.sessions import SessionEndpoints
from sparewatt.api.dashboard.bundle import Bundle
from sparewatt.api.dashboard.pages import DashboardEndpoints, not_found_page
from sparewatt.api.endpoint import aiohttp_route, routes_of
from sparewatt.api.inference.endpoints import READERS, InferenceRoutes
from sparewatt.api.matches.dry_run import DryRunEndpoints
from sparewatt.api.matches.matches import MatchEndpoints
from sparewatt.api.models.endpoints import ModelEndpoints
from sparewatt.api.money.credits import CreditEndpoints
from sparewatt.api.money.earnings import EarningsEndpoints
from sparewatt.api.money.earnings_summary import EarningsSummaryEndpoints
from sparewatt.api.money.generation import GenerationEndpoints
from sparewatt.api.money.key_info import KeyInfoEndpoints
from sparewatt.api.money.ledger import LedgerEndpoints
from sparewatt.api.money.payouts import PayoutEndpoints
from sparewatt.api.money.treasury import TreasuryEndpoints
from sparewatt.api.money.usage import UsageEndpoints
from sparewatt.api.network.feed import FeedEndpoints
from sparewatt.api.network.history import HistoryEndpoints
from sparewatt.api.network.network import NetworkEndpoints
from sparewatt.api.nodes.link import LinkEndpoints
from sparewatt.api.nodes.nodes import NodeEndpoints
from sparewatt.api.nodes.reputation import ReputationEndpoints
from sparewatt.api.nodes.uptime_calendar import UptimeCalendarEndpoints
from sparewatt.api.nodes.why import WhyEndpoints
from sparewatt.api.openapi.document import OpenApiEndpoints
from sparewatt.api.operations.chain import ChainEndpoints
from sparewatt.api.operations.downloads import DownloadEndpoints
from sparewatt.api.operations.health import HealthEndpoints
from sparewatt.api.operations.pulse import PulseEndpoints
from sparewatt.api.responses.compact import CompactionEndpoints
from sparewatt.api.responses.create import ResponseEndpoints
from sparewatt.api.responses.stored import StoredResponseEndpoints
from sparewatt.api.responses.submissions import ResponseSubmissions
from sparewatt.edge.connection_registry import Refusals
from sparewatt.edge.exchange import InferenceEndpoints
from sparewatt.edge.middleware import error_boundary, remember_reply, reply_headers, request_log
from sparewatt.edge.proxies import refuse_bypass
from sparewatt.gateway.services import Services
from sparewatt.inference.responses.shelf import ShelfFactory


def endpoint_groups(services: Services) -> list[object]:
    """Made once per process: some have state, and answer questions of other processes."""
    return [
        *_inference_groups(services),
        *_network_groups(services),
        *_account_groups(services),
        *_money_groups(services),
        *_operation_groups(services),
    ]


def _inference_groups(services: Services) -> list[object]:
    auth, clock, rng = services.auth, services.clock, services.rng
    shelves = ShelfFactory(store=services.database.responses, rng=rng)
    submissions = ResponseSubmissions(
        service=services.inference, auth=auth, idempotency=services.idempotency, shelves=shelves
    )
    return [
        InferenceRoutes(),
        ResponseEndpoints(submissions=submissions, registry=services.responses, clock=clock, rng=rng),
        CompactionEndpoints(submissions=submissions, auth=auth, shelves=shelves, clock=clock, rng=rng),
        StoredResponseEndpoints(auth=auth, shelves=shelves, registry=services.responses, peers=services.peer_client),
        ModelEndpoints(auth=auth, rows=services.table, started_unix_s=services.started_unix_s),
    ]


def _network_groups(services: Services) -> list[object]:
    auth, clock, table, database = services.auth, services.clock, services.table, services.database
    books = database.ledger if services.accounting is not None else None
    return [
        NodeEndpoints(
            auth=auth,
            table=table,
            states=services.states,
            power=services.links.power,
            peers=services.peer_client,
            handle_secret=services.handle_secret,
            clock=clock,
        ),
        WhyEndpoints(
            auth=auth,
            table=table,
            matches=services.dispatcher,
            owners=services.links.owners,
            joined_unix_s=services.links.joined_unix_s,
            peers=services.peer_client,
            process_count=services.slot.count,
        ),
        UptimeCalendarEndpoints(auth=auth, table=table, history=database.history, clock=clock),
        ReputationEndpoints(auth=auth, table=table, records=database.node_results, clock=clock),
        FeedEndpoints(live=services.live, drain=services.drain),
        NetworkEndpoints(
            states=services.states,
            live=services.live,
            published=services.public_limits.published,
            clock=clock,
            signup_mode=services.settings.signup_mode,
            has_billing=services.settings.billing,
            is_development=services.settings.development,
        ),
        HistoryEndpoints(store=database.history, published=services.public_limits.published, clock=clock),
        DryRunEndpoints(
            auth=auth, inference=services.inference, explanations=services.explanations, books=books, clock=clock
        ),
        MatchEndpoints(auth=auth, explanations=services.explanations),
    ]


def _account_groups(services: Services) -> list[object]:
    auth, people, keys, sessions = services.auth, services.people, services.key_service, services.sessions
    limits, origins = services.public_limits, services.origins
    return [
        SessionEndpoints(
            auth=auth,
            people=people,
            sessions=sessions,
            doors=limits,
            signup_mode=services.settings.signup_mode,
            signup_hook=services.money.credits,
            origins=origins,
        ),
        PasswordEndpoints(
            auth=auth,
            people=people,
            sessions=sessions,
            doors=limits,
            mailer=services.mailer,
            root_url=services.root_url,
            origins=origins,
        ),
        OwnAccountEndpoints(auth=auth, people=people, keys=keys, sessions=sessions, login_door=limits.login),
        OperatorEndpoints(auth=auth, people=people, pages=services.database.accounts, keys=keys, sessions=sessions),
        KeyEndpoints(auth=auth, keys=keys, clock=services.clock),
        JoinTokenEndpoints(
            auth=auth, tokens=services.tokens, keys=keys, sessions=sessions, join_line=services.downloads.join_line
        ),
    ]


def _money_groups(services: Services) -> list[object]:
    auth, people, money, database = services.auth, services.people, services.money, services.database
    clock, rng, table = services.clock, services.rng, services.table
    return [
        CreditEndpoints(auth=auth, accounts=people, credit_service=money.credits, adapters=money.adapters, rng=rng),
        KeyInfoEndpoints(auth=auth, spending=database.ledger, credit_service=money.credits, clock=clock),
        UsageEndpoints(auth=auth, accounts=people, statements=database.statements, clock=clock),
        GenerationEndpoints(auth=auth, jobs=database.statements, nodes=table),
        EarningsEndpoints(auth=auth, accounts=people, statements=database.statements, nodes=table, clock=clock),
        EarningsSummaryEndpoints(
            auth=auth,
            accounts=people,
            statements=database.statements,
            books=database.ledger,
            payouts=database.payouts,
            power=database.power,
            credit_service=money.credits,
            nodes=table,
            clock=clock,
        ),
        PayoutEndpoints(
            auth=auth,
            accounts=people,
            payouts=database.payouts,
            settlement=money.settlement,
            on_chain=money.on_chain,
            published=services.public_limits.published,
            clock=clock,
        ),
        TreasuryEndpoints(auth=auth, credit_service=money.credits, rng=rng),
        LedgerEndpoints(auth=auth, books=database.ledger),
    ]


def _operation_groups(services: Services) -> list[object]:
    auth, clock = services.auth, services.clock
    return [
        PulseEndpoints(
            auth=auth,
            rows=services.table,
            states=services.states,
            power=services.links.power,
            counts=services.pulse,
            clock=clock,
            started_unix_s=services.started_unix_s,
        ),
        ChainEndpoints(
            auth=auth,
            store=services.database.chain,
            chain_url=services.settings.chain_url,
            clock=clock,
            process_count=services.slot.count,
        ),
        HealthEndpoints(rows=services.table, drain=services.drain),
        DownloadEndpoints(downloads=services.downloads),
        LinkEndpoints(links=services.links),
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
    app = web.Application(
        middlewares=[*log, boundary, *refuse_bypass(settings.edge), not_found_page(dashboard.home_page)]
    )
    app.on_response_prepare.append(reply_headers(clock))
    if settings.request_log:
        app.on_response_prepare.append(remember_reply)
    routes = routes_of(groups)
    routes += routes_of([OpenApiEndpoints(routes)])
    app.add_routes(map(aiohttp_route, routes))
    return app


def make_link_app(services: Services) -> web.Application:
    """What the link port of a process serves: node links, and nothing else."""
    boundary = error_boundary(services.settings.edge, services.counter, clock=services.clock, rng=services.rng)
    app = web.Application(middlewares=[boundary])
    app.on_response_prepare.append(reply_headers(services.clock))
    app.add_routes(map(aiohttp_route, routes_of([LinkEndpoints(links=services.links)])))
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
    )


def refusals(services: Services) -> Refusals:
    return Refusals(errors=services.counter, is_logged=services.settings.request_log, rng=services.rng)
