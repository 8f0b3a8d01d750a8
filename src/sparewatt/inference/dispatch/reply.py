"""Reading a node's reply: when has it said something, what may pass, how much was it, and did it end properly."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.limits import REPLY_BODY_BYTES_MAX
from sparewatt.inference.dispatch.sse import DONE, EventSplitter, event_data
from sparewatt.protocol.openai import Usage, read_chunk, read_completion, read_error_message


class ReplyBroken(Exception):
    """The model server sent something that is no reply."""


@dataclass(slots=True)
class Passed:
    """What one piece of input turned into."""

    data: bytes
    withheld_bytes: int = 0


class StreamReply:
    """A streamed reply. `started`: it holds something that a client would lose if another node took over."""

    def __init__(self, *, wants_usage: bool) -> None:
        self._wants_usage = wants_usage
        self._splitter = EventSplitter()
        self._held: list[bytes] = []
        self.started = False
        self.done = False
        self.chunks = 0
        self.usage: Usage | None = None

    @property
    def tokens(self) -> int:
        """What the node says it made, but never more than one token per chunk unless it said so at the end."""
        return self.usage.completion_tokens if self.usage else self.chunks

    def feed(self, data: bytes) -> Passed:
        """What may go to the client now. Until the reply has started, that is nothing."""
        passed: list[bytes] = []
        withheld = 0
        for event in self._splitter.feed(data):
            if self._keep(event):
                passed.append(event)
            else:
                withheld += len(event)
        if not self.started:
            self._held += passed
            return Passed(b"", withheld)
        held, self._held = self._held, []
        return Passed(b"".join(held + passed), withheld)

    def end(self) -> bytes:
        """The node says that it has sent everything. Raises ReplyBroken if that cannot be."""
        if not self.done or self._splitter.rest.strip():
            raise ReplyBroken("the stream ended early")
        held, self._held = self._held, []
        return b"".join(held)

    def _keep(self, event: bytes) -> bool:
        data = event_data(event)
        if data is None:
            return False  # comments keep connections alive; ours has its own
        if data == DONE:
            self.done = True
            return True
        chunk = read_chunk(data)
        if chunk is None or self.done:
            raise ReplyBroken("the stream holds something that is no chunk")
        if chunk.is_error():
            raise ReplyBroken(read_error_message(data) or "the model server reported an error")
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.carries_output():
            self.started = True
            self.chunks += 1
        return self._wants_usage or bool(chunk.choices) or chunk.usage is None


class WholeReply:
    """A reply in one piece, held until it is complete and known to be one."""

    def __init__(self) -> None:
        self._body = bytearray()
        self.usage: Usage | None = None

    @property
    def tokens(self) -> int:
        return self.usage.completion_tokens if self.usage else 0

    def feed(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > REPLY_BODY_BYTES_MAX:
            raise ReplyBroken("the reply is over the limit")

    def end(self) -> bytes:
        body = bytes(self._body)
        completion = read_completion(body)
        if completion is None:
            raise ReplyBroken("the reply is not a chat completion")
        self.usage = completion.usage
        return body

    def error_message(self) -> str | None:
        return read_error_message(bytes(self._body))
