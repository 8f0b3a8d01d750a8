"""Endpoints of other protocols: each is a translation at both ends of the path that a chat takes.

A body becomes a `ModelCall`; then routing, limits, holds, dispatch, failover and metering are those of every call. What
comes back is translated piece by piece by a `TranslatedReply`. Nothing here knows a protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import RequestLimiter
from sparewatt.api.responses.streaming import EventStream, is_overdue
from sparewatt.api.responses.submissions import answer_headers, outcome_of
from sparewatt.core.errors import JobFailed, ModelNotFound, SparewattError
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.bodies import error_reply, read_body
from sparewatt.edge.idempotency import CachedAnswer, Idempotency, Repetition, key_of
from sparewatt.edge.middleware import context_of
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.buffered_sink import BufferedSink
from sparewatt.inference.service import InferenceService, RequestOptions, Submission, buffered_submission
from sparewatt.protocol.shaped_error import ShapedError

_MATCH_HEADER = "x-sparewatt-match-id"


class TranslatedReply(Protocol):
    """The reply of one call in the protocol of its client. Bytes in, bytes out; no I/O."""

    content_type: str
    """Of a stream."""

    @property
    def keep_alive(self) -> bytes:
        """What a silent stream gets."""
        ...

    def begin(self) -> bytes:
        """Before the first piece of a stream."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The next piece of a chat's stream."""
        ...

    def finish(self) -> bytes:
        """After the last piece."""
        ...

    def fail(self, error: SparewattError) -> bytes:
        """In place of the rest of a stream."""
        ...

    def whole(self, body: bytes) -> bytes:
        """A reply that came in one piece. Raises JobFailed if it cannot be read."""
        ...

    def refusal(self, error: SparewattError) -> ShapedError:
        """In place of a reply."""
        ...


class TranslatedCall(NamedTuple):
    call: ModelCall
    reply: TranslatedReply


class AnswerWithoutJob(NamedTuple):
    """For a request that asks a model for nothing, such as to load it: it costs nothing."""

    model: str
    """Which must be served here."""
    body: bytes
    """JSON."""


ReadCall = Callable[[bytes], TranslatedCall | AnswerWithoutJob]


class TranslatedCaller(NamedTuple):
    """The client of one request."""

    request: web.Request
    principal: Principal
    options: RequestOptions


@dataclass(slots=True, kw_only=True)
class TranslatedCalls:
    service: InferenceService
    limiter: RequestLimiter
    idempotency: Idempotency

    async def answer(self, request: web.Request, principal: Principal, read: ReadCall) -> web.StreamResponse:
        """Read the request of an identified client and answer it; for each Idempotency-Key only once.

        The rate limit is charged when the prompt's size is known.
        """
        caller = TranslatedCaller(request, principal, self.service.options(principal, request.headers))
        body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
        key = key_of(request.headers)
        if key is None:
            return await self._answer(caller, read(body))
        answer = await self.idempotency.once(
            self._repetition(caller, key, body), lambda: self._answer(caller, read(body)), outcome=outcome_of
        )
        if isinstance(answer, CachedAnswer):
            return web.Response(body=answer.body, headers=answer.replay_headers())
        return answer

    def _repetition(self, caller: TranslatedCaller, key: str, body: bytes) -> Repetition:
        context, options = context_of(caller.request), caller.options
        return Repetition(
            (str(caller.principal.key_id), key),
            self.idempotency.digest(context.path, body, options.route or "", options.ranking.name),
            on_repeat=lambda: self.limiter.charge(context),
        )

    async def _answer(
        self, caller: TranslatedCaller, translated: TranslatedCall | AnswerWithoutJob
    ) -> web.StreamResponse:
        if isinstance(translated, AnswerWithoutJob):
            return self._answer_without_job(caller, translated)
        context, (call, reply) = context_of(caller.request), translated
        try:
            async with buffered_submission(
                self.service,
                caller.principal,
                caller.options,
                call,
                charge=lambda tokens: self.limiter.charge(context, tokens=tokens),
            ) as submission:
                return await _send(caller.request, submission, reply)
        except SparewattError as error:
            return error_reply(error, shaped=reply.refusal(error))

    def _answer_without_job(self, caller: TranslatedCaller, answer: AnswerWithoutJob) -> web.Response:
        """Raises RateLimited or ModelNotFound."""
        self.limiter.charge(context_of(caller.request))
        routing = self.service.route(answer.model, caller.principal, header=caller.options.route, provider=b"")
        if not self.service.table.has_model(routing.model):
            raise ModelNotFound(answer.model, nearest=(), why="GET /v1/models lists those that are.")
        return web.Response(body=answer.body, content_type="application/json")


async def _send(
    request: web.Request, submission: Submission[BufferedSink], reply: TranslatedReply
) -> web.StreamResponse:
    """An error before the first token is an HTTP error, unless that took so long that a stream was opened already."""
    sink, is_streamed = submission.sink, submission.call.stream
    if not is_streamed:
        await sink.begun()
    if not is_streamed or not await is_overdue(sink.begun()):
        refusal = _refusal(submission, reply)
        if refusal is not None:
            return refusal
    if is_streamed:
        return await _stream(request, submission, reply)
    body = reply.whole(_filtered(submission.call, await sink.take_all()))
    return web.Response(body=body, content_type="application/json", headers=_headers(submission))


def _filtered(call: ModelCall, body: bytes) -> bytes:
    """Raises JobFailed."""
    if call.reply_filter is None:
        return body
    try:
        return call.reply_filter.whole(body)
    except ValueError as error:
        raise JobFailed(f"The node's answer cannot be read: {error}.") from None


async def _stream(
    request: web.Request, submission: Submission[BufferedSink], reply: TranslatedReply
) -> web.StreamResponse:
    stream = EventStream(
        request,
        _headers(submission),
        content_type=reply.content_type,
        keep_alive=reply.keep_alive,
        error_event=reply.fail,
    )
    async with stream.opened():
        await _send_piece(stream, reply.begin())
        while (data := await submission.sink.take()) is not None:
            await _send_piece(stream, reply.feed(data))
            submission.consumed(len(data))
        error = submission.sink.error
        await _send_piece(stream, reply.finish() if error is None else reply.fail(error))
    return stream.response


async def _send_piece(stream: EventStream, piece: bytes) -> None:
    if piece:
        await stream.send([piece])


def _refusal(submission: Submission[BufferedSink], reply: TranslatedReply) -> web.Response | None:
    """The error that it came to, once its sink has begun; None if there is an answer."""
    error = submission.sink.error
    if error is None:
        return None
    _, headers = submission.refusal(error, submission.sink.headers)
    return error_reply(error, headers, shaped=reply.refusal(error))


def _headers(submission: Submission[BufferedSink]) -> dict[str, str]:
    return {_MATCH_HEADER: submission.match.id} | answer_headers(submission)
