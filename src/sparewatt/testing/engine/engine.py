"""An OpenAI-compatible server on aiohttp, with the pages of the server that it speaks as.

A request is validated, planned, queued, prefilled and decoded, at set rates or in batches with the others. Text, JSON
shapes, pages and faults are in their own modules.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import TypeVar
from zlib import crc32

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import InvalidField, InvalidJson, SparewattError
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.sim.servers.pages import Pages, live_pages, static_pages
from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import plan_completion
from sparewatt.testing.engine.batch_driver import BatchDriver
from sparewatt.testing.engine.chat_plan import plan_chat
from sparewatt.testing.engine.dialects import error_in, missing_page, server_facts
from sparewatt.testing.engine.embeddings import embeddings_body, plan_embeddings
from sparewatt.testing.engine.generation import PacedGenerator, TokenGenerator, TokenSource
from sparewatt.testing.engine.output import (
    InjectedFault,
    Output,
    StreamedOutput,
    fail_at_once,
    is_immediate,
    json_response,
)
from sparewatt.testing.engine.replies import (
    ChatReply,
    CompletionReply,
    EngineReply,
    ReplyHead,
    error_object,
)
from sparewatt.testing.engine.requests import (
    EngineChatRequest,
    EngineCompletionRequest,
    EngineEmbeddingRequest,
    TemplateRequest,
    TokenizeRequest,
)
from sparewatt.testing.engine.resources import EnginePrefixCache, ModelLoader
from sparewatt.testing.engine.settings import EngineModelNotFound, EngineSettings, EngineStats, Fault, FaultQueue

T = TypeVar("T")
EngineWork = Callable[[Fault | None], Awaitable[web.StreamResponse]]

STOP_S = 0.05
"""How long open requests may go on when the engine stops; short, since tests stop hundreds of engines."""

BACKLOG = 1024
"""Connections that may wait to be accepted within one tick of the event loop."""

_FIELD_IN_ERROR = re.compile(r"(?:at `\$\.|missing required field `)([^`]*)`$")


class Engine:
    """One model server: its state and the handlers of its routes."""

    def __init__(self, settings: EngineSettings, *, clock: Clock | None = None, rng: Rng | None = None) -> None:
        self.settings = settings
        self.stats = EngineStats()
        self.faults = FaultQueue(fail_rate=settings.fail_rate, seed=settings.seed)
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._started_at = int(self._clock.unix_s())
        self._loader = ModelLoader(self._clock, settings)
        make = PacedGenerator if settings.engine_kind == "simple" else BatchDriver
        self._generator: TokenGenerator = make(self._clock, settings=settings, stats=self.stats, loader=self._loader)
        self._prefix_cache = EnginePrefixCache(settings.prefix_cache_tokens)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        wanted = await read_body(request, EngineChatRequest)
        self._admit(wanted.model)
        plan = plan_chat(wanted, settings=self.settings)
        if self.settings.prefix_cache_tokens:
            plan = replace(
                plan, cached_tokens=self._prefix_cache.read(text.tokenize(text.render_chat(wanted.messages)))
            )
        reply = ChatReply(plan, head=self._head("chatcmpl", wanted.model), request=wanted)
        return await self._generate(request, reply, is_streamed=bool(wanted.stream))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        wanted = await read_body(request, EngineCompletionRequest)
        self._admit(wanted.model)
        reply = CompletionReply(
            plan_completion(wanted, settings=self.settings), head=self._head("cmpl", wanted.model), request=wanted
        )
        return await self._generate(request, reply, is_streamed=bool(wanted.stream))

    async def embed(self, request: web.Request) -> web.StreamResponse:
        wanted = await read_body(request, EngineEmbeddingRequest)
        self._admit(wanted.model)
        texts, n_tokens = plan_embeddings(wanted, settings=self.settings)
        output = Output(request)

        async def work(fault: Fault | None) -> web.StreamResponse:
            async with self._generator.generate(prompt_tokens=n_tokens, new_tokens=1):
                if fault is not None:
                    raise InjectedFault(await output.fail(fault))
            return json_response(embeddings_body(wanted, texts, n_tokens=n_tokens, n_embd=self.settings.n_embd))

        return await self._serve(output, work)

    async def models(self, _request: web.Request) -> web.Response:
        return json_response({"object": "list", "data": [self._model(name) for name in self.settings.models]})

    async def model(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self._check_model(name)
        return json_response(self._model(name))

    async def health(self, _request: web.Request) -> web.Response:
        self._loader.check()
        return json_response({"status": "ok"})

    async def props(self, _request: web.Request) -> web.Response:
        return json_response(
            {
                "total_slots": self.settings.slots,
                "default_generation_settings": {"n_ctx": self.settings.n_ctx},
                "model_path": self.settings.models[0],
                "chat_template": text.CHAT_TEMPLATE,
                "build_info": "deterministic",
            }
        )

    async def slots(self, _request: web.Request) -> web.Response:
        n_ctx = self.settings.n_ctx
        return json_response(
            [{"id": i, "n_ctx": n_ctx, "is_processing": busy} for i, busy in enumerate(self._generator.busy_slots())]
        )

    async def apply_template(self, request: web.Request) -> web.Response:
        wanted = await read_body(request, TemplateRequest)
        return json_response({"prompt": text.render_chat(wanted.messages)})

    async def tokenize(self, request: web.Request) -> web.Response:
        wanted = await read_body(request, TokenizeRequest)
        return json_response({"tokens": [crc32(token.encode()) for token in text.tokenize(wanted.content)]})

    def pages(self) -> Pages:
        """Those of the server that it speaks as."""
        if self.settings.speaks == "sparewatt":
            return {}
        facts = server_facts(self.settings, kind=self.settings.speaks, started_at=self._started_at)
        return static_pages(facts) | live_pages(facts, self._generator.load())

    async def page(self, request: web.Request) -> web.Response:
        self._loader.check()
        body = self.pages()[request.path]
        return web.Response(body=body, content_type=_content_type(body))

    async def show_stats(self, _request: web.Request) -> web.Response:
        return json_response(asdict(self.stats))

    async def add_fault(self, request: web.Request) -> web.Response:
        self.faults.add(await read_body(request, Fault))
        return await self.show_faults(request)

    async def show_faults(self, _request: web.Request) -> web.Response:
        return json_response({"faults": self.faults.pending()})

    async def clear_faults(self, request: web.Request) -> web.Response:
        self.faults.clear()
        return await self.show_faults(request)

    async def _generate(self, request: web.Request, reply: EngineReply, *, is_streamed: bool) -> web.StreamResponse:
        output = StreamedOutput(request) if is_streamed else Output(request)
        return await self._serve(output, lambda fault: self._run(reply, output, fault))

    async def _serve(self, output: Output, work: EngineWork) -> web.StreamResponse:
        """Do `work`, or fail as the next injected fault prescribes."""
        fault = self.faults.take()
        if fault is not None and is_immediate(fault):
            return await fail_at_once(output.request, fault)
        try:
            return await work(fault)
        except InjectedFault as hit:
            return hit.response
        except ConnectionError:  # the client disconnected during a write
            return output.response

    async def _run(self, reply: EngineReply, output: Output, fault: Fault | None) -> web.StreamResponse:
        plan = reply.plan
        async with self._generator.generate(
            prompt_tokens=plan.prompt_tokens, cached_tokens=plan.cached_tokens, new_tokens=plan.n_steps
        ) as tokens:
            await output.open(reply)
            n_steps = plan.n_steps if fault is None else min(fault.after_tokens, plan.n_steps)
            await self._decode(reply, output, tokens, n_steps)
            if fault is not None:
                raise InjectedFault(await output.fail(fault))
            return await output.close(reply)

    async def _decode(self, reply: EngineReply, output: Output, tokens: TokenSource, n_steps: int) -> None:
        done = 0
        while done < n_steps:
            due = min(await tokens.next_due(done), n_steps)
            await output.emit(reply, range(done, due))
            self.stats.tokens += sum(max(min(due, len(choice.pieces)) - done, 0) for choice in reply.plan.choices)
            done = due

    def _admit(self, model: str) -> None:
        self._loader.check()
        self._check_model(model)

    def _check_model(self, model: str) -> None:
        if model not in self.settings.models and self.settings.speaks != "llama.cpp":  # that serves any name
            raise EngineModelNotFound(model, served=self.settings.models)

    def _head(self, prefix: str, model: str) -> ReplyHead:
        if self.settings.speaks == "llama.cpp":
            model = self.settings.models[0]
        return ReplyHead(id=f"{prefix}-{self._rng.randbytes(12).hex()}", created=int(self._clock.unix_s()), model=model)

    def _model(self, name: str) -> dict[str, object]:
        settings = self.settings
        return {
            "id": name,
            "object": "model",
            "created": self._started_at,
            "owned_by": "sparewatt",
            "status": {"value": self._loader.state},
            "meta": ({"prefix_cache_tokens": settings.prefix_cache_tokens} if settings.prefix_cache_tokens else {})
            | {
                "n_ctx_train": settings.n_ctx,
                "n_params": settings.n_params,
                "size": settings.n_params // 2,
                "n_embd": settings.n_embd,
                "capabilities": settings.capabilities,
            },
        }


async def read_body(request: web.Request, kind: type[T]) -> T:
    """Decode the body as `kind`. The error names the invalid field."""
    body = await request.read()
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = _FIELD_IN_ERROR.search(str(error))
        raise InvalidField(str(error), param=where.group(1) if where else None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}.") from None


def errors_as_objects(settings: EngineSettings) -> Middleware:
    """Puts every error, aiohttp's own included, into the shape that the server uses."""

    @web.middleware
    async def worded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except SparewattError as error:
            return json_response(error_in(settings.speaks, error), status=error.status)
        except web.HTTPException as error:
            if error.status == HTTPStatus.NOT_FOUND and settings.speaks != "sparewatt":
                status, body = missing_page(settings.speaks, request.path)
                return web.Response(body=body, status=status, content_type=_content_type(body))
            code = error.reason.lower().replace(" ", "_")
            return json_response(error_object(error.reason, "invalid_request_error", code=code), status=error.status)

    return worded


def _content_type(body: bytes) -> str:
    return "application/json" if body[:1] in (b"{", b"[") else "text/plain"


def make_app(engine: Engine) -> web.Application:
    app = web.Application(middlewares=[errors_as_objects(engine.settings)], client_max_size=REQUEST_BODY_BYTES_MAX)
    app.add_routes(
        [
            web.post("/v1/chat/completions", engine.chat),
            web.post("/v1/completions", engine.complete),
            web.post("/v1/embeddings", engine.embed),
            web.get("/engine/stats", engine.show_stats),
            web.get("/engine/faults", engine.show_faults),
            web.post("/engine/faults", engine.add_fault),
            web.delete("/engine/faults", engine.clear_faults),
        ]
    )
    app.add_routes(_own_pages(engine) if engine.settings.speaks == "sparewatt" else _dialect_pages(engine))
    return app


def _own_pages(engine: Engine) -> list[web.RouteDef]:
    return [
        web.get("/v1/models", engine.models),
        web.get("/v1/models/{name:.+}", engine.model),
        web.get("/health", engine.health),
        web.get("/props", engine.props),
        web.get("/slots", engine.slots),
        web.post("/apply-template", engine.apply_template),
        web.post("/tokenize", engine.tokenize),
    ]


def _dialect_pages(engine: Engine) -> list[web.RouteDef]:
    posted = {"/api/show"}
    pages = [web.post(path, engine.page) if path in posted else web.get(path, engine.page) for path in engine.pages()]
    if engine.settings.speaks == "llama.cpp":
        pages += [web.post("/apply-template", engine.apply_template), web.post("/tokenize", engine.tokenize)]
    return pages


@asynccontextmanager
async def running_engine(
    settings: EngineSettings | None = None, *, clock: Clock | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve on a loopback port inside this process; yields the base URL, `http://127.0.0.1:PORT`."""
    app = make_app(Engine(settings or EngineSettings(), clock=clock))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=BACKLOG).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
