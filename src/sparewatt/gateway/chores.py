"""Background work of a gateway process: what is repeated, how often, and that a failure never ends the process."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from sparewatt.cluster.peers import EXCHANGE_S
from sparewatt.core.cleanup import on_failure
from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.limits import JOB_TIMEOUT_S
from sparewatt.core.log import Logger
from sparewatt.edge.tls import CHECK_S, Certificate
from sparewatt.gateway.health_probe import DATABASE_PROBE_S, PROBE_S
from sparewatt.gateway.membership import exchange_news
from sparewatt.gateway.services import Services
from sparewatt.inference.fleet.alias_service import RELOAD_S
from sparewatt.inference.fleet.link_registry import FORGET_AFTER_S
from sparewatt.inference.fleet.record_loader import RECORDS_S
from sparewatt.inference.fleet.timing_exchange import TIMINGS_S
from sparewatt.inference.fleet.verified_facts import READ_S
from sparewatt.inference.metering.delivered_tokens import EXCHANGE_S as EXCHANGE_DELIVERED_S
from sparewatt.inference.metering.delivered_tokens import DeliveredTokens
from sparewatt.machine.free_memory import release_free_memory
from sparewatt.store.delivered_tokens import DeliveredTokenStore
from sparewatt.store.ledger import retention_start
from sparewatt.telemetry.feed.live_feed import FRAME_S
from sparewatt.telemetry.history.writer import STORE_S

_log = Logger("sparewatt.gateway")
REFILL_S = 0.01
"""Between two rounds in which low purses are refilled; those of one moment are filled one after another."""
LEAK_AGE_S = JOB_TIMEOUT_S + 60
GC_YOUNG, GC_OLDER = 20_000, 10
"""New objects until the young generation is collected, and how many such rounds until an older one is."""

PRICE_NOTICES_S = 20.0
"""Until an owner is told what has become of a price. Looking at one model of a node takes some microseconds."""
MEMORY_S = 5.0
ERAS_S = 60.0
"""Between two looks whether an era of rewards is over; a twentieth of a short era."""
CHECKS_S, CHECKS_SYNC_S = 0.25, 2.0
MARKET_RETRY_S = 0.5
"""Until the market is followed again, after Postgres was away."""

UPTIME_CREDITS_S = 2.0
"""Until a lease that has ended is ruled on, once its end is final."""

Work = Callable[[], Awaitable[object]]


class Chore(NamedTuple):
    name: str
    every_s: float
    work: Work


async def repeat(chore: Chore) -> None:
    """Until it is cancelled. Postgres may be away for a while: serving goes on, the work is tried again."""
    is_postponed = False
    while True:
        is_postponed = not await run_once(chore.work, name=chore.name, is_postponed=is_postponed)
        await asyncio.sleep(chore.every_s)


async def run_once(work: Work, *, name: str, is_postponed: bool = False) -> bool:
    """Returns False if it is postponed, which is logged unless it was before."""
    try:
        await work()
    except StoreUnavailable as error:
        if not is_postponed:
            _log.warning("background_work_postponed", work=name, cause=error.code)
        return False
    except Exception as error:  # noqa: BLE001 (a process boundary: answers must not end because a chore failed)
        _log.crash("background_work_crashed", error, work=name)
    return True


def chores_of(services: Services, certificate: Certificate | None) -> list[Chore]:
    chores = [
        Chore("accounts_sync", 1.0, partial(_sync_accounts, services)),
        Chore("keys_used", 60.0, services.key_service.note_used),
        Chore("aliases", RELOAD_S, services.aliases.reload),
        Chore("price_notices", PRICE_NOTICES_S, services.links.tell_price_notices),
        Chore("records", RECORDS_S, services.records.load),
        Chore("timings", TIMINGS_S, services.timings.exchange),
        Chore("nodes_save", 2.0, partial(save_nodes, services)),
        Chore("health_check", 0.5, partial(_check_health, services)),
        Chore("health_probe", PROBE_S, services.health_probe.check),
        Chore("database_probe", DATABASE_PROBE_S, services.health_probe.check_database),
        Chore("matches_store", 1.0, services.explanations.store),
        Chore("responses_heartbeat", 1.0, partial(_report_responses, services)),
        Chore("responses_old", 60.0, services.database.responses.forget_old),
        Chore("documents_old", 60.0, services.database.documents.forget_old),
        Chore("live_feed", FRAME_S, services.live.make_frame),
        Chore("history", STORE_S, services.history.store),
        Chore("verified_facts", READ_S, services.verified_facts.read),
        Chore("money", 600.0, services.money.run_chores),
        Chore("eras", min(ERAS_S, services.eras.era_s / 20), services.eras.close_due),
        Chore("power_save", 5.0, partial(save_power, services)),
        Chore("tidy", 3600.0, partial(_tidy, services)),
        Chore("memory", MEMORY_S, MemoryRelease(services).run),
    ]
    if services.settings.checks:
        chores += [
            Chore("checks", CHECKS_S, services.checks.run_due),
            Chore("checks_sync", CHECKS_SYNC_S, services.checks.sync),
            Chore("checks_plan", CHECKS_SYNC_S, partial(_plan_probes, services)),
            Chore("withheld_overdue", 3600.0, services.checks.release_overdue),
        ]
    if services.market.has_chain:
        chores.append(Chore("market", MARKET_RETRY_S, services.market_relay.run))
        chores.append(Chore("lease_acts", MARKET_RETRY_S, services.lease_acts.run))
        chores.append(Chore("uptime_credits", UPTIME_CREDITS_S, services.uptime_credits.run))
        chores.append(Chore("leased_nodes", 2.0, services.drop_leased_nodes))
    if services.mailer is not None:
        chores.append(Chore("mail", 0.1, services.mailer.send_next))
    if certificate is not None:
        chores.append(Chore("certificate", CHECK_S, partial(asyncio.to_thread, certificate.reload_if_changed)))
    if services.slot.others:
        chores.append(Chore("peers", EXCHANGE_S, partial(exchange_news, services)))
        chores.append(Chore("nodes_elsewhere", 5.0, partial(_load_nodes_of_peers, services)))
    return chores + _book_chores(services)


def _book_chores(services: Services) -> list[Chore]:
    accounting = services.accounting
    if accounting is None:
        return []
    delivered, deliveries = accounting.metering.delivered, services.database.delivered_tokens
    return [
        Chore("books_post", 0.5, accounting.ledger.flush),
        Chore("books_progress", 0.25, accounting.metering.note_progress),
        Chore("purses_fill", REFILL_S, accounting.ledger.refill_low_purses),
        Chore("purses", 1.0, accounting.ledger.rebalance_purses),
        Chore("receipts", 1.0, accounting.metering.receipts.settle),
        Chore("delivered_tokens", EXCHANGE_DELIVERED_S, partial(exchange_delivered, delivered, deliveries)),
    ]


async def _load_nodes_of_peers(services: Services) -> None:
    """Nodes that joined at another process and have no link to this one: agents of an older release."""
    if any(services.table.get(node_id) is None for node_id in services.peers.nodes()):
        await services.load_known_nodes()


async def _sync_accounts(services: Services) -> None:
    """Load what other gateways changed: keys, account policies, and closed accounts, whose nodes are dropped."""
    await services.key_service.sync()
    services.links.drop(await services.database.nodes_of_closed_accounts(), why="its account was closed")


async def _plan_probes(services: Services) -> None:
    """The first process does it for all: a node has a link to each."""
    if services.peers.counts_uptime() and not services.drain.is_draining:
        await services.checks.plan_probes()


async def save_nodes(services: Services) -> None:
    """Store changed nodes. One that changes meanwhile, or could not be stored, is stored the next time."""
    links, changed, now = services.links, set(services.links.changed), services.clock.unix_s()
    links.changed -= changed
    rows = [row for node_id in changed if (row := services.table.get(node_id)) is not None]
    nodes = [(row.id, row.specs, now if row.connected else row.last_seen_unix_s or now) for row in rows]
    with on_failure(links.changed.update, changed):
        if nodes:
            await services.database.save_nodes(nodes)


async def exchange_delivered(delivered: DeliveredTokens, store: DeliveredTokenStore) -> None:
    """Store what owners delivered by jobs of this process, and read what all processes counted."""
    taken = delivered.take()
    with on_failure(delivered.give_back, taken):
        if taken:
            await store.add(taken)
    delivered.load(await store.sums())


async def save_power(services: Services) -> None:
    power = services.links.power
    days = power.take()
    with on_failure(power.give_back, days):
        if days:
            await services.database.power.add(days)


def tune_garbage_collector() -> None:
    """What a job leaves is freed by reference counts; the collector is for cycles of rare paths and libraries.

    What was loaded until now is never traversed again. With 20,000 young objects, a few hundred jobs under way, the
    collector takes 1 % of the time of a gateway at full speed; with 2,000 the same, in more pauses. Older generations
    are collected ten times less often each, which costs nothing either: with fifty times, a cycle that had lived for
    seconds would hardly ever be freed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_OLDER, GC_OLDER)


class MemoryRelease:
    """Drops what is cached for policies that nobody uses; and after nodes came or left, or somebody knocked, what is
    cached of models that nobody has. Then the heap is given back.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._seen = self._counts()

    async def run(self) -> None:
        self._services.eligibility.forget_idle()
        if self._seen != self._counts():
            self._seen = self._counts()
            self._services.eligibility.forget_absent_models()
            self._services.price_caps.forget_absent_models()
            await asyncio.to_thread(release_free_memory)

    def _counts(self) -> tuple[int, int]:
        return self._services.links.version, self._services.links.knocks


async def _check_health(services: Services) -> None:
    services.links.drop_silent()
    leaked = services.table.expire_reservations(older_than_s=LEAK_AGE_S, now_s=services.clock.now_s())
    if leaked:
        _log.warning("reservations_leaked", count=leaked)


async def _report_responses(services: Services) -> None:
    """Report which stored responses are written here, and end those that were cancelled at another gateway."""
    running = services.responses.ids_with_rows()
    for response_id in await services.database.responses.heartbeat(running) if running else ():
        services.responses.cancel(response_id)


async def forget_nodes(services: Services) -> None:
    """Forget nodes that never served and have been away for a day, as seen by all gateways of the network."""
    database, links = services.database, services.links
    await database.note_nodes_seen(list(links.links))
    await database.forget_unserved_nodes(after_s=FORGET_AFTER_S)
    if away := links.forgettable():
        links.forget(await database.forgotten_among(away))


async def _tidy(services: Services) -> None:
    """Delete what is past its retention."""
    database, months = services.database, services.settings.keep_months
    await forget_nodes(services)
    await database.forget_old_matches()
    await database.history.forget_old()
    await database.forget_old_tokens()
    await database.power.forget_old()
    await database.node_results.forget_old()
    await database.eras.forget_old(today=dt.datetime.fromtimestamp(services.clock.unix_s(), tz=dt.UTC).date())
    await database.check_counts.forget_old()
    await database.check_verdicts.forget_old()
    await database.node_timings.forget_old()
    await database.delivered_tokens.forget_old()
    await database.accounts.forget_old()
    await database.lease_matches.forget_old()
    await database.lease_acts.forget_old()
    if months:
        since = retention_start(services.clock.unix_s(), months)
        for month in await database.ledger.forget_months(before_unix_s=since):
            _log.info("month_forgotten", month=month.isoformat()[:7])
