"""What a request to `/v1/responses` and the requests of other endpoints have in common on their way to a model.

Authentication → options of the headers → body → `Idempotency-Key` → `Submission`. `edge/exchange.py` does the same for
the endpoints that are served without aiohttp.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_body, refusal_reply
from sparewatt.edge.idempotency import CachedAnswer, Idempotency, ProducedAnswer, Repetition, cacheable, key_of
from sparewatt.edge.middleware import context_of
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.buffered_sink import BufferedSink
from sparewatt.inference.responses.shelf import Shelf, ShelfFactory
from sparewatt.inference.service import InferenceService, RequestOptions
from sparewatt.inference.submission import Submission, buffered_submission
from sparewatt.protocol.responses.request import ParsedResponsesRequest, parse_request


class ResponseCaller(NamedTuple):
    """The client of one request that a model answers."""

    request: web.Request
    principal: Principal
    options: RequestOptions
    shelf: Shelf | None
    """What its API key stores; None for a browser's session."""


Produce = Callable[[ResponseCaller, ParsedResponsesRequest], Awaitable[web.StreamResponse]]


class ResponseSubmissions:
    def __init__(
        self, *, service: InferenceService, auth: Authenticator, idempotency: Idempotency, shelves: ShelfFactory
    ) -> None:
        self._service = service
        self._auth = auth
        self._idempotency = idempotency
        self._shelves = shelves

    async def answer(self, request: web.Request, produce: Produce) -> web.StreamResponse:
        """Let a request in, read it, and produce its answer; for each Idempotency-Key only once."""
        caller = await self._identify(request)
        body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
        key = key_of(request.headers)
        if key is None:
            return await produce(caller, parse_request(body))
        answer = await self._idempotency.once(
            self._repetition(caller, key, body), lambda: produce(caller, parse_request(body)), outcome=_outcome_of
        )
        if isinstance(answer, CachedAnswer):
            return web.Response(body=answer.body, headers=answer.replay_headers())
        return answer

    def submit(self, caller: ResponseCaller, call: ModelCall) -> AbstractAsyncContextManager[Submission[BufferedSink]]:
        """A submission that was begun; when the context ends, it is cancelled unless it is over."""
        context = context_of(caller.request)
        return buffered_submission(
            self._service,
            caller.principal,
            caller.options,
            call,
            charge=lambda tokens: self._auth.charge(context, tokens=tokens),
        )

    async def _identify(self, request: web.Request) -> ResponseCaller:
        """By the head alone. The rate limit is charged when the prompt's size is known."""
        principal = await self._auth.identify(context_of(request))
        options = self._service.options(principal, request.headers)
        shelf = self._shelves.shelf_for(principal, request.headers.get("authorization"))
        return ResponseCaller(request, principal, options, shelf)

    def _repetition(self, caller: ResponseCaller, key: str, body: bytes) -> Repetition:
        context, options = context_of(caller.request), caller.options
        return Repetition(
            (str(caller.principal.key_id), key),
            self._idempotency.digest(context.path, body, options.route or "", options.ranking.name),
            on_repeat=lambda: self._auth.charge(context),
        )


def refusal_of(submission: Submission[BufferedSink]) -> web.Response | None:
    """The error that it came to, once its sink has begun; None if there is an answer."""
    error = submission.sink.error
    if error is None:
        return None
    body, headers = submission.refusal(error, submission.sink.headers)
    return refusal_reply(error, body, headers)


def answer_headers(submission: Submission[BufferedSink]) -> dict[str, str]:
    """All but the content type: the answer that the client gets has its own."""
    headers = submission.reply_headers(submission.sink.headers)
    return {name: value for name, value in headers.items() if name != "content-type"}


def _outcome_of(reply: web.StreamResponse) -> ProducedAnswer:
    is_answer = reply.status == 200
    if isinstance(reply, web.Response) and isinstance(reply.body, bytes):
        return ProducedAnswer(is_answer, cacheable(reply.body, reply.headers))
    return ProducedAnswer(is_answer)
