"""What a client asks of a model, whatever the endpoint: all it takes to find a node, send it there and bill it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from sparewatt.inference.prompt import PromptSize
from sparewatt.protocol.link.frames import JobPath


class ReplyFilter(Protocol):
    """Rewrites a model server's reply into what the client asked for, where the two differ."""

    def whole(self, body: bytes) -> bytes:
        """A reply that came in one piece. Raises ValueError if it cannot be read."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The next bytes of a stream."""
        ...

    def rest(self) -> bytes:
        """What is left at the end of a stream."""
        ...


class ModelCall(msgspec.Struct, frozen=True):
    path: JobPath
    """The endpoint of the node's model server, which need not be the one that the client called."""
    model: str
    """As the client names it: it may carry a routing suffix."""
    body: bytes
    """For the node's model server, before `Submission` rewrites a few of its fields."""
    size: PromptSize
    prompt: tuple[bytes, ...] = ()
    """Its pieces as raw JSON, first to last, by which a cached prefix is recognised."""
    is_text: bool = False
    """Whether the pieces surely hold text alone."""
    provider: bytes = b""
    """The policy object of the request, as JSON. Empty if there was none."""
    stream: bool = False
    wants_usage: bool = False
    """Whether a stream is to end in its token counts."""
    output_limit: int | None = None
    """Tokens of each answer at most, if the client set a limit."""
    answers: int = 1
    """How many it asks for. 0: nothing is written, as with embeddings, and only the prompt costs."""
    needs: frozenset[str] = msgspec.field(default_factory=frozenset)
    """What a node's model must be able to do, and what the node must fetch (`inference.capabilities`)."""
    foreign: tuple[str, ...] = ()
    """Fields of the body that no model server takes: they are removed."""
    ignored: tuple[str, ...] = ()
    """Those of them that ask for something: the reply names them."""
    unsure: tuple[str, ...] = ()
    """Fields of the body that some model servers accept and do not act on."""
    reply_filter: ReplyFilter | None = None
    stores: bool = False
    """Whether the client wants the answer stored."""
    fallbacks: tuple[str, ...] = ()
    """Models to try after `model`, in this order."""
