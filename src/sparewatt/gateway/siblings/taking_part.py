"""How a process takes part in a gateway of several: it comes in, shares what is one, asks how the others are.

A gateway of one process has nobody to ask, and none of this does anything there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from sparewatt.core.errors import StartupError
from sparewatt.core.ids import AccountId
from sparewatt.gateway.accounting import Accounting, Chore
from sparewatt.gateway.addresses import listen
from sparewatt.gateway.front import listening
from sparewatt.gateway.routes import make_link_app
from sparewatt.gateway.services import Services
from sparewatt.gateway.siblings.answering import answering
from sparewatt.gateway.siblings.questions import GIVE_BACK, SYNC, GiveBackAsked, Nothing
from sparewatt.gateway.siblings.siblings import EXCHANGE_S, Siblings

KNOW_NODES_S = 5.0
COME_IN_S, COME_IN_LOOK_S = 8.0, 0.1
"""How long a process that starts waits for nodes that other processes have; an older agent never comes."""
SHARED_BUDGET_RELOAD_S = 1.0
"""What others spent is told as pending for longer than this, so that it is never left out."""


@contextlib.asynccontextmanager
async def taking_part(services: Services, *, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Take links and answer the others."""
    link_port = services.place.link_port
    if link_port is None:
        raise StartupError("A process of a gateway needs a link port.")
    links = listen(services.settings.host, link_port, shared=True)
    with contextlib.closing(links):
        async with listening(make_link_app(services), links, tls=tls, hot={}), answering(services):
            yield


async def until_it_may_open(services: Services, stop: asyncio.Event) -> None:
    """Until clients may come: the parent says so, and the nodes are here that the other processes have; or the end.

    Else a process that started again would turn its share of the requests away, while nodes are still dialling.
    """
    waits = [asyncio.create_task(services.siblings.may_open.wait()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0 if stop.is_set() else COME_IN_S):
            await _until_nodes_are_here(services)


async def _until_nodes_are_here(services: Services) -> None:
    siblings = services.siblings
    await siblings.exchange(watching=False)
    while not siblings.nodes() <= services.desk.links.keys():
        await asyncio.sleep(COME_IN_LOOK_S)
        await siblings.exchange(watching=False)


def share(services: Services) -> None:
    """Keys, balances and budgets are the same for all processes."""
    siblings = services.siblings
    if not services.place.others:
        return

    async def have_keys_looked_at() -> None:
        await siblings.asker.ask_all(SYNC, Nothing())

    services.keys.tell_others = have_keys_looked_at
    if services.accounting is not None:
        _share_money(siblings, services.accounting)


def _share_money(siblings: Siblings, accounting: Accounting) -> None:

    async def call_in(account: AccountId) -> bool:
        return any(told.yes for told in await siblings.asker.ask_all(GIVE_BACK, GiveBackAsked(account)))

    accounting.ledger.call_in = call_in
    accounting.metering.budgets.pending_elsewhere = siblings.held
    accounting.metering.budgets.reload_s = SHARED_BUDGET_RELOAD_S


async def know_nodes(services: Services) -> None:
    """What Postgres knows of nodes that are not in the table."""
    desk, table = services.desk, services.table
    for node in await services.database.list_nodes():
        desk.owners.setdefault(node.id, node.account_id)
        if node.specs is not None and table.get(node.id) is None:
            table.remember(node.id, node.specs, last_seen_unix_s=node.last_seen_unix_s)
            table.set_owner(node.id, node.account_id)
            desk.names.claim(node.id, node.account_id, node.specs.name)


def sibling_chores(services: Services) -> list[Chore]:
    """What goes on in the background: how often, what, and what it is called."""
    siblings = services.siblings
    if not siblings.place.others:
        return []

    async def exchange() -> None:
        await siblings.exchange(watching=services.live.viewers > 0)

    async def look_for_nodes() -> None:
        """Those that joined at another process and have no link to this one: agents of an older release."""
        if any(services.table.get(node_id) is None for node_id in siblings.nodes()):
            await know_nodes(services)

    return [(EXCHANGE_S, exchange, "siblings"), (KNOW_NODES_S, look_for_nodes, "nodes_elsewhere")]
