"""POST /api/chat, /api/generate, /api/embed and /api/embeddings: what models answer, in Ollama's shapes.

A chat or a prompt without content loads a model at Ollama. Nodes load models by themselves, so the reply says that it
is done, and nothing is charged.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.inference.chat import read_chat
from sparewatt.api.inference.completions import read_completion_request
from sparewatt.api.inference.embeddings import read_embedding_request
from sparewatt.api.inference.translated import AnswerWithoutJob, TranslatedCall, TranslatedCalls
from sparewatt.core.clock import Clock
from sparewatt.inference.call import ModelCall
from sparewatt.protocol.api.ollama import OllamaChatReply, OllamaEmbedding, OllamaEmbeddings, OllamaGenerateReply
from sparewatt.protocol.ollama.chat_request import (
    is_completion,
    prompt_to_chat,
    prompt_to_completion,
    to_chat,
    to_embeddings,
)
from sparewatt.protocol.ollama.reply import OllamaEmbedReply, OllamaReply
from sparewatt.protocol.ollama.request import (
    OllamaChatRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaPromptRequest,
    model_name,
    parse_ollama,
)


@dataclass(slots=True, kw_only=True)
class OllamaGenerationEndpoints:
    calls: TranslatedCalls
    clock: Clock

    @endpoint("POST /api/chat", access="identified", body="OllamaChatRequest", reply=OllamaChatReply, ndjson=True)
    async def ollama_chat(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer a chat in Ollama's protocol: a line of JSON for every piece, unless `stream` is false."""
        return await self.calls.answer(request, principal, lambda body: read_ollama_chat(body, self.clock))

    @endpoint(
        "POST /api/generate", access="identified", body="OllamaGenerateRequest", reply=OllamaGenerateReply, ndjson=True
    )
    async def ollama_generate(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Answer a prompt in Ollama's protocol: a line of JSON for every piece, unless `stream` is false."""
        return await self.calls.answer(request, principal, lambda body: read_ollama_prompt(body, self.clock))

    @endpoint("POST /api/embed", access="identified", body="OllamaEmbedRequest", reply=OllamaEmbeddings)
    async def ollama_embed(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Turn texts into vectors, in Ollama's protocol."""
        return await self.calls.answer(request, principal, lambda body: read_ollama_embed(body, self.clock))

    @endpoint("POST /api/embeddings", access="identified", body="OllamaPromptRequest", reply=OllamaEmbedding)
    async def ollama_embeddings(self, request: web.Request, principal: Principal) -> web.StreamResponse:
        """Turn one text into a vector: the older form of `/api/embed`."""
        return await self.calls.answer(request, principal, lambda body: read_ollama_embeddings(body, self.clock))


def read_ollama_chat(body: bytes, clock: Clock) -> TranslatedCall | AnswerWithoutJob:
    """Raises the error that the client gets."""
    request, parsed = parse_ollama(body, OllamaChatRequest)
    reply = OllamaReply("chat", model=request.model, clock=clock, with_thinking=request.think is not False)
    if not request.messages:
        return AnswerWithoutJob(model_name(request.model), reply.loaded())
    call = read_chat(msgspec.json.encode(to_chat(request, parsed)))
    return TranslatedCall(_naming(call, parsed.ignored), reply)


def read_ollama_prompt(body: bytes, clock: Clock) -> TranslatedCall | AnswerWithoutJob:
    """Raises the error that the client gets."""
    request, parsed = parse_ollama(body, OllamaGenerateRequest)
    reply = OllamaReply("generate", model=request.model, clock=clock, with_thinking=request.think is not False)
    if not request.prompt and not request.images:
        return AnswerWithoutJob(model_name(request.model), reply.loaded())
    if is_completion(request):
        call = read_completion_request(msgspec.json.encode(prompt_to_completion(request, parsed)))
    else:
        call = read_chat(msgspec.json.encode(prompt_to_chat(request, parsed)))
    return TranslatedCall(_naming(call, parsed.ignored), reply)


def read_ollama_embed(body: bytes, clock: Clock) -> TranslatedCall:
    """Raises the error that the client gets."""
    request, parsed = parse_ollama(body, OllamaEmbedRequest)
    call = read_embedding_request(msgspec.json.encode(to_embeddings(request)))
    return TranslatedCall(_naming(call, parsed.ignored), OllamaEmbedReply(model=request.model, clock=clock))


def read_ollama_embeddings(body: bytes, clock: Clock) -> TranslatedCall:
    """Raises the error that the client gets."""
    request, parsed = parse_ollama(body, OllamaPromptRequest)
    same = OllamaEmbedRequest(model=request.model, input=request.prompt, provider=request.provider)
    call = read_embedding_request(msgspec.json.encode(to_embeddings(same)))
    reply = OllamaEmbedReply(model=request.model, clock=clock, is_single=True)
    return TranslatedCall(_naming(call, parsed.ignored), reply)


def _naming(call: ModelCall, ignored: tuple[str, ...]) -> ModelCall:
    """With what of the request has no effect."""
    return msgspec.structs.replace(call, ignored=(*call.ignored, *ignored)) if ignored else call
