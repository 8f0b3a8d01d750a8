"""Background work of a gateway process: what is repeated, how often, and that it never ends the process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sparewatt.cluster.peers import EXCHANGE_S
from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.limits import JOB_TIMEOUT_S
from sparewatt.core.log import Logger
from sparewatt.edge.tls import CHECK_S, Certificate
from sparewatt.gateway.known_nodes import load_known_nodes
from sparewatt.gateway.membership import exchange_news
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher import kernel
from sparewatt.ledger.retention import retention_start
from sparewatt.telemetry.feed.live_feed import FRAME_S
from sparewatt.telemetry.history.writer import STORE_S

_log = Logger("sparewatt.gateway")
KEY_SYNC_S = 1.0
KEY_USE_S = 60.0
NODE_SAVE_S = 2.0
HEALTH_CHECK_S = 0.5
COMPILE_CHECK_S = 2.0
COMPILE_FROM_NODES = 256
MATCH_STORE_S = 1.0
RESPONSE_HEARTBEAT_S = 1.0
RESPONSE_FORGET_S = 60.0
POWER_S = 5.0
MAIL_PAUSE_S = 0.1
MONEY_S = 600.0
TIDY_S = 3600.0
KNOWN_NODES_S = 5.0
POST_S = 0.5
PROGRESS_S = 0.25
PURSES_S = 1.0
FILL_S = 0.01
"""Between two rounds in which purses are filled that run low; those of one moment are filled one after another."""
RECEIPTS_S = 1.0
LEAK_AGE_S = JOB_TIMEOUT_S + 60
GC_YOUNG, GC_OLDER = 20_000, 10
"""New objects until the young ones are collected, and how many times that until the older ones are."""

Work = Callable[[], Awaitable[object]]


class Chore(NamedTuple):
    name: str
    every_s: float
    work: Work


async def repeat(chore: Chore) -> None:
    """Until it is cancelled. Postgres may be away for a while: serving goes on, the work is tried again."""
    while True:
        await run_once(chore.work, name=chore.name)
        await asyncio.sleep(chore.every_s)


async def run_once(work: Work, *, name: str) -> None:
    try:
        await work()
    except StoreUnavailable:
        _log.warning("background_work_postponed", work=name)
    except Exception as error:  # noqa: BLE001 (a process boundary: answers must not end because a chore failed)
        _log.crash("background_work_crashed", error, work=name)


def chores_of(services: Services, certificate: Certificate | None) -> list[Chore]:
    return [
        Chore("accounts_sync", KEY_SYNC_S, lambda: _sync_accounts(services)),
        Chore("keys_used", KEY_USE_S, services.key_service.note_used),
        Chore("mail", MAIL_PAUSE_S, lambda: _send_mail(services)),
        Chore("nodes_save", NODE_SAVE_S, lambda: save_nodes(services)),
        Chore("compile", COMPILE_CHECK_S, lambda: _compile_matcher(services)),
        Chore("health_check", HEALTH_CHECK_S, lambda: _check_health(services)),
        Chore("matches_store", MATCH_STORE_S, services.explanations.store),
        Chore("responses_heartbeat", RESPONSE_HEARTBEAT_S, lambda: _report_responses(services)),
        Chore("responses_old", RESPONSE_FORGET_S, services.database.responses.forget_old),
        Chore("live_feed", FRAME_S, services.live.make_frame),
        Chore("history", STORE_S, services.history.store),
        Chore("money", MONEY_S, services.money.run_chores),
        Chore("power_save", POWER_S, lambda: save_power(services)),
        Chore("tidy", TIDY_S, lambda: _tidy(services)),
        *_book_chores(services),
        *_tls_chores(certificate),
        *_peer_chores(services),
    ]


def _book_chores(services: Services) -> list[Chore]:
    accounting = services.accounting
    if accounting is None:
        return []
    return [
        Chore("books_post", POST_S, accounting.ledger.flush),
        Chore("books_progress", PROGRESS_S, accounting.metering.note_progress),
        Chore("purses_fill", FILL_S, accounting.ledger.refill_low_purses),
        Chore("purses", PURSES_S, accounting.ledger.rebalance_purses),
        Chore("receipts", RECEIPTS_S, accounting.metering.receipts.settle),
    ]


def _tls_chores(certificate: Certificate | None) -> list[Chore]:
    if certificate is None:
        return []
    return [Chore("certificate", CHECK_S, lambda: asyncio.to_thread(certificate.reload_if_changed))]


def _peer_chores(services: Services) -> list[Chore]:
    """Nothing where this is the only process."""
    if not services.slot.others:
        return []

    async def load_nodes_elsewhere() -> None:
        """Those that joined at another process and have no link to this one: agents of an older release."""
        if any(services.table.get(node_id) is None for node_id in services.peers.nodes()):
            await load_known_nodes(services.database, services.links, services.table)

    return [
        Chore("peers", EXCHANGE_S, lambda: exchange_news(services)),
        Chore("nodes_elsewhere", KNOWN_NODES_S, load_nodes_elsewhere),
    ]


async def _sync_accounts(services: Services) -> None:
    """What other gateways changed: keys, account policies, and closed accounts, whose nodes leave."""
    await services.key_service.sync()
    services.links.drop(await services.database.nodes_of_closed_accounts(), why="its account was closed")


async def _send_mail(services: Services) -> None:
    if services.mailer is None:
        await asyncio.Event().wait()  # nothing to send, ever; cancelled with the rest
    else:
        await services.mailer.send_next()


async def save_nodes(services: Services) -> None:
    """Store what changed. A node that changes again meanwhile, or could not be stored, is stored the next time."""
    links, changed, now = services.links, set(services.links.changed), services.clock.unix_s()
    links.changed -= changed
    rows = [row for node_id in changed if (row := services.table.get(node_id)) is not None]
    seen = [(row.id, row.specs, now if row.connected else row.last_seen_unix_s or now) for row in rows]
    try:
        if seen:
            await services.database.save_nodes(seen)
    except BaseException:
        links.changed |= changed
        raise


async def save_power(services: Services) -> None:
    power = services.links.power
    days = power.take()
    try:
        if days:
            await services.database.power.add(days)
    except BaseException:
        power.give_back(days)
        raise


async def _compile_matcher(services: Services) -> None:
    """Worth its seconds only for many nodes, and done in a thread; until then numpy computes the same."""
    if len(services.table) > COMPILE_FROM_NODES and not kernel.ready():
        await asyncio.to_thread(kernel.prepare)
        spare_the_collector()  # the compiler leaves cycles of a hundred thousand objects: found later, they block all
        _log.info("matcher_compiled", nodes=len(services.table))


def spare_the_collector() -> None:
    """Tune the garbage collector: what a job leaves is freed without it, it is for cycles of rare paths and libraries.

    What was loaded until now stays for ever and is never traversed. With 20,000 young objects, a few hundred jobs under
    way, the collector takes 1 % of the time of a gateway at full speed; with 2,000 the same, in more pauses. Older
    generations are collected ten times less often each, which costs nothing either: with fifty times, a cycle that had
    lived for seconds would hardly ever be found.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_OLDER, GC_OLDER)


async def _check_health(services: Services) -> None:
    services.links.drop_silent()
    services.table.refresh_strain()
    leaked = services.table.expire_reservations(older_than_s=LEAK_AGE_S, now_s=services.clock.now_s())
    if leaked:
        _log.warning("reservations_leaked", count=leaked)


async def _report_responses(services: Services) -> None:
    """Say which stored responses are being written here, and end those that were cancelled at another gateway."""
    running = services.responses.stored_ids()
    for response_id in await services.database.responses.heartbeat(running) if running else ():
        services.responses.cancel(response_id)


async def _tidy(services: Services) -> None:
    """Delete what was kept for a while only."""
    database, months = services.database, services.settings.keep_months
    await database.forget_old_matches()
    await database.history.forget_old()
    await database.forget_old_tokens()
    await database.power.forget_old()
    await database.node_results.forget_old()
    await database.accounts.forget_old()
    if months:
        since = retention_start(services.clock.unix_s(), months)
        for month in await database.ledger.forget_months(before_unix_s=since):
            _log.info("month_forgotten", month=month.isoformat()[:7])
