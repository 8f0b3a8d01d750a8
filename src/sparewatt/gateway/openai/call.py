"""What a client asks of a model, whatever the endpoint: all it takes to find a node, send it there and bill it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sparewatt.gateway.openai.echo import Echo
from sparewatt.inference.admission.sizing import PromptSize
from sparewatt.protocol.link import JobPath
from sparewatt.protocol.node import Capability


class Call(msgspec.Struct, frozen=True):
    path: JobPath
    """The endpoint of the node's model server, which need not be the one that the client called."""
    model: str
    """As the client names it: it may carry wishes about who serves it."""
    body: bytes
    """For the node's model server, but for what `serving` changes in it."""
    size: PromptSize
    prompt: tuple[bytes, ...] = ()
    """Pieces of it as raw JSON, first to last, by which a beginning that was read before is known again."""
    is_text: bool = False
    """Whether they surely hold nothing else."""
    provider: bytes = b""
    """Who may serve it, in the words of `policy/`. Empty if nothing was said."""
    stream: bool = False
    wants_usage: bool = False
    """Whether a stream is to end in its token counts."""
    output_limit: int | None = None
    """Tokens of each answer at most, if the client set a limit."""
    answers: int = 1
    """How many it asks for. 0: nothing is written, as with embeddings, and only the prompt costs."""
    needs: frozenset[Capability] = msgspec.field(default_factory=frozenset)
    """What a node's model must be able to do."""
    foreign: tuple[str, ...] = ()
    """Fields of the body that no server would take: left out of it."""
    ignored: tuple[str, ...] = ()
    """Those of them that ask for something: named in the reply."""
    unsure: tuple[str, ...] = ()
    """Fields of the body that some servers take without doing what they say."""
    echo: Echo | None = None
    """What puts the prompt before the text of a completion."""
    reshape: Callable[[bytes], bytes] | None = None
    """What turns a whole reply into what the client asked for, where the node's server says it otherwise."""
