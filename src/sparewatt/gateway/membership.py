"""A process as part of a gateway of several: it accepts links, answers its peers, and opens when they are ready.

A gateway of one process has no peers, and none of this runs there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from sparewatt.cluster.peer_rpc import PeerHandler, PeerView, answering_peers
from sparewatt.cluster.questions import (
    GIVE_BACK,
    NEWS,
    READY,
    SYNC,
    EmptyMessage,
    GiveBackRequest,
    NewsReply,
    NewsRequest,
    ReadyReply,
    ReadyRequest,
    YesReply,
)
from sparewatt.core.errors import StartupError, StoreUnavailable
from sparewatt.core.ids import AccountId
from sparewatt.edge.server import listen, serving
from sparewatt.gateway.routes import make_link_app, refusals
from sparewatt.gateway.services import Services

WAIT_FOR_NODES_S, NODES_POLL_S = 8.0, 0.1
"""How long a starting process waits for the nodes of other processes; an older agent links to one process only."""


@contextlib.asynccontextmanager
async def joined(services: Services, groups: Sequence[object], *, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Accept links and answer peers. `groups`: the endpoint classes, some of which answer peers too."""
    link_port = services.slot.link_port
    if link_port is None:
        raise StartupError("A process of a gateway needs a link port.")
    listener = listen(services.settings.host, link_port, shared=True)
    with contextlib.closing(listener):
        links = serving(
            make_link_app(services),
            listener,
            settings=services.settings.edge,
            links=services.links,
            refusals=refusals(services),
            tls=tls,
        )
        try:
            async with links, answering_peers(services.slot, peer_handlers(services, groups)):
                yield
        finally:
            await services.peer_client.close()


async def wait_until_it_may_open(services: Services, stop: asyncio.Event) -> None:
    """Wait for the parent's permission, and for the nodes that other processes have; or for the stop.

    Else a restarted process would refuse its share of the requests while nodes are still connecting to it.
    """
    waits = [asyncio.create_task(services.peers.may_open.wait()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0 if stop.is_set() else WAIT_FOR_NODES_S):
            await _wait_for_nodes(services)


async def _wait_for_nodes(services: Services) -> None:
    await exchange_news(services)
    while not services.peers.nodes() <= services.links.links.keys():
        await asyncio.sleep(NODES_POLL_S)
        await exchange_news(services)


async def exchange_news(services: Services) -> None:
    """Ask the peers for news: release the claims of a restarted one, pass their matches to the live feed."""
    news = await services.peers.exchange(watching=services.live.viewers > 0)
    for number in news.restarted:
        services.shared_idempotency.release(number)
    services.live.on_peer_matches(news.matches)


def peer_handlers(services: Services, groups: Sequence[object]) -> list[PeerHandler[Any, Any]]:
    """The questions that this process answers: each view brings its own handlers, the others are here."""

    async def ready(request: ReadyRequest) -> ReadyReply:
        if request.may_open:
            services.peers.may_open.set()
        return ReadyReply(is_in=True, is_open=services.peers.is_open and not services.drain.is_draining)

    async def give_back(request: GiveBackRequest) -> YesReply:
        with contextlib.suppress(StoreUnavailable):
            if services.accounting is not None:
                return YesReply(await services.accounting.ledger.give_back(AccountId(request.account)))
        return YesReply(False)

    async def sync(_: EmptyMessage) -> YesReply:
        with contextlib.suppress(StoreUnavailable):
            await services.key_service.sync()
            return YesReply(True)
        return YesReply(False)

    return [
        PeerHandler(READY, ready),
        PeerHandler(NEWS, partial(_report_news, services)),
        PeerHandler(GIVE_BACK, give_back),
        PeerHandler(SYNC, sync),
        *services.shared_idempotency.handlers(),
        *services.explanations.handlers(),
        *services.pulse.handlers(),
        *(handler for group in groups if isinstance(group, PeerView) for handler in group.handlers()),
    ]


async def _report_news(services: Services, request: NewsRequest) -> NewsReply:
    peers, live, accounting = services.peers, services.live, services.accounting
    version = f"{peers.run}.{services.links.version}"
    if not request.watching:
        live.stop_sharing(request.number)
    first_token_ms, first_tokens = services.counter.first_tokens()
    return NewsReply(
        run=peers.run,
        version=version,
        nodes=None if request.known == version else list(services.links.links),
        jobs=services.dispatcher.running,
        tokens_per_s=live.tokens_per_s,
        first_token_ms=first_token_ms,
        first_tokens=first_tokens,
        held=accounting.metering.budgets.pending() if accounting is not None else {},
        matches=live.share(request.number) if request.watching else [],
    )
