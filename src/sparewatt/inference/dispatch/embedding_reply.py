"""Reading a reply with embeddings: held until it is complete, and paid by what was read alone."""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.inference.dispatch.model import DeliveryCount
from sparewatt.inference.dispatch.reply import ReplyBroken, WholeReply
from sparewatt.protocol.link import JobPath
from sparewatt.protocol.openai import with_cost
from sparewatt.protocol.vectors import read_vectors

EMBEDDINGS: JobPath = "/v1/embeddings"


class EmbeddingReply(WholeReply):
    __slots__ = ()

    def end(self) -> bytes:
        body = self.body()
        vectors = read_vectors(body)
        if vectors is None:
            raise ReplyBroken("the reply holds no vectors")
        self.usage = vectors.usage
        self.seen.completion_tokens = 0
        if vectors.usage is not None:
            self.seen.prompt_tokens = vectors.usage.prompt_tokens
        return body if self._price is None else with_cost(body, self._price(self.seen))


def whole_reply(path: JobPath, *, price: Callable[[DeliveryCount], float] | None) -> WholeReply:
    """What reads a reply in one piece from this endpoint."""
    return EmbeddingReply(price=price) if path == EMBEDDINGS else WholeReply(price=price)
