"""A real model server for a GPU, without a download: a Llama of random weights with continuous batching, as vLLM.

Run as `python -m bench.torch_server --port P --size 8b`; it needs torch, and Triton for full speed. It calls itself
vLLM, since it works as vLLM does (chunked prefill, KV cache, `/metrics`, `/server_info` of its development mode), so a
node takes slots, KV cache and load from its pages. Of vLLM's API it has chat completions, streamed or not, without
tools. Four bytes of a prompt are a token, about as in English; an answer ends at its limit. A client that disconnects
ends its request. `--timings FILE` has the model time itself before it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from bench.iteration_scheduler import CHUNK_TOKENS, Iteration, IterationScheduler, Sequence
from bench.random_llama import SHAPES, Launched, RandomLlama

from sparewatt.sim.servers.facts import ServerLoad, ServerTotals, ServerTruth
from sparewatt.sim.servers.pages import live_pages, static_pages

TOKEN_BYTES = 4
LETTERS = 26
BODY_BYTES_MAX = 8 << 20
SWITCH_S = 0.0002
"""Python's threads take turns so often: the one that feeds the GPU must not wait for the one that writes to sockets."""


def tokens_of(text: str, vocabulary: int) -> list[int]:
    data = text.encode()
    found = [int.from_bytes(data[at : at + TOKEN_BYTES], "big") % vocabulary for at in range(0, len(data), TOKEN_BYTES)]
    return found or [0]


def text_of(token: int) -> str:
    """Three letters and a space."""
    letters = (token % LETTERS, token // LETTERS % LETTERS, token // LETTERS**2 % LETTERS)
    return "".join(chr(97 + letter) for letter in letters) + " "


@dataclass(slots=True)
class Answer:
    """A request and what came of it, on the event loop's side."""

    sequence: Sequence
    began_s: float
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


class EngineThread:
    """Feeds the model. The next decoding step is launched before the tokens of the previous one are fetched: so the GPU
    never waits. An iteration that reads prompts takes long enough to be awaited; who comes meanwhile joins the next."""

    def __init__(self, model: RandomLlama, deliver: Callable[[list[tuple[Sequence, int]]], None]) -> None:
        self._model = model
        self._deliver = deliver
        self._scheduler = IterationScheduler(model.slots)
        self._has_news = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._has_news:
            self._is_stopping = True
            self._has_news.notify()
        self._thread.join()

    def submit(self, sequence: Sequence) -> None:
        with self._has_news:
            self._scheduler.submit(sequence)
            self._has_news.notify()

    def cancel(self, sequence: Sequence) -> None:
        with self._has_news:
            sequence.is_cancelled = True
            self._has_news.notify()

    def load(self) -> tuple[int, int, int]:
        """Running, waiting, and tokens in the KV cache."""
        with self._has_news:
            running = sum(not each.is_over for each in self._scheduler.running)
            waiting = sum(not each.is_over for each in self._scheduler.waiting)
            return running, waiting, self._scheduler.kv_tokens() if running else 0

    def _run(self) -> None:
        try:
            self._work()
        except RuntimeError:  # of CUDA: nothing works after it, and those who wait should know
            traceback.print_exc()
            os._exit(1)

    def _work(self) -> None:
        before: Launched | None = None
        while True:
            if before is not None and before.iteration.pieces:
                self._finish(before)
                before = None
            iteration = self._next(can_wait=before is None)
            if iteration is None and before is None:
                return
            launched = self._model.launch(iteration) if iteration is not None else None
            if before is not None:
                self._finish(before)
            before = launched

    def _finish(self, launched: Launched) -> None:
        self._deliver(list(zip(launched.iteration.writers, launched.tokens(), strict=True)))

    def _next(self, *, can_wait: bool) -> Iteration | None:
        with self._has_news:
            while not self._is_stopping:
                if (iteration := self._scheduler.next()) is not None or not can_wait:
                    return iteration
                self._has_news.wait()
        return None


class TorchServer:
    def __init__(self, model: RandomLlama) -> None:
        self._model = model
        self._answers: dict[int, Answer] = {}
        self._engine = EngineThread(model, self._deliver_from_thread)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._totals = ServerTotals()
        shape = model.shape
        self._truth = ServerTruth(
            kind="vllm",
            model=shape.name,
            context_length=model.context,
            slots=model.slots,
            kv_tokens=model.slots * model.context,
            weights_bytes=2 * shape.parameters,
            kv_bytes_per_token=shape.kv_bytes_per_token,
            parameters=shape.parameters,
            prefix_cache=False,
            chunk_tokens=CHUNK_TOKENS,
            started_at=int(time.time()),
        )

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        pages = static_pages(self._truth)
        app.add_routes([web.get(path, _page(body)) for path, body in pages.items()])
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/server_info", self._server_info),
                web.post("/v1/chat/completions", self._chat),
            ]
        )
        app.cleanup_ctx.append(self._running)
        return app

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self._engine.start()
        yield
        await asyncio.to_thread(self._engine.stop)

    def _deliver_from_thread(self, tokens: list[tuple[Sequence, int]]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver, tokens)

    def _deliver(self, tokens: list[tuple[Sequence, int]]) -> None:
        for sequence, token in tokens:
            if (answer := self._answers.get(id(sequence))) is not None:
                answer.tokens.put_nowait(token)

    # pages

    async def _metrics(self, _: web.Request) -> web.Response:
        running, waiting, kv_tokens = self._engine.load()
        share = min(1.0, kv_tokens / self._truth.kv_tokens)
        load = ServerLoad(running=running, waiting=waiting, kv_used_share=share, totals=self._totals)
        return web.Response(body=live_pages(self._truth, load)["/metrics"], content_type="text/plain")

    async def _server_info(self, _: web.Request) -> web.Response:
        scheduler = {"max_num_seqs": self._model.slots, "enable_chunked_prefill": True}
        return web.json_response({"vllm_config": {"scheduler_config": scheduler, "model_config": {}}})

    # chat

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = json.loads(await request.read())
            text = "\n".join(f"{message['role']}: {message.get('content')}" for message in wanted["messages"])
            limit = int(wanted.get("max_completion_tokens") or wanted.get("max_tokens") or 0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _refusal(f"this is no chat: {type(error).__name__} {error}")
        if wanted.get("tools"):
            return _refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
        prompt = tokens_of(text, self._model.shape.vocabulary)
        limit = limit or self._model.context - len(prompt)
        if limit < 1 or len(prompt) + limit > self._model.context:
            return _refusal(
                f"This model's maximum context length is {self._model.context} tokens. However, you requested {limit} "
                f"output tokens and your prompt contains {len(prompt)} input tokens."
            )
        answer = Answer(Sequence(prompt, limit), time.monotonic())
        return await self._answer(request, wanted, answer)

    async def _answer(self, request: web.Request, wanted: Any, answer: Answer) -> web.StreamResponse:
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": self._truth.model}
        prompt_tokens, tokens = len(answer.sequence.prompt), answer.sequence.limit
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
        self._answers[id(answer.sequence)] = answer
        self._engine.submit(answer.sequence)
        try:
            if wanted.get("stream"):
                has_usage = bool((wanted.get("stream_options") or {}).get("include_usage"))
                return await self._stream(request, head, answer, usage if has_usage else None)
            said = "".join([text_of(token) async for batch in self._tokens(answer) for token in batch])
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "length"}
            return web.json_response(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
        finally:
            self._engine.cancel(answer.sequence)
            del self._answers[id(answer.sequence)]
            self._count(prompt_tokens=prompt_tokens, requests=1, request_s=time.monotonic() - answer.began_s)

    async def _tokens(self, answer: Answer) -> AsyncIterator[list[int]]:
        """As they come; several if the client was slower than the model."""
        left = answer.sequence.limit
        while left:
            found = [await answer.tokens.get()]
            while not answer.tokens.empty():
                found.append(answer.tokens.get_nowait())
            if left == answer.sequence.limit:
                self._count(first_tokens=1, first_token_s=time.monotonic() - answer.began_s)
            self._count(generation_tokens=len(found))
            left -= len(found)
            yield found

    def _count(self, **more: float) -> None:
        added: dict[str, Any] = {name: getattr(self._totals, name) + value for name, value in more.items()}
        self._totals = replace(self._totals, **added)

    async def _stream(
        self, request: web.Request, head: dict[str, Any], answer: Answer, usage: dict[str, int] | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        common = head | {"object": "chat.completion.chunk"}
        before, after = _event(common, [_choice({"content": "\0"})]).split(b"\\u0000")
        opening = _event(common, [_choice({"role": "assistant", "content": ""})])
        async for tokens in self._tokens(answer):
            await response.write(opening + b"".join(before + text_of(token).encode() + after for token in tokens))
            opening = b""
        ending = _event(common, [_choice({}, finish="length")])
        if usage is not None:
            ending += _event(common | {"usage": usage}, [])
        await response.write(ending + b"data: [DONE]\n\n")
        return response


def _choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _event(common: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
    return f"data: {json.dumps(common | {'choices': choices})}\n\n".encode()


def _refusal(message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "BadRequestError", "code": 400}}, status=400)


def _page(body: bytes) -> Callable[[web.Request], Any]:
    async def show(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    return show


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--size", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--context", type=int, help="Tokens of one request, prompt and answer.")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--timings", type=Path, metavar="FILE", help="Time the model itself first, and write it here.")
    given = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    began_s = time.monotonic()
    shape = SHAPES[given.size]
    context = given.context or shape.context
    model = RandomLlama(shape, slots=given.slots, context=context, device=given.device)
    not_captured = model.prepare()
    loaded_s = time.monotonic() - began_s
    if given.timings is not None:
        facts = {
            "model": model.shape.name,
            "parameters": model.shape.parameters,
            "kv_bytes_per_token": model.shape.kv_bytes_per_token,
            "device": model.device,
            "slots": model.slots,
            "context": model.context,
            "attention": model.attention,
            "not_captured": not_captured,
            "loaded_s": loaded_s,
        }
        given.timings.write_text(json.dumps(facts | model.timings()))
    web.run_app(
        TorchServer(model).app(),
        host="127.0.0.1",
        port=given.port,
        access_log=None,
        print=None,
        handler_cancellation=True,
    )


if __name__ == "__main__":
    main()
