"""What this process tells the others. On loopback, to whoever shows the secret that the parent gave all of them."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.limits import PULSE_NODES_MAX, RESPONSE_CANCEL_S, SIBLING_BODY_BYTES_MAX
from sparewatt.gateway.addresses import listen
from sparewatt.gateway.feeds.counts import count_here
from sparewatt.gateway.feeds.matches import explanation_of, last_matches
from sparewatt.gateway.feeds.nodes import own_work
from sparewatt.gateway.feeds.why import look_back_here
from sparewatt.gateway.services import Services
from sparewatt.gateway.siblings.asking import LOOPBACK
from sparewatt.gateway.siblings.questions import (
    CANCEL,
    CLAIM,
    COUNTS,
    GIVE_BACK,
    MATCH,
    MATCHES,
    NEWS,
    READY,
    SETTLE,
    SYNC,
    WHY,
    WORK,
    CancelAsked,
    CancelTold,
    ClaimAsked,
    ClaimTold,
    Counts,
    CountsAsked,
    GiveBackAsked,
    MatchAsked,
    MatchesAsked,
    MatchesTold,
    MatchTold,
    News,
    NewsAsked,
    Nothing,
    Question,
    ReadyAsked,
    ReadyTold,
    SettleAsked,
    WhyAsked,
    WhyTold,
    WorkTold,
    Yes,
)


async def _ready(services: Services, asked: ReadyAsked) -> ReadyTold:
    siblings = services.siblings
    if asked.may_open:
        siblings.may_open.set()
    return ReadyTold(is_in=True, is_open=siblings.is_open and not services.stopping)


async def _news(services: Services, asked: NewsAsked) -> News:
    siblings, live, accounting = services.siblings, services.live, services.accounting
    version = f"{siblings.run}.{services.desk.version}"
    first_token_ms, first_tokens = services.history.first_tokens()
    return News(
        run=siblings.run,
        version=version,
        nodes=None if asked.known == version else list(services.desk.links),
        jobs=services.dispatcher.running,
        tokens_per_s=live.tokens_per_s,
        first_token_ms=first_token_ms,
        first_tokens=first_tokens,
        held=accounting.metering.budgets.pending() if accounting is not None else {},
        matches=live.pass_on(asked.number) if asked.watching else live.stop_passing(asked.number),
    )


async def _match(services: Services, asked: MatchAsked) -> MatchTold:
    record = services.dispatcher.record(MatchId(asked.id))
    return MatchTold(record.key_id, msgspec.Raw(explanation_of(record, services))) if record else MatchTold()


async def _matches(services: Services, asked: MatchesAsked) -> MatchesTold:
    account = AccountId(asked.account) if asked.account is not None else None
    return MatchesTold(last_matches(services, account=account, limit=asked.limit))


async def _why(services: Services, asked: WhyAsked) -> WhyTold:
    why = look_back_here(NodeId(asked.node), services, count=asked.count, since_unix_s=asked.since_unix_s)
    return WhyTold(
        matches=why.matches,
        sent={outcome.value: n for outcome, n in why.sent.items()},
        rejected={reason.value: n for reason, n in why.rejected.items()},
        lost=why.lost,
        ruled_out=why.ruled_out,
        unlisted=why.unlisted,
    )


async def _work(services: Services, _: Nothing) -> WorkTold:
    return WorkTold(own_work(services))


async def _counts(services: Services, asked: CountsAsked) -> Counts:
    return count_here(services, asked.nodes[:PULSE_NODES_MAX])


async def _give_back(services: Services, asked: GiveBackAsked) -> Yes:
    if services.accounting is None:
        return Yes(False)
    try:
        return Yes(await services.accounting.ledger.give_back(AccountId(asked.account)))
    except StoreUnavailable:
        return Yes(False)


async def _sync(services: Services, _: Nothing) -> Yes:
    try:
        await services.keys.sync()
    except StoreUnavailable:
        return Yes(False)
    return Yes(True)


async def _cancel(services: Services, asked: CancelAsked) -> CancelTold:
    live = services.responses.find(asked.response_id, key_id=KeyId(asked.key_id))
    if live is None:
        return CancelTold()
    live.cancel()
    with suppress(TimeoutError):  # the database is slow: it is cancelled, and not yet written down
        async with asyncio.timeout(RESPONSE_CANCEL_S):
            await live.over.wait()
    return CancelTold(live.response)


async def _claim(services: Services, asked: ClaimAsked) -> ClaimTold:
    return await services.shared_answers.claim(asked)


async def _settle(services: Services, asked: SettleAsked) -> Yes:
    return Yes(services.shared_answers.settle(asked))


class Answer(NamedTuple):
    question: Question[Any, Any]
    say: Callable[[Services, Any], Awaitable[object]]


ANSWERS: Mapping[str, Answer] = {
    answer.question.name: answer
    for answer in (
        Answer(READY, _ready),
        Answer(NEWS, _news),
        Answer(MATCH, _match),
        Answer(MATCHES, _matches),
        Answer(WHY, _why),
        Answer(WORK, _work),
        Answer(COUNTS, _counts),
        Answer(GIVE_BACK, _give_back),
        Answer(SYNC, _sync),
        Answer(CANCEL, _cancel),
        Answer(CLAIM, _claim),
        Answer(SETTLE, _settle),
    )
}


def make_sibling_app(services: Services) -> web.Application:
    expected = f"Bearer {services.place.secret}".encode()

    async def tell(request: web.Request) -> web.Response:
        shown = request.headers.get("authorization", "").encode(errors="replace")
        if not services.place.secret or not hmac.compare_digest(shown, expected):
            return web.Response(status=401)
        answer = ANSWERS.get(request.match_info["question"])
        if answer is None:
            return web.Response(status=404)
        try:
            asked = msgspec.json.decode(await request.read(), type=answer.question.asked)
        except msgspec.DecodeError:
            return web.Response(status=400)
        told = await answer.say(services, asked)
        return web.Response(body=msgspec.json.encode(told), content_type="application/json")

    app = web.Application(client_max_size=SIBLING_BODY_BYTES_MAX)
    app.add_routes([web.post("/{question}", tell)])
    return app


@asynccontextmanager
async def answering(services: Services) -> AsyncIterator[None]:
    """Answer the others from now on."""
    place = services.place
    listener = listen(LOOPBACK, place.sibling_ports[place.number], shared=True)
    runner = web.AppRunner(make_sibling_app(services), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
        await services.siblings.asker.close()
