"""What the endpoints of `/v1/responses` have in common on the way to a model and back.

Options of the headers → body → `Idempotency-Key` → conversation → chat → `Submission` → headers of the reply.
`edge/exchange.py` does the same for the endpoints that are served without aiohttp.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import RequestLimiter
from sparewatt.api.inference.chat import read_chat
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import new_id
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.core.rng import Rng
from sparewatt.edge.auth import RequestContext, authorization_of
from sparewatt.edge.bodies import read_body, refusal_reply
from sparewatt.edge.idempotency import CachedAnswer, Idempotency, ProducedAnswer, Repetition, cacheable, key_of
from sparewatt.edge.middleware import context_of
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.buffered_sink import BufferedSink
from sparewatt.inference.responses.shelf import (
    Shelf,
    ShelfFactory,
    item_not_found,
    previous_response_gone,
    require_shelf,
)
from sparewatt.inference.service import InferenceService, RequestOptions, Submission, buffered_submission
from sparewatt.policy.model import Retention
from sparewatt.protocol.responses.chat_request import to_chat
from sparewatt.protocol.responses.compaction import expanded_items
from sparewatt.protocol.responses.input_items import NewId, reference_ids, refuse_stray_outputs, resolved_items
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, ResponsesRequest, parse_request
from sparewatt.protocol.responses.tools import ToolSelection


class ResponseCaller(NamedTuple):
    """The client of one request that a model answers."""

    request: web.Request
    context: RequestContext
    principal: Principal
    options: RequestOptions
    shelf: Shelf | None
    """What its API key stores; None for a browser's session."""


Produce = Callable[[ResponseCaller, ParsedResponsesRequest], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class ResponseSubmissions:
    service: InferenceService
    limiter: RequestLimiter
    idempotency: Idempotency
    shelves: ShelfFactory

    async def answer(self, request: web.Request, principal: Principal, produce: Produce) -> web.StreamResponse:
        """Read the request of an identified client and produce its answer; for each Idempotency-Key only once.

        The rate limit is charged when the prompt's size is known.
        """
        options = self.service.options(principal, request.headers)
        shelf = self.shelves.shelf_for(principal, authorization_of(request.headers))
        caller = ResponseCaller(request, context_of(request), principal, options, shelf)
        body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
        key = key_of(request.headers)
        if key is None:
            return await produce(caller, parse_request(body))
        answer = await self.idempotency.once(
            self._repetition(caller, key, body), lambda: produce(caller, parse_request(body)), outcome=outcome_of
        )
        if isinstance(answer, CachedAnswer):
            return web.Response(body=answer.body, headers=answer.replay_headers())
        return answer

    def retention_for(self, caller: ResponseCaller, parsed: ParsedResponsesRequest) -> Retention:
        """The longest that this request may be kept. Raises what routing raises."""
        request = parsed.request
        header, provider = caller.options.route, bytes(request.provider)
        routing = self.service.route(request.model, caller.principal, header=header, provider=provider)
        return routing.policy.retention or "day"

    def submit(self, caller: ResponseCaller, call: ModelCall) -> AbstractAsyncContextManager[Submission[BufferedSink]]:
        """A submission that was begun; when the context ends, it is cancelled unless it is over."""
        return buffered_submission(
            self.service,
            caller.principal,
            caller.options,
            call,
            charge=lambda tokens: self.limiter.charge(caller.context, tokens=tokens),
        )

    def _repetition(self, caller: ResponseCaller, key: str, body: bytes) -> Repetition:
        context, options = caller.context, caller.options
        return Repetition(
            (str(caller.principal.key_id), key),
            self.idempotency.digest(context.path, body, options.route or "", options.ranking.name),
            on_repeat=lambda: self.limiter.charge(context),
        )


def id_maker(rng: Rng) -> NewId:
    return lambda prefix: new_id(prefix, rng=rng, n_bytes=20)


class Conversation(NamedTuple):
    """What a request goes on from, and what it adds."""

    items: list[Json]
    """All of it, with references resolved and compactions opened."""
    own: list[Json]
    """The request's own items, with references resolved."""


async def conversation_of(
    parsed: ParsedResponsesRequest, items: list[Json], shelf: Shelf | None, *, history: list[Json] | None = None
) -> Conversation:
    """`history`: what the previous response left, where the caller has it.

    Raises PreviousResponseNotFound, ConversationNotFound, ItemNotFound or InvalidField.
    """
    if history is None:
        history = await _history_of(parsed.request, shelf)
    wanted = reference_ids([*history, *items])
    if wanted and shelf is None:
        raise item_not_found(wanted[0])
    found = await shelf.items_by_id(wanted) if wanted and shelf is not None else {}
    history, own = resolved_items(history, found), resolved_items(items, found)
    refuse_stray_outputs([*history, *own])

    def open_sealed(sealed: str) -> list[Json]:
        return require_shelf(shelf, param="input").open_items(sealed)

    conversation = expanded_items([*history, *own], open_sealed)
    if not conversation and not parsed.request.instructions:
        raise InvalidField("There is nothing to answer: send 'input'.", param="input")
    return Conversation(conversation, own)


async def _history_of(request: ResponsesRequest, shelf: Shelf | None) -> list[Json]:
    previous, conversation = request.previous_response_id, request.conversation_id
    if conversation is not None:
        return await require_shelf(shelf, param="conversation").conversations.history(conversation)
    if previous is None:
        return []
    if shelf is None:
        raise previous_response_gone(previous)
    return await shelf.history(previous)


def chat_call(parsed: ParsedResponsesRequest, messages: list[Json], tools: ToolSelection) -> ModelCall:
    """As if the client had sent a chat."""
    body = to_chat(parsed, messages, tools)
    call = read_chat(msgspec.json.encode(body))
    return msgspec.structs.replace(call, ignored=(*call.ignored, *parsed.ignored, *tools.ignored))


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


def outcome_of(reply: web.StreamResponse) -> ProducedAnswer:
    is_answer = reply.status == 200
    if isinstance(reply, web.Response) and isinstance(reply.body, bytes):
        return ProducedAnswer(is_answer, cacheable(reply.body, reply.headers))
    return ProducedAnswer(is_answer)
