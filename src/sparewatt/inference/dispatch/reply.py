"""Reads a node's reply: splits it into server-sent events, counts chunks and tokens, decides what may be forwarded to
the client, and whether the reply is complete.

`StreamReply` reads a streamed chat or completion, `WholeReply` a reply in one piece, `EmbeddingReply` vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.inference.dispatch.failover import EmittedText, Seam, StraddlingStop
from sparewatt.inference.dispatch.failure_reasons import error_event_reason
from sparewatt.inference.dispatch.model import DeliveryCount
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import (
    CompletionChunk,
    Usage,
    read_chunk,
    read_completion,
    with_cost,
    with_reply_model,
    with_usage,
)
from sparewatt.protocol.openai.embeddings import read_embeddings

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_LINE_BYTES_MAX = 4
DONE = b"[DONE]"


_CONTENT = b'"content"'
_is_plain = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+').fullmatch
"""Whether the bytes are the inside of a JSON string, without escapes by number (`\\u0041`)."""
needs_reading = re.compile(rb'["\\\x00-\x1f]').search
"""A faster check that errs on one side: bytes without any of these are plain."""


class ChunkShape:
    """What comes before and after the text in every chunk of an answer, as bytes."""

    __slots__ = ("_n_after", "_n_before", "after", "before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before, self.after = before, after
        self._n_before, self._n_after = len(before), len(after)

    def text_of(self, event: bytes) -> bytes | None:
        """The text of an event that has this shape, as it stands in JSON; None if it must be read."""
        if event.startswith(self.before) and event.endswith(self.after):
            text = event[self._n_before : -self._n_after]
            if text and _is_plain(text):
                return text
        return None

    def texts_of(self, events: bytes) -> list[bytes] | None:
        """The texts of several events that all have this shape; None if they must be read."""
        n_before, before = self._n_before, self.before
        parts = events.split(self.after)  # which no event has but at its end: there is a line's end in it
        texts = [part[n_before:] for part in parts if part.startswith(before)]
        if parts.pop() or len(texts) < len(parts) or not all(texts):
            return None
        # With a space between them: the end of one and the beginning of the next could look like one plain piece.
        return texts if _is_plain(b" ".join(texts)) else None


def shape_of(event: bytes, chunk: CompletionChunk) -> ChunkShape | None:
    """The shape of an event that was read, if it carries a plain piece of text and nothing else."""
    choices = chunk.choices or ()
    if len(choices) != 1 or chunk.usage is not None or not event.startswith(b"data: ") or not event.endswith(b"\n\n"):
        return None
    choice, is_one_line = choices[0], event.find(b"\n") == len(event) - 2 and b"\r" not in event
    if not is_one_line or choice.index != 0 or choice.finish_reason or bytes(choice.logprobs) != b"null":
        return None
    if choice.delta is None or choice.delta.keys() != {"content"} or bytes(choice.text) != b"null":
        return None
    text = bytes(choice.delta["content"])
    start = event.find(b'"', event.rfind(_CONTENT) + len(_CONTENT))
    if event[start : start + len(text)] != text or not text[1:-1] or not _is_plain(text[1:-1]):
        return None
    return ChunkShape(event[: start + 1], event[start + len(text) - 1 :])


class EventSplitter:
    """Splits a byte stream into whole server-sent events, each with its blank line. Looks at every byte once."""

    __slots__ = ("_is_plain", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_plain = True
        """Whether every line so far ended in a line feed alone: then `find` is three times as fast as the pattern."""

    def feed(self, data: bytes) -> list[bytes]:
        if not self._rest and data.find(b"\n\n") == len(data) - 2 >= 0 and b"\r" not in data:
            return [data]  # nearly every piece is just one event
        look_from = max(0, len(self._rest) - _BLANK_LINE_BYTES_MAX + 1)
        self._rest += data
        self._is_plain = self._is_plain and b"\r" not in data
        events: list[bytes] = []
        at = 0
        for end in self._plain_ends(look_from) if self._is_plain else self._ends(look_from):
            events.append(bytes(self._rest[at:end]))
            at = end
        del self._rest[:at]
        if len(self._rest) > SSE_EVENT_BYTES_MAX:
            raise ProtocolViolation("a server-sent event is over the limit")
        return events

    def _plain_ends(self, at: int) -> Iterator[int]:
        while (found := self._rest.find(b"\n\n", at)) >= 0:
            at = found + 2
            yield at

    def _ends(self, at: int) -> Iterator[int]:
        return (found.end() for found in _BLANK_LINE.finditer(self._rest, at))

    @property
    def has_rest(self) -> bool:
        return bool(self._rest)

    @property
    def rest(self) -> bytes:
        """The incomplete event at the end."""
        return bytes(self._rest)


def event_data(event: bytes) -> bytes | None:
    """The data of one event, or None if it carries none (a comment, say)."""
    if event.startswith(b"data: ") and event.count(b"\n") <= 2 and b"\r" not in event:
        return event[6:].rstrip(b"\n")
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


NOTHING = b"null"
"""llama.cpp sends this between the chunks of several choices."""


DirectShape = tuple[bytes, bytes, ChunkShape | None, DeliveryCount, bytearray | None]
"""The bytes before and after the text of every chunk, those that replace them for the client (None: the same), the
counter of chunks, and the buffer of their text."""


class ReplyBroken(Exception):
    """The model server sent something that is no reply."""


@dataclass(slots=True)
class ForwardedBytes:
    """What one piece of input became: bytes for the client, and why the reply is broken, if it is."""

    data: bytes
    broken: str | None = None


class StreamReply:
    """A streamed reply. `started`: it has output that the client would lose if another node started over."""

    __slots__ = (
        "_fed_chars",
        "_has_rest",
        "_held",
        "_held_bytes",
        "_price",
        "_reply_model",
        "_seam",
        "_sent_shape",
        "_shape",
        "_splitter",
        "_stop",
        "_texts_ended",
        "_unsure",
        "_usage_events",
        "_wants_usage",
        "delivered",
        "done",
        "emitted",
        "is_cut",
        "started",
        "usage",
    )  # fmt: skip

    def __init__(
        self,
        *,
        wants_usage: bool,
        price: Callable[[DeliveryCount], float] | None = None,
        seam: Seam | None = None,
        reply_model: bytes | None = None,
    ) -> None:
        """`reply_model`: the model's name for the client as JSON, where the node's server uses another."""
        self._reply_model = reply_model
        self._wants_usage = wants_usage
        self._price = price
        self._seam = seam
        self._stop = StraddlingStop(seam.text, seam.stops) if seam is not None else None
        self._unsure = DeliveryCount() if seam is not None else None
        """Counts of what is held back because it may be the end of a stop text."""
        self.emitted = EmittedText()
        self.is_cut = False
        """Whether the gateway ended it, at a stop text that the node could not see; later output is dropped."""
        self._splitter = EventSplitter()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.started = False
        self.done = False
        self.usage: Usage | None = None
        self.delivered = DeliveryCount()
        self._usage_events: tuple[bytes, ...] = ()
        self._fed_chars = 0
        self._texts_ended = 0
        self._shape: ChunkShape | None = None
        """Of its chunks, once it is known, until the reply is done."""
        self._sent_shape: ChunkShape | None = None
        """What they become for the client; None if they stay as they are."""
        self._has_rest = False
        """Whether an incomplete event is buffered."""

    def forward_unread(self, data: bytes) -> bytes | None:
        """If these are chunks of the known shape, count them and return them for the client, unparsed; else None."""
        shape, sent = self._shape, self._sent_shape
        if shape is None or self._has_rest:
            return None
        text, chunks = shape.text_of(data), 1
        if text is None:
            texts = shape.texts_of(data)
            if not texts:
                return None
            text, chunks = b"".join(texts), len(texts)
            data = data if sent is None else b"".join([sent.before + each + sent.after for each in texts])
        elif sent is not None:
            data = sent.before + text + sent.after
        seen = self.delivered
        seen.chunks += chunks
        seen.text_bytes += len(text)
        self.emitted.add_text(text)
        return data

    def direct_shape(self) -> DirectShape | None:
        """What the direct path uses in place of `forward_unread`, until something else is fed; None if unknown."""
        shape = self._shape
        if shape is None or self._has_rest:
            return None
        return shape.before, shape.after, self._sent_shape, self.delivered, self.emitted.buffer()

    @property
    def tokens(self) -> int:
        """The node's own count if it reported one, else one per chunk."""
        return self.usage.completion_tokens if self.usage else self.delivered.chunks

    def feed(self, data: bytes) -> ForwardedBytes:
        """Returns what may go to the client now: nothing until the reply has started."""
        try:
            self._take(data)
        except (ReplyBroken, ProtocolViolation) as error:
            return ForwardedBytes(self._give(), str(error))
        self._has_rest = self._splitter.has_rest
        return ForwardedBytes(self._give())

    def end(self) -> bytes:
        """The node has ended the stream. Raises ReplyBroken if the reply is not complete."""
        if not self.done or self._splitter.rest.strip():
            raise ReplyBroken("the stream ended early")
        return b"".join(self._held)

    def _take(self, data: bytes) -> None:
        events = self._splitter.feed(data)
        self._has_rest = False  # what is read now is whole
        for event in events:
            if self.is_cut:
                return
            if (unread := self.forward_unread(event)) is not None:
                self._held.append(unread)
                continue
            for passed in self._read(event):
                self._held.append(passed)
                self._held_bytes += len(passed)
        if not self.started and self._held_bytes > SSE_EVENT_BYTES_MAX:
            raise ReplyBroken("the stream has no output after the size limit of an event")

    def _give(self) -> bytes:
        if not self.started or (self._stop is not None and self._is_unsure):
            return b""
        held, self._held = self._held, []
        return b"".join(held)

    def _read(self, event: bytes) -> tuple[bytes, ...]:
        """The events to forward to the client."""
        received, event = event, self._renamed(event)
        data = event_data(event)
        if data is None:
            return ()  # a comment as keep-alive; the gateway sends its own
        if data == DONE:
            self.done, self._shape = True, None
            return (*self._closing_usage(), event)
        if data == NOTHING:
            return ()
        chunk = read_chunk(data)
        if chunk is not None and chunk.is_error():
            raise ReplyBroken(error_event_reason(data))
        if self.done or chunk is None or (chunk.choices is None and chunk.usage is None):
            raise ReplyBroken("the stream holds something that is no chunk")
        if chunk.usage is not None and not chunk.choices:
            self._add_usage(event, chunk.usage)
            return ()
        if chunk.usage is not None:
            self._note_usage(chunk.usage, is_of_one_text=chunk.ends_text())
        if self._seam is not None:
            return self._join(chunk, data, self._seam)
        self._count(chunk)
        self.emitted.add(chunk, data)
        self._note_shape(received, event, chunk)
        return (event,)

    def _renamed(self, event: bytes) -> bytes:
        return event if self._reply_model is None else with_reply_model(event, self._reply_model)

    def _note_shape(self, received: bytes, sent: bytes, chunk: CompletionChunk) -> None:
        if self.started:
            self._shape = shape_of(received, chunk)
            self._sent_shape = shape_of(sent, chunk) if sent is not received else None

    def _count(self, chunk: CompletionChunk) -> None:
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.delivered.finish_reason = choice.finish_reason
        if (text_bytes := chunk.output_bytes()) is not None:
            self.started = True
            self.delivered.chunks += 1
            self.delivered.text_bytes += text_bytes

    def _join(self, chunk: CompletionChunk, data: bytes, seam: Seam) -> tuple[bytes, ...]:
        """Fit a chunk to an answer that another node began: one role, one id, one count of tokens."""
        if not chunk.carries_output() and not chunk.finishes():
            return ()
        before = replace(self.delivered)
        self._count(chunk)
        self.emitted.add(chunk, data)
        if self._is_unsure and self._stop is not None and self._unsure is not None:
            self._unsure.chunks += self.delivered.chunks - before.chunks
            self._unsure.text_bytes += self.delivered.text_bytes - before.text_bytes
            if self._stop.feed(self.emitted.text()[self._fed_chars :]) == "hit":
                self._cut()
                return ()
            self._fed_chars = len(self.emitted.text())
        if chunk.usage is not None:
            data = with_usage(data, seam.counts(chunk.usage))
        return (b"data: " + seam.fit(data) + b"\n\n",)

    @property
    def _is_unsure(self) -> bool:
        """Whether the output so far may be the beginning of a stop text; not once the answer has ended."""
        return self._stop is not None and self._stop.state == "wait" and not self.emitted.finished and not self.done

    def _cut(self) -> None:
        """The stop text is complete: its end is not sent. The client may have its beginning already."""
        if self._unsure is not None:
            self.delivered.chunks -= self._unsure.chunks
            self.delivered.text_bytes -= self._unsure.text_bytes
        self._held.clear()
        self.is_cut = True
        self.emitted = EmittedText()

    def _note_usage(self, usage: Usage, *, is_of_one_text: bool = False) -> None:
        """llama.cpp reports each of several choices by itself, as it ends: then the prompt tokens are unknown."""
        self._texts_ended += is_of_one_text
        is_one_of_several = is_of_one_text and self._texts_ended > 1
        if is_one_of_several and self.usage is not None:
            written = self.usage.completion_tokens + usage.completion_tokens
            usage = Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=written)
        self.usage = usage
        self.delivered.completion_tokens = usage.completion_tokens
        self.delivered.prompt_tokens = None if is_one_of_several else usage.prompt_tokens

    def _add_usage(self, event: bytes, usage: Usage) -> None:
        """With `n` choices some servers report each by itself; the client expects one usage, at the end."""
        earlier = self.usage if self._usage_events else None
        self._usage_events += (event,)
        written = usage.completion_tokens + (earlier.completion_tokens if earlier else 0)
        self._note_usage(Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=written))

    def _closing_usage(self) -> tuple[bytes, ...]:
        if not self._wants_usage or not self._usage_events or self.usage is None:
            return ()
        if len(self._usage_events) == 1 and self._price is None and self._seam is None:
            return (self._usage_events[0],)
        data = event_data(self._usage_events[-1]) or b"{}"
        counts = self.usage if len(self._usage_events) > 1 else None
        if self._seam is not None:
            data, counts = self._seam.fit(data), self._seam.counts(self.usage)
        cost_usd = self._price(self.delivered) if self._price is not None else None
        if counts is None and cost_usd is not None:
            return (b"data: " + with_cost(data, cost_usd) + b"\n\n",)
        return (b"data: " + with_usage(data, counts, cost_usd=cost_usd) + b"\n\n",)


class WholeReply:
    """A reply in one piece, buffered until it is complete and valid."""

    __slots__ = ("_parts", "_price", "_reply_model", "_size", "delivered", "usage")

    def __init__(
        self, *, price: Callable[[DeliveryCount], float] | None = None, reply_model: bytes | None = None
    ) -> None:
        self._reply_model = reply_model
        self._parts: list[bytes] = []
        self._size = 0
        self._price = price
        self.usage: Usage | None = None
        self.delivered = DeliveryCount()

    @property
    def tokens(self) -> int:
        return self.usage.completion_tokens if self.usage else 0

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > REPLY_BODY_BYTES_MAX:
            raise ReplyBroken("the reply is over the limit")

    def end(self) -> bytes:
        body, seen = self.body(), self.delivered
        completion = read_completion(body)
        if completion is None:
            raise ReplyBroken("the reply is not a completion")
        usage = self.usage = completion.usage
        seen.text_bytes = completion.output_bytes()
        seen.finish_reason = completion.finish_reason()
        if usage is not None:
            seen.prompt_tokens = usage.prompt_tokens
            seen.completion_tokens = usage.completion_tokens
        return self._for_client(body)

    def _for_client(self, body: bytes) -> bytes:
        if self._reply_model is not None:
            body = with_reply_model(body, self._reply_model)
        return body if self._price is None else with_cost(body, self._price(self.delivered))

    def body(self) -> bytes:
        return b"".join(self._parts)


EMBEDDINGS: JobPath = "/v1/embeddings"


class EmbeddingReply(WholeReply):
    """Vectors; the client pays for the prompt alone."""

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
        return self._for_client(body)


def whole_reply(
    path: JobPath, *, price: Callable[[DeliveryCount], float] | None, reply_model: bytes | None = None
) -> WholeReply:
    kind = EmbeddingReply if path == EMBEDDINGS else WholeReply
    return kind(price=price, reply_model=reply_model)
