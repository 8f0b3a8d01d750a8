"""Reading a reply with embeddings: held until it is complete, and paid by what was read alone."""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.inference.dispatch.model import DeliveryCount
from sparewatt.inference.dispatch.reply import ReplyBroken, WholeReply
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import with_cost
from sparewatt.protocol.openai.embeddings import read_embeddings

EMBEDDINGS: JobPath = "/v1/embeddings"


class EmbeddingReply(WholeReply):
    __slots__ = ()

    def end(self) -> bytes:
        body = self.body()
        vectors = read_embeddings(body)
        if vectors is None:
            raise ReplyBroken("the reply holds no vectors")
        self.usage = vectors.usage
        self.delivered.completion_tokens = 0
        if vectors.usage is not None:
            self.delivered.prompt_tokens = vectors.usage.prompt_tokens
        return body if self._price is None else with_cost(body, self._price(self.delivered))


def whole_reply(path: JobPath, *, price: Callable[[DeliveryCount], float] | None) -> WholeReply:
    """What reads a reply in one piece from this endpoint."""
    return EmbeddingReply(price=price) if path == EMBEDDINGS else WholeReply(price=price)
