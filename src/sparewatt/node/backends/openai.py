"""Any OpenAI-compatible server; llama.cpp's `/props` and `/slots` are used where they exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, TypeVar, get_args

import aiohttp
import msgspec
from msgspec import Meta

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.node.backends.model import (
    BackendBroke,
    BackendError,
    BackendLoad,
    BackendModel,
    BackendReply,
    BackendSlow,
    BackendUnreachable,
)
from sparewatt.protocol.node import Capability

_T = TypeVar("_T")
ASK_S = 5.0
ANSWER_BYTES_MAX = 4 << 20
DEFAULT_SLOTS = 4
BYTES_PER_PARAMETER = 2
KV_SHARE = 100_000
"""A token's keys and values take about a hundred-thousandth of the weights (8B at 16 bits: 131 kB of 16 GB)."""


class _Meta(msgspec.Struct, frozen=True):
    n_ctx: int | None = None
    n_ctx_train: int | None = None
    n_params: int | None = None
    size: int | None = None
    ftype: str | None = None
    prefix_cache_tokens: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    capabilities: list[str] | None = None


class _Model(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(min_length=1)]
    meta: _Meta | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: Annotated[list[_Model], Meta(max_length=MODELS_PER_NODE_MAX)]


class _Props(msgspec.Struct, frozen=True):
    total_slots: Annotated[int, Meta(ge=1, le=4096)] | None = None


class _Slot(msgspec.Struct, frozen=True):
    is_processing: bool = False
    n_ctx: int | None = None


class OpenAIBackend:
    """Implements Backend over HTTP. Give it a session that uses no connection twice: llama.cpp closes them."""

    kind = "openai"
    stops_whole_answers = False  # llama.cpp does not, and nothing tells a server that does

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base = base_url.rstrip("/").removesuffix("/v1")
        self._session = session
        self._slots = DEFAULT_SLOTS

    async def models(self) -> list[BackendModel]:
        listed = _decode(await self._get("/v1/models"), _Models)
        healthy = await self._is_loaded()
        return [_describe(model, loaded=healthy) for model in listed.data]

    async def load(self) -> BackendLoad | None:
        try:
            slots = _decode(await self._get("/slots"), list[_Slot])
        except (BackendUnreachable, BackendBroke):
            return None
        contexts = [slot.n_ctx for slot in slots if slot.n_ctx is not None and slot.n_ctx > 0]
        return BackendLoad(
            running=sum(slot.is_processing for slot in slots),
            slots=max(1, len(slots)),
            context_tokens=sum(contexts) if contexts else None,
        )

    async def slots(self) -> int:
        """How many requests it works on at once; a cautious guess for servers that do not say."""
        with suppress(BackendUnreachable, BackendBroke):  # llama.cpp is silent while it loads: the last word stands
            self._slots = _decode(await self._get("/props"), _Props).total_slots or DEFAULT_SLOTS
        return self._slots

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        headers = {"content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S)
        try:
            reply = await self._session.post(
                self._base + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _failure(error, "no answer from the model server") from None
        try:
            yield BackendReply(reply.status, reply.content_type, _chunks(reply))
        finally:
            reply.close()  # not release: an unread rest means that the generation must stop

    async def _is_loaded(self) -> bool:
        """llama.cpp answers 503 on /health while it loads; servers without /health are taken to be ready."""
        try:
            async with self._session.get(f"{self._base}/health", timeout=aiohttp.ClientTimeout(total=ASK_S)) as reply:
                return reply.status != 503
        except (aiohttp.ClientError, TimeoutError, OSError):
            return True

    async def _get(self, path: str) -> bytes:
        try:
            timeout = aiohttp.ClientTimeout(total=ASK_S)
            async with self._session.get(self._base + path, timeout=timeout, allow_redirects=False) as reply:
                body = await _read_whole(reply)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _failure(error, f"{path} did not answer") from None
        if reply.status != 200:
            raise BackendBroke(f"{path} answered {reply.status}")
        return body


async def _read_whole(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise BackendBroke(f"the model server's answer is over {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(body)


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise BackendBroke(f"the model server stopped in the middle ({type(error).__name__})") from None


def _failure(error: Exception, what: str) -> BackendError:
    """A server that sent something unreadable was there; one that sent nothing was not."""
    has_answered = isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError)
    kind = BackendBroke if has_answered else BackendSlow if isinstance(error, TimeoutError) else BackendUnreachable
    return kind(f"{what} ({type(error).__name__})")


def _decode(body: bytes, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BackendBroke("the model server's answer has an unknown shape") from None


def _describe(model: _Model, *, loaded: bool) -> BackendModel:
    meta = model.meta or _Meta()
    weights_bytes = meta.size or (meta.n_params or 0) * BYTES_PER_PARAMETER
    return BackendModel(
        id=model.id,
        state="warm" if loaded else "loading",
        context_length=meta.n_ctx or model.max_model_len or meta.n_ctx_train,
        quantization=meta.ftype,
        weights_bytes=weights_bytes,
        kv_bytes_per_token=weights_bytes // KV_SHARE,
        parameters=meta.n_params,
        prefix_cache_tokens=_prefix_cache_tokens(meta),
        capabilities=_capabilities(meta),
    )


def _capabilities(meta: _Meta) -> tuple[Capability, ...] | None:
    """What the server says in a field of ours, as far as we know the words."""
    said = meta.capabilities
    return None if said is None else tuple(word for word in get_args(Capability) if word in said)


def _prefix_cache_tokens(meta: _Meta) -> int:
    """What the server says in its list of models, in a field of ours: no server in use has one yet.

    llama.cpp as we start it keeps none (`llama_server.py`). vLLM tells in `/metrics` (`cache_config_info`), SGLang
    in `/get_server_info`; an adapter for them fills this in.
    """
    return meta.prefix_cache_tokens


KNOWN_PORTS = {"llama.cpp": 8080, "Ollama": 11434, "vLLM": 8000, "SGLang": 30000, "LM Studio": 1234}


async def find_local_server(session: aiohttp.ClientSession) -> str | None:
    """The first of the usual ports of this machine that lists models."""

    async def ask(port: int) -> str | None:
        url = f"http://127.0.0.1:{port}"
        try:
            found = await OpenAIBackend(url, session).models()
        except (BackendUnreachable, BackendBroke):
            return None
        return url if found else None

    answers: list[Any] = await asyncio.gather(*(ask(port) for port in KNOWN_PORTS.values()))
    return next((url for url in answers if url), None)
