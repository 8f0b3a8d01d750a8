"""A real model on a real GPU without a download: a Llama of random weights behind an OpenAI-compatible endpoint.

Run as `python -m bench.transformers_server --port P`. It needs torch and transformers. Its tokens are bytes, so that it
needs no vocabulary either; its answers mean nothing, but a token takes as long as in a model of this size. Concurrent
answers alternate token by token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

MODEL = "random-llama-1b"
CONTEXT = 8192
PRINTABLE = [*range(97, 123), 32, 46]
"""The allowed bytes: small letters, spaces and full stops."""


class Model:
    """Loads on start. A lock serialises the steps on the GPU."""

    def __init__(self, *, layers: int, width: int, device: str | None) -> None:
        import torch  # noqa: PLC0415 (so that the file can be read where there is no torch)
        from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

        self._torch = torch
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.float16 if self.device == "cuda" else torch.float32
        config = LlamaConfig(
            vocab_size=256,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 128,
            num_key_value_heads=max(1, width // 512),
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
        torch.manual_seed(7)
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        with torch.device(self.device):
            self._model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(default)
        self._allowed = torch.tensor(PRINTABLE, device=self.device)
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        self.weights_bytes = sum(p.numel() * p.element_size() for p in self._model.parameters())
        self._lock = asyncio.Lock()

    async def write(self, prompt: bytes, count: int) -> AsyncIterator[bytes]:
        """A byte at a time."""
        given: Any = self._torch.tensor([list(prompt)], device=self.device)
        cache: Any = None
        for _ in range(count):
            async with self._lock:
                token, cache = await asyncio.to_thread(self._step, given, cache)
            yield bytes([token])
            given = self._torch.tensor([[token]], device=self.device)

    def _step(self, given: Any, cache: Any) -> tuple[int, Any]:
        with self._torch.inference_mode():
            out = self._model(input_ids=given, past_key_values=cache, use_cache=True)
            best = out.logits[0, -1, self._allowed].argmax()
            return int(self._allowed[best]), out.past_key_values


class Server:
    def __init__(self, model: Model) -> None:
        self._model = model

    async def models(self, _: web.Request) -> web.Response:
        meta = {"n_ctx": CONTEXT, "n_params": self._model.parameters, "size": self._model.weights_bytes, "ftype": "F16"}
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "meta": meta}]})

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        wanted = await request.json()
        prompt = "\n".join(str(message.get("content")) for message in wanted["messages"]).encode()[-CONTEXT // 2 :]
        count = min(int(wanted.get("max_tokens") or wanted.get("max_completion_tokens") or 128), CONTEXT // 2)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": MODEL}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
        text = self._model.write(prompt or b" ", count)
        if not wanted.get("stream"):
            said = b"".join([piece async for piece in text]).decode()
            message = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "length"}
            return web.json_response(head | {"object": "chat.completion", "choices": [message], "usage": usage})
        return await self._stream(request, head | {"object": "chat.completion.chunk"}, text, usage, wanted)

    async def _stream(
        self, request: web.Request, head: dict[str, Any], text: AsyncIterator[bytes], usage: Any, wanted: Any
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)

        async def send(choices: list[dict[str, Any]], **more: Any) -> None:
            await response.write(f"data: {json.dumps(head | {'choices': choices} | more)}\n\n".encode())

        await send([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        async for piece in text:
            await send([{"index": 0, "delta": {"content": piece.decode()}, "finish_reason": None}])
        await send([{"index": 0, "delta": {}, "finish_reason": "length"}])
        if (wanted.get("stream_options") or {}).get("include_usage"):
            await send([], usage=usage)
        await response.write(b"data: [DONE]\n\n")
        return response


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--device")
    given = parser.parse_args()
    server = Server(Model(layers=given.layers, width=given.width, device=given.device))
    app = web.Application(client_max_size=8 << 20)
    app.add_routes(
        [
            web.get("/v1/models", server.models),
            web.get("/health", server.health),
            web.post("/v1/chat/completions", server.chat),
        ]
    )
    web.run_app(app, host="127.0.0.1", port=given.port, access_log=None, print=None, handler_cancellation=True)


if __name__ == "__main__":
    main()
