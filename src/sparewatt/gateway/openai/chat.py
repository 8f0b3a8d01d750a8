"""POST /v1/chat/completions: read, match, dispatch, write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from sparewatt.core.errors import BodyTooLarge, InvalidField, ShuttingDown
from sparewatt.core.ids import MatchId, ModelId, new_id
from sparewatt.core.limits import CLIENT_WRITE_S, REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.http import authenticate, error_reply, read_body
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.admission.sizing import size_of
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.dispatch.run import JobRun
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.policies import POLICIES, Policy
from sparewatt.protocol.openai import ChatRequest, parse_chat, with_usage_forced
from sparewatt.store.database import KeyRow

POLICY_HEADER = "x-sparewatt-policy"


async def chat_completions(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    key = authenticate(request, services.ring, "inference")
    if services.stopping:
        raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=2)
    policy = policy_named(request.headers.get(POLICY_HEADER, services.settings.policy))
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
    job = make_job(parse_chat(body), body, key=key, services=services)
    sink = BufferedSink()
    run = services.dispatcher.dispatch(job, sink, policy=policy)
    try:
        return await _reply(request, run, sink)
    finally:
        run.cancel()  # does nothing if the job is over


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidField(
            f"There is no policy {name[:40]!r}. Policies: {', '.join(POLICIES)}.", param=POLICY_HEADER
        ) from None


def make_job(chat: ChatRequest, body: bytes, *, key: KeyRow, services: Services) -> Job:
    size = size_of(map(bytes, chat.messages))
    model = ModelId(chat.model)
    typical = services.table.typical_output_tokens(model)
    streams = bool(chat.stream)
    match = MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=size.tokens,
        output_tokens=min(chat.output_limit or typical, typical) * (chat.n or 1),
        prompt_tokens_floor=size.tokens_floor,
    )
    return Job(
        match=match,
        key_id=key.id,
        body=_with_usage(body) if streams else body,
        stream=streams,
        wants_usage=chat.wants_usage,
    )


def _with_usage(body: bytes) -> bytes:
    """A few bytes longer: a body that just fitted must not break the link to the node by that."""
    forced = with_usage_forced(body)
    if len(forced) > REQUEST_BODY_BYTES_MAX:
        raise BodyTooLarge("The body is too large by a few bytes.")
    return forced


async def _reply(request: web.Request, run: JobRun, sink: BufferedSink) -> web.StreamResponse:
    await sink.begun()
    if sink.error is not None:
        return error_reply(sink.error, sink.headers)
    if not run.job.stream:
        return web.Response(body=await sink.take_all(), headers=sink.headers)
    return await _stream(request, run, sink, sink.headers)


async def _stream(
    request: web.Request, run: JobRun, sink: BufferedSink, headers: Mapping[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"})
    await response.prepare(request)
    try:
        await _write_out(response, run, sink)
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()  # the client is gone or stuck: what is queued for it would wait for ever
    return response


async def _write_out(response: web.StreamResponse, run: JobRun, sink: BufferedSink) -> None:
    while (data := await sink.take()) is not None:
        async with asyncio.timeout(CLIENT_WRITE_S):
            await response.write(data)
        run.consumed(len(data))
    async with asyncio.timeout(CLIENT_WRITE_S):
        await response.write_eof()
