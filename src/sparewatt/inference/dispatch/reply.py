"""Reads a node's reply: splits it into server-sent events, counts chunks and tokens, decides what may be forwarded to
the client, and whether the reply is complete.

`StreamReply` reads a streamed chat or completion, `WholeReply` a reply in one piece, `EmbeddingReply` vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec.structs import replace

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.dispatch.failover import EmittedText, Seam, StraddlingStop, fields_of
from sparewatt.inference.dispatch.failure_reasons import ServerError, classify_event, error_event_reason
from sparewatt.inference.dispatch.model import BilledAnswer, DeliveryCount
from sparewatt.inference.text_units import NOTHING as NO_TEXT
from sparewatt.inference.text_units import CompletionUnits, units_of_json
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.chat import (
    CALLED,
    TOKENS_MAX,
    ChunkChoice,
    CompletionChunk,
    Usage,
    WholeChoice,
    read_chunk,
    read_completion,
    with_reply_model,
    with_usage,
)
from sparewatt.protocol.openai.embeddings import read_embeddings
from sparewatt.protocol.openai.reply_fields import (
    VECTORS,
    known_chunk,
    known_completion,
    known_fields,
    with_choices,
    without_usage,
)

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_LINE_BYTES_MAX = 4
DONE = b"[DONE]"


_DIRECT_FIELDS = {"content": b'"content"', "reasoning_content": b'"reasoning_content"', "reasoning": b'"reasoning"'}
"""Fields of a delta that a stream may consist of, and their names in JSON."""
_is_plain = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\["\\/bfnrt][^"\\\x00-\x1f]*+)*+').fullmatch
"""Whether the bytes are the inside of a JSON string, without escapes by number (`\\u0041`)."""
needs_reading = re.compile(rb'["\\\x00-\x1f]').search
"""A faster check that errs on one side: bytes without any of these are plain."""


class ChunkShape:
    """What comes before and after the text in every chunk of an answer, as bytes."""

    __slots__ = ("_n_after", "_n_before", "after", "before", "field", "name")

    def __init__(self, before: bytes, after: bytes, field: str = "content", name: str | None = None) -> None:
        """`field`: what the text counts as. `name`: what the field is called, where that is something else."""
        self.before, self.after, self.field, self.name = before, after, field, name or field
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
    if choice.delta is None or len(choice.delta) != 1 or bytes(choice.text) != b"null":
        return None
    ((field, raw),) = choice.delta.items()
    name, text = _DIRECT_FIELDS.get(field), bytes(raw)
    if name is None or text[:1] != b'"':
        return None
    start = event.find(b'"', event.rfind(name) + len(name))
    if event[start : start + len(text)] != text or not text[1:-1] or not _is_plain(text[1:-1]):
        return None
    return ChunkShape(event[: start + 1], event[start + len(text) - 1 :], _COUNTED_AS.get(field, field), field)


_COUNTED_AS = {"reasoning_content": "reasoning"}


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


DirectShape = tuple[bytes, bytes, ChunkShape | None, DeliveryCount, bytearray]
"""The bytes before and after the text of every chunk, those that replace them for the client (None: the same), the
counter of chunks, and the buffer of their text."""


ANSWERS_MAX = 4_096
"""Answers of one request that are read, where it is not known how many were asked for."""

Biller = Callable[[DeliveryCount, CompletionUnits], BilledAnswer | None]
"""Called when a node has sent all that it will. Returns what the client is told of it; None where nothing is billed."""


class ReplyBroken(Exception):
    """The model server sent something that is no reply."""

    server_error: ServerError | None = None
    """What it reported in place of a chunk, if it did."""


class ErrorReported(ReplyBroken):
    """The model server sent an error event."""

    def __init__(self, event: bytes) -> None:
        self.server_error = classify_event(event)
        super().__init__(error_event_reason(self.server_error))


@dataclass(slots=True)
class ForwardedBytes:
    """What one piece of input became: bytes for the client, and how the reply is broken, if it is."""

    data: bytes
    broken: ReplyBroken | None = None


class StreamReply:
    """A streamed reply. `started`: it has output that the client would lose if another node started over."""

    __slots__ = (
        "_answers",
        "_bill",
        "_fed_chars",
        "_has_rest",
        "_held",
        "_held_bytes",
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
        bill: Biller | None = None,
        seam: Seam | None = None,
        reply_model: bytes | None = None,
        answers: int = 0,
    ) -> None:
        """`reply_model`: the model's name for the client as JSON, where the node's server uses another. `answers`: as
        many as were asked for, 0 if that is not known; more are dropped."""
        self._reply_model = reply_model
        self._answers = answers
        self._wants_usage = wants_usage
        self._bill = bill
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
        self.emitted.add_text(text, shape.field)
        return data

    def direct_shape(self) -> DirectShape | None:
        """What the direct path uses in place of `forward_unread`, until something else is fed; None if unknown."""
        shape = self._shape
        if shape is None or self._has_rest:
            return None
        return shape.before, shape.after, self._sent_shape, self.delivered, self.emitted.buffer(shape.field)

    @property
    def chunks_seen(self) -> int:
        """Chunks with output so far."""
        return self.delivered.chunks

    @property
    def tokens(self) -> int:
        """What is paid, once that is settled; before, the node's own count if it reported one, else one per chunk."""
        paid = self.delivered.paid_completion_tokens
        if paid is not None:
            return paid
        return self.usage.completion_tokens if self.usage else self.delivered.chunks

    def units(self) -> CompletionUnits:
        return self.emitted.units()

    def feed(self, data: bytes) -> ForwardedBytes:
        """Returns what may go to the client now: nothing until the reply has started."""
        try:
            self._take(data)
        except ReplyBroken as broken:
            return ForwardedBytes(self._give(), broken)
        except ProtocolViolation as error:
            return ForwardedBytes(self._give(), ReplyBroken(str(error)))
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
        if data is None or data == NOTHING:
            return ()  # a comment as keep-alive; the gateway sends its own
        if data == DONE:
            self.done, self._shape = True, None
            return (*self._closing_usage(), event)
        given, chunk = data, read_chunk(data)
        if chunk is not None and chunk.is_error():
            raise ErrorReported(data)
        if self.done or chunk is None or (chunk.choices is None and chunk.usage is None):
            raise ReplyBroken("the stream holds something that is no chunk")
        data, chunk = self._known(data, chunk)
        if chunk.usage is not None:
            data = self._take_usage(data, chunk, chunk.usage)
        if not chunk.choices:
            return ()
        if self._seam is not None:
            return self._join(chunk, data, self._seam)
        event = event if data is given else b"data: " + data + b"\n\n"
        self._count(chunk)
        self.emitted.add(chunk, data)
        self._note_shape(received, event, chunk)
        return (event,)

    def _take_usage(self, data: bytes, chunk: CompletionChunk, usage: Usage) -> bytes:
        """Note a node's counts. The client is told at the end: the chunk goes on without them."""
        if chunk.choices:
            self._note_usage(usage, is_of_one_text=chunk.ends_text())
            return without_usage(data)
        self._add_usage(data, usage)
        return data

    def _known(self, data: bytes, chunk: CompletionChunk) -> tuple[bytes, CompletionChunk]:
        """Without fields that no client reads, and without answers that were not asked for."""
        try:
            known = known_chunk(data)
        except ValueError as error:
            raise ReplyBroken("the stream holds something that is no chunk") from error
        asked = [0 <= choice.index < (self._answers or ANSWERS_MAX) for choice in chunk.choices or ()]
        if not all(asked):
            known = with_choices(known, asked)
        if known is data:
            return data, chunk
        read = read_chunk(known)
        if read is None:
            raise ReplyBroken("the stream holds something that is no chunk")
        return known, read

    def _renamed(self, event: bytes) -> bytes:
        return event if self._reply_model is None else with_reply_model(event, self._reply_model)

    def _note_shape(self, received: bytes, sent: bytes, chunk: CompletionChunk) -> None:
        if self.started:
            self._shape = shape_of(received, chunk)
            self._sent_shape = shape_of(sent, chunk) if sent is not received else None
            if sent is not received and self._sent_shape is None:
                self._shape = None

    def _count(self, chunk: CompletionChunk) -> None:
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.delivered.finish_reason = choice.finish_reason
        if chunk.carries_output():
            self.started = True
            self.delivered.chunks += 1
            self.delivered.text_bytes += sum(map(_text_bytes, chunk.choices or ()))

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

    def _add_usage(self, data: bytes, usage: Usage) -> None:
        """With `n` choices some servers report each by itself; the client expects one usage, at the end."""
        earlier = self.usage if self._usage_events else None
        self._usage_events = (data,)
        written = min(usage.completion_tokens + (earlier.completion_tokens if earlier else 0), TOKENS_MAX)
        self._note_usage(Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=written))

    def _closing_usage(self) -> tuple[bytes, ...]:
        """The token counts at the end of a stream, as they are billed: also if the node sent none."""
        if not self._wants_usage:
            return ()
        billed = self._bill(self.delivered, self.units()) if self._bill is not None else None
        if billed is None and self.usage is None:
            return ()
        data = self._usage_events[0] if self._usage_events else _usage_chunk(self.emitted.opening)
        counts, cost_usd = self.usage or Usage(), None
        if self._seam is not None:
            data, counts = self._seam.fit(data), self._seam.counts(counts)
        if billed is not None:
            counts, cost_usd = billed.usage, billed.cost / NANO_PER_USD
        return (b"data: " + with_usage(data, counts, cost_usd=cost_usd) + b"\n\n",)


def _usage_chunk(opening: bytes | None) -> bytes:
    """A chunk for the token counts of a node that sent none."""
    return msgspec.json.encode({**fields_of(opening), "choices": []})


def _text_bytes(choice: ChunkChoice | WholeChoice) -> int:
    """The length of a chunk's text. A character that is escaped by its number has six bytes in JSON."""
    return sum(len(inside) - 5 * inside.count(b"\\u") for _, inside in choice.readable())


class WholeReply:
    """A reply in one piece, buffered until it is complete and valid."""

    __slots__ = ("_answers", "_bill", "_parts", "_reply_model", "_size", "_units", "delivered", "usage")
    chunks_seen = 0
    """It has none: its length is bounded as a whole."""

    def __init__(self, *, bill: Biller | None = None, reply_model: bytes | None = None, answers: int = 0) -> None:
        """Arguments as of `StreamReply`."""
        self._reply_model = reply_model
        self._answers = answers
        self._parts: list[bytes] = []
        self._size = 0
        self._bill = bill
        self._units = CompletionUnits()
        self.usage: Usage | None = None
        self.delivered = DeliveryCount()

    @property
    def tokens(self) -> int:
        paid = self.delivered.paid_completion_tokens
        if paid is not None:
            return paid
        return self.usage.completion_tokens if self.usage else 0

    def units(self) -> CompletionUnits:
        return self._units

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > REPLY_BODY_BYTES_MAX:
            raise ReplyBroken("the reply is over the limit")

    def end(self) -> bytes:
        body, seen = self._known(self.body(), known_completion), self.delivered
        completion = read_completion(body)
        if completion is None or not all(choice.has_answer() for choice in completion.choices):
            raise ReplyBroken("the reply is not a completion")
        asked = [not self._answers or 0 <= choice.index < self._answers for choice in completion.choices]
        choices = [choice for choice, is_asked in zip(completion.choices, asked, strict=True) if is_asked]
        if not all(asked):
            body = with_choices(body, asked)
        usage = self.usage = completion.usage
        self._units = _units_of_choices(choices)
        seen.text_bytes = sum(map(_text_bytes, choices))
        seen.finish_reason = completion.finish_reason()
        if usage is not None:
            seen.prompt_tokens = usage.prompt_tokens
            seen.completion_tokens = usage.completion_tokens
        return self._for_client(body)

    def _known(self, body: bytes, known: Callable[[bytes], bytes]) -> bytes:
        try:
            if not body.isascii():
                body.decode()
            return known(body)
        except ValueError as error:
            raise ReplyBroken("the reply is not a completion") from error

    def _for_client(self, body: bytes) -> bytes:
        if self._reply_model is not None:
            body = with_reply_model(body, self._reply_model)
        billed = self._bill(self.delivered, self._units) if self._bill is not None else None
        return body if billed is None else with_usage(body, billed.usage, cost_usd=billed.cost / NANO_PER_USD)

    def body(self) -> bytes:
        return b"".join(self._parts)


def _units_of_choices(choices: Sequence[WholeChoice]) -> CompletionUnits:
    text, calls = NO_TEXT, set[tuple[int, str]]()
    for number, choice in enumerate(choices):
        for name, inside in choice.readable():
            text += units_of_json(inside)
            if name.startswith(CALLED):
                calls.add((number, name))
    return CompletionUnits(text, len(choices), len(calls))


EMBEDDINGS: JobPath = "/v1/embeddings"


class EmbeddingReply(WholeReply):
    """Vectors; the client pays for the prompt alone."""

    __slots__ = ()

    def end(self) -> bytes:
        body = self._known(self.body(), partial(known_fields, shape=VECTORS))
        vectors = read_embeddings(body)
        if vectors is None:
            raise ReplyBroken("the reply holds no vectors")
        self.usage = vectors.usage
        self.delivered.completion_tokens = 0
        if vectors.usage is not None:
            self.delivered.prompt_tokens = vectors.usage.prompt_tokens
        return self._for_client(body)


def whole_reply(
    path: JobPath, *, bill: Biller | None, reply_model: bytes | None = None, answers: int = 0
) -> WholeReply:
    kind = EmbeddingReply if path == EMBEDDINGS else WholeReply
    return kind(bill=bill, reply_model=reply_model, answers=answers)
