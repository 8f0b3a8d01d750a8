"""The OpenAI endpoints that models answer, as the router and the OpenAPI document know them.

`edge/exchange.py` serves their POST requests without aiohttp: it reads bodies with `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.inference import chat, completions, embeddings
from sparewatt.inference.call import ModelCall
from sparewatt.protocol.api.inference import ChatCompletion, EmbeddingList, TextCompletion

READERS: Mapping[str, Callable[[bytes], ModelCall]] = {
    chat.PATH: chat.read_chat,
    completions.PATH: completions.read_completion_request,
    embeddings.PATH: embeddings.read_embedding_request,
}


class InferenceRoutes:
    """In the router so that these paths are documented and other methods are refused. No POST request gets here."""

    @endpoint("POST /v1/chat/completions", access="inference", body="ChatRequest", streams=True)
    async def create_chat_completion(self, _: web.Request, __: Principal) -> ChatCompletion:
        """Answer a chat, whole or as a stream."""
        raise web.HTTPNotFound

    @endpoint("POST /v1/completions", access="inference", body="CompletionRequest", streams=True)
    async def create_completion(self, _: web.Request, __: Principal) -> TextCompletion:
        """Continue a prompt, whole or as a stream."""
        raise web.HTTPNotFound

    @endpoint("POST /v1/embeddings", access="inference", body="EmbeddingRequest")
    async def create_embeddings(self, _: web.Request, __: Principal) -> EmbeddingList:
        """Turn texts into vectors."""
        raise web.HTTPNotFound
