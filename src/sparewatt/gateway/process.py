"""The gateway process: put the parts together, listen, keep the background work going, stop cleanly."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sparewatt.accounts.custody import Custody, check_secret, fill_missing
from sparewatt.accounts.doors import Doors
from sparewatt.accounts.keys import KeyRing, KeyService
from sparewatt.accounts.limits import RateLimits
from sparewatt.accounts.mail import Mailer, read_mail_server
from sparewatt.accounts.passwords import Passwords
from sparewatt.accounts.people import People
from sparewatt.accounts.sessions import Sessions
from sparewatt.accounts.tokens import JoinTokens
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import ShuttingDown, StoreUnavailable
from sparewatt.core.limits import JOB_TIMEOUT_S
from sparewatt.core.log import Log
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.gateway.accounting import Chore, chores, open_accounting
from sparewatt.gateway.addresses import bind, listen, own_hosts, own_origins, own_root_url, refuse_unsafe, wait_at
from sparewatt.gateway.downloads import OWN
from sparewatt.gateway.feeds.live import LOOK_S
from sparewatt.gateway.feeds.matches import store_matches
from sparewatt.gateway.front import listening
from sparewatt.gateway.history.keeper import STORE_S
from sparewatt.gateway.links import LinkDesk
from sparewatt.gateway.metrics.listener import metrics_listening, open_metrics_socket
from sparewatt.gateway.money.desk import make_desk
from sparewatt.gateway.openai.responses.registry import LiveResponses
from sparewatt.gateway.openai.routing import check_policy, read_network_policy
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.secret import network_secret
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.place import ALONE, Place
from sparewatt.gateway.siblings.taking_part import know_nodes, share, sibling_chores, taking_part, until_it_may_open
from sparewatt.gateway.tls import CHECK_S, Certificate
from sparewatt.inference.admission.service import Admission
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import DispatchRules
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.model import HealthRules, NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.prices import PriceCaps
from sparewatt.ledger.retention import kept_since
from sparewatt.store.database import Database
from sparewatt.supervisor.data_dir import make_private_dir
from sparewatt.supervisor.kept_postgres import kept_postgres
from sparewatt.supervisor.signals import stop_event

_log = Log("sparewatt.gateway")

POSTGRES = "postgres"
KEY_SYNC_S = 1.0
KEY_USE_S = 60.0
NODE_SAVE_S = 2.0
HEALTH_CHECK_S = 0.5
COMPILE_CHECK_S = 2.0
COMPILE_FROM_NODES = 256
MATCH_STORE_S = 1.0
RESPONSE_TEND_S = 1.0
RESPONSE_FORGET_S = 60.0
RESPONSE_CLOSE_S = 2.0
POWER_S = 5.0
MAIL_PAUSE_S = 0.1
MONEY_S = 600.0
PREFIX_SECRET_BYTES = 32
TIDY_S = 3600.0
GC_YOUNG, GC_OLDER = 20_000, 10
"""New objects until the young ones are looked through, and how many times that until the older ones are."""
LEAK_AGE_S = JOB_TIMEOUT_S + 60


async def run_gateway(settings: GatewaySettings, place: Place = ALONE) -> None:
    """Serve until SIGTERM or SIGINT. Raises StartupError. `place`: which process it is, of a gateway of several."""
    refuse_unsafe(settings)
    certificate = read_certificate(settings)
    stop = stop_event(on_hangup=certificate.reload if certificate is not None else None)
    clock, rng = SystemClock(), SystemRng()
    async with AsyncExitStack() as stack:
        bound = (
            bind(settings.host, settings.port, shared=True) if place.others else listen(settings.host, settings.port)
        )
        stack.callback(bound.close)
        metrics = open_metrics_socket(settings, place)
        if metrics is not None:
            stack.callback(metrics.close)
        database = await Database.connect(await stack.enter_async_context(own_postgres(settings, clock=clock, rng=rng)))
        stack.push_async_callback(database.close)
        port: int = bound.getsockname()[1]
        services = await assemble(settings, database, port=port, clock=clock, rng=rng, place=place)
        tls = certificate.context if certificate is not None else None
        if place.others:
            await stack.enter_async_context(taking_part(services, tls=tls))
            await until_it_may_open(services, stop)
        app = make_app(services)
        await stack.enter_async_context(metrics_listening(services, metrics))
        await stack.enter_async_context(listening(app, wait_at(bound), tls=tls))
        services.siblings.is_open = True
        for file, socket in ((settings.metrics_port_file, metrics), (settings.port_file, bound)):
            if file is not None and socket is not None:
                await asyncio.to_thread(write_port, file, socket.getsockname()[1])
        services.meters.watch_loop()
        _spare_the_collector()
        _log.info("gateway_listening", host=settings.host, port=port, tls=settings.has_tls)
        app[OWN].pack()
        await _serve_until(stop, services, certificate)


def read_certificate(settings: GatewaySettings) -> Certificate | None:
    """Raises StartupError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_cert, settings.tls_key)


@asynccontextmanager
async def own_postgres(settings: GatewaySettings, *, clock: Clock, rng: Rng) -> AsyncIterator[str]:
    """The operator's own, or one that runs as long as this process does."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    home = make_private_dir(settings.data.expanduser()) / POSTGRES
    async with kept_postgres(home, clock=clock, rng=rng, tell=lambda text: _log.info("own_postgres", said=text)) as dsn:
        yield dsn


async def assemble(
    settings: GatewaySettings, database: Database, *, port: int, clock: Clock, rng: Rng, place: Place = ALONE
) -> Services:
    """All parts of a gateway, loaded with what Postgres knows."""
    may_make = not await database.people.has_secret()
    secret = await asyncio.to_thread(network_secret, settings, rng, may_make=may_make)
    custody = Custody(secret, rng=rng)
    await check_secret(database.people, custody)
    await fill_missing(database.people, custody)
    mail_server = read_mail_server(settings.smtp_url, settings.smtp_from)
    health = HealthRules(
        heartbeat_s=settings.heartbeat_s,
        suspect_after_missed=settings.suspect_after_missed,
        offline_after_missed=settings.offline_after_missed,
    )
    table, ring = NodeTable(gateways=place.count), KeyRing()
    tokens = JoinTokens(database, rng=rng)
    hosts = own_hosts(settings, port=port, link_port=place.link_port)
    desk = LinkDesk(table=table, tokens=tokens, hosts=hosts, health=health, clock=clock, rng=rng, place=place)
    admission = Admission(table.room, clock=clock, rng=rng)
    table.room.on_room = admission.on_room
    rules = DispatchRules(first_token_floor_s=settings.first_token_floor_s, idle_s=settings.idle_s)
    accounting = (
        await open_accounting(settings.data, database.books, clock=clock, rng=rng) if settings.billing else None
    )
    if accounting is not None:
        desk.take_receipt = accounting.metering.receipts.on_receipt
        desk.before_sending = accounting.journal.flush
        accounting.metering.receipts.send = desk.countersign
    money = make_desk(settings, database, clock=clock)
    services = Services(
        settings=settings,
        database=database,
        ring=ring,
        keys=KeyService(database, ring, rng=rng, check_policy=check_policy),
        people=People(database.people, passwords=Passwords(), custody=custody, rng=rng),
        sessions=Sessions(database.people, clock=clock, rng=rng),
        doors=Doors(signups_per_address_hour=settings.signups_per_address_hour, clock=clock, share=place.count),
        tokens=tokens,
        table=table,
        desk=desk,
        admission=admission,
        dispatcher=Dispatcher(
            table=table, links=desk.links, health=health, rules=rules, seed=settings.seed, clock=clock
        ),
        money=money,
        signup_hook=money.credits,
        health=health,
        clock=clock,
        rng=rng,
        prefix_secret=bytes.fromhex(place.prompt_secret) or rng.randbytes(PREFIX_SECRET_BYTES),
        started_unix_s=clock.unix_s(),
        root_url=own_root_url(settings, port=port),
        origins=own_origins(settings, port=port),
        limits=rate_limits(settings, share=place.count),
        prices=PriceCaps(table.median_price, clock=clock),
        eligibility=Eligibility(table, clock=clock),
        network_policy=read_network_policy(settings.route),
        accounting=accounting,
        mailer=Mailer(mail_server) if mail_server is not None else None,
        handle_secret=hashlib.blake2b(secret, digest_size=32, person=b"sparewatt names").digest(),
        place=place,
        responses=LiveResponses(share=place.count),
    )
    desk.on_left = services.dispatcher.prefixes.forget
    share(services)
    await services.keys.sync()
    await know_nodes(services)
    return services


def rate_limits(settings: GatewaySettings, *, share: int = 1) -> RateLimits:
    return RateLimits(
        share=share,
        requests_per_min=settings.requests_per_min,
        tokens_per_min=settings.tokens_per_min,
        address_requests_per_min=settings.address_requests_per_min,
        address_tokens_per_min=settings.address_tokens_per_min,
    )


def _spare_the_collector() -> None:
    """What a job leaves is freed without the collector, which is for the rings that rare ways and libraries make.

    What was loaded until now stays for ever and is never looked through. With 20,000 young objects, a few hundred jobs
    under way, the collector has 1 % of the time of a gateway at full speed; with 2,000 the same, in more pauses. Older
    ones are looked through ten times less often each, which cost nothing either: with fifty times, a ring that had
    lived for seconds would hardly ever be found.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_OLDER, GC_OLDER)


def write_port(path: Path, port: int) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(str(port))
    temporary.replace(path)


async def _serve_until(stop: asyncio.Event, services: Services, certificate: Certificate | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(_every(KEY_SYNC_S, lambda: _sync_accounts(services), name="accounts_sync")),
            tasks.create_task(_every(KEY_USE_S, services.keys.note_used, name="keys_used")),
            tasks.create_task(_every(MAIL_PAUSE_S, lambda: _send_mail(services), name="mail")),
            tasks.create_task(_every(NODE_SAVE_S, lambda: _save_nodes(services), name="nodes_save")),
            tasks.create_task(_every(COMPILE_CHECK_S, lambda: _compile_matcher(services), name="compile")),
            tasks.create_task(_every(HEALTH_CHECK_S, lambda: _check_health(services), name="health_check")),
            tasks.create_task(_every(MATCH_STORE_S, lambda: store_matches(services), name="matches_store")),
            tasks.create_task(_every(RESPONSE_TEND_S, lambda: _tend_responses(services), name="responses_tend")),
            tasks.create_task(_every(RESPONSE_FORGET_S, services.database.responses.forget_old, name="responses_old")),
            tasks.create_task(_every(LOOK_S, services.live.look, name="live_feed")),
            tasks.create_task(_every(STORE_S, services.history.keep, name="history")),
            tasks.create_task(_every(MONEY_S, services.money.tend, name="money")),
            tasks.create_task(_every(POWER_S, lambda: _save_power(services), name="power_save")),
            tasks.create_task(_every(TIDY_S, lambda: _tidy(services), name="tidy")),
            *(
                tasks.create_task(_every(pause_s, work, name=name))
                for pause_s, work, name in (
                    *chores(services.accounting),
                    *_tls_chores(certificate),
                    *sibling_chores(services),
                )
            ),
        ]
        await stop.wait()
        await _drain(services)
        for task in background:
            task.cancel()


def _tls_chores(certificate: Certificate | None) -> list[Chore]:
    async def look() -> None:
        if certificate is not None:
            await asyncio.to_thread(certificate.reload_if_changed)

    return [] if certificate is None else [(CHECK_S, look, "certificate")]


async def _every(seconds: float, work: Callable[[], Awaitable[None]], *, name: str) -> None:
    """Repeat background work. Postgres may be away for a while: serving goes on, the work is tried again."""
    while True:
        await _once(work, name=name)
        await asyncio.sleep(seconds)


async def _once(work: Callable[[], Awaitable[None]], *, name: str) -> None:
    try:
        await work()
    except StoreUnavailable:
        _log.warning("background_work_postponed", work=name)
    except Exception:  # noqa: BLE001 (a process boundary: answers must not end because a chore stumbled)
        _log.crash("background_work_crashed", work=name)


async def _sync_accounts(services: Services) -> None:
    """What other gateways changed: keys, what accounts say about them, and whose nodes may stay."""
    await services.keys.sync()
    services.desk.drop(await services.database.nodes_of_closed_accounts(), why="its account was closed")


async def _send_mail(services: Services) -> None:
    if services.mailer is None:
        await asyncio.Event().wait()  # nothing to send, ever; cancelled with the rest
    else:
        await services.mailer.send_next()


async def _save_nodes(services: Services) -> None:
    """Store what changed. A node that changes again meanwhile, or could not be stored, is stored the next time."""
    desk, changed = services.desk, set(services.desk.changed)
    desk.changed -= changed
    rows = [row for node_id in changed if (row := services.table.get(node_id)) is not None]
    try:
        if rows:
            await services.database.save_nodes([(row.id, row.specs, _last_seen(row, services)) for row in rows])
    except BaseException:
        desk.changed |= changed
        raise


async def _save_power(services: Services) -> None:
    days = services.desk.power.take()
    try:
        if days:
            await services.database.power.add(days)
    except BaseException:
        services.desk.power.give_back(days)
        raise


def _last_seen(row: NodeRow, services: Services) -> float:
    """In Unix seconds."""
    now = services.clock.unix_s()
    return now if row.connected else row.last_seen_unix_s or now


async def _compile_matcher(services: Services) -> None:
    """Worth its seconds only for many nodes, and done beside the event loop; until then numpy does the same."""
    if len(services.table) > COMPILE_FROM_NODES and not kernel.ready():
        await asyncio.to_thread(kernel.prepare)
        _spare_the_collector()  # the compiler leaves rings of a hundred thousand objects: found later, they hold up all
        _log.info("matcher_compiled", nodes=len(services.table))


async def _check_health(services: Services) -> None:
    services.desk.drop_silent()
    services.table.refresh_strain()
    leaked = services.table.expire_reservations(older_than_s=LEAK_AGE_S, now_s=services.clock.now_s())
    if leaked:
        _log.warning("reservations_leaked", count=leaked)


async def _tend_responses(services: Services) -> None:
    """Say which stored answers are being written here, and end those that were cancelled at another gateway."""
    running = services.responses.stored_ids()
    for response_id in await services.database.responses.tend(running) if running else ():
        services.responses.cancel(response_id)


async def _tidy(services: Services) -> None:
    """Forget what was kept for a while only."""
    database, months = services.database, services.settings.keep_months
    await database.forget_old_matches()
    await database.history.forget_old()
    await database.forget_old_tokens()
    await database.power.forget_old()
    await database.records.forget_old()
    await database.people.forget_old()
    if months:
        since = kept_since(services.clock.unix_s(), months)
        for month in await database.books.forget_months(before_unix_s=since):
            _log.info("month_forgotten", month=month.isoformat()[:7])


async def _drain(services: Services) -> None:
    """Take nothing new, send away who waits, let running answers finish, tell the nodes.

    What is not over in time ends in an error object: whoever asked us to stop may kill us soon after.
    """
    services.stopping = True
    services.admission.close()
    services.live.close()
    try:
        async with asyncio.timeout(services.settings.drain_s):
            while services.dispatcher.running:  # noqa: ASYNC110 (counts jobs; an event per job would cost more)
                await asyncio.sleep(0.02)
    except TimeoutError:
        _log.warning("drain_timed_out", jobs=services.dispatcher.running)
        services.dispatcher.break_off(ShuttingDown("This gateway is stopping. What came before is incomplete."))
    await services.responses.close(within_s=RESPONSE_CLOSE_S)
    await _once(lambda: _save_nodes(services), name="nodes_save")
    await _once(lambda: _save_power(services), name="power_save")
    await _once(lambda: store_matches(services), name="matches_store")
    await _once(services.history.close, name="history")
    if services.accounting is not None:
        await _once(services.accounting.close, name="books_close")
    services.desk.say_goodbye("the gateway is stopping")
    await services.desk.close()
