"""The events of a streamed response, numbered: an item is added, filled by deltas, and done."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.protocol.openai.chat import error_body
from sparewatt.protocol.responses.request import Json

DONE = b"data: [DONE]\n\n"
_encoder = msgspec.json.Encoder()


class ResponseEventWriter:
    """Makes events with ascending sequence numbers."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> Json:
        number = self._next
        self._next += 1
        return {"type": kind, "sequence_number": number, **fields}

    def snapshot(self, state: str, response: Json) -> Json:
        """`state`: created, queued, in_progress, completed, incomplete or failed."""
        return self.event(f"response.{state}", response=response)

    def error(self, error: SparewattError) -> Json:
        """Client libraries raise it. Some read its fields at the top level, some in `error`: it has both."""
        body = error_body(error)
        flat = {name: body["error"][name] for name in ("code", "message", "param")}
        return self.event("error", **flat, **body)

    def last_snapshot(self, response: Json) -> Json:
        """Of a final response. OpenAI has no event for a cancelled one: it is incomplete."""
        status = response["status"]
        return self.snapshot("incomplete" if status == "cancelled" else status, response)

    # items

    def item_added(self, index: int, item: Json) -> list[Json]:
        """Announces the item without its content, as in progress."""
        kind = item["type"]
        empty: Json = {"arguments": ""} if kind == "function_call" else {"content": []}
        item = item | empty | ({"status": "in_progress"} if "status" in item else {})
        events = [self.event("response.output_item.added", output_index=index, item=item)]
        if kind != "function_call":
            part = text_part("") if kind == "message" else reasoning_part("")
            events.append(self._in_part("response.content_part.added", index, item, part=part))
        return events

    def item_delta(
        self, kind: str, delta: str, *, index: int, item_id: str, logprobs: list[Json] | None = None
    ) -> Json:
        """A piece of an item's text, reasoning or arguments."""
        place: Json = {"item_id": item_id, "output_index": index}
        match kind:
            case "message":
                more = {"content_index": 0, "delta": delta, "logprobs": logprobs or []}
                return self.event("response.output_text.delta", **place, **more)
            case "reasoning":
                return self.event("response.reasoning_text.delta", **place, content_index=0, delta=delta)
            case _:
                return self.event("response.function_call_arguments.delta", **place, delta=delta)

    def item_done(self, index: int, item: Json) -> list[Json]:
        """`item`: with all its content."""
        if item["type"] == "function_call":
            call = {"name": item["name"], "arguments": item["arguments"]}
            place = {"item_id": item["id"], "output_index": index}
            events = [self.event("response.function_call_arguments.done", **place, **call)]
        else:
            part = item["content"][0]
            is_message = item["type"] == "message"
            text = {"text": part["text"]} | ({"logprobs": part.get("logprobs") or []} if is_message else {})
            kind = "response.output_text.done" if is_message else "response.reasoning_text.done"
            events = [self._in_part(kind, index, item, **text)]
            events.append(self._in_part("response.content_part.done", index, item, part=part))
        return [*events, self.event("response.output_item.done", output_index=index, item=item)]

    def _in_part(self, kind: str, index: int, item: Json, **fields: Any) -> Json:
        return self.event(kind, item_id=item["id"], output_index=index, content_index=0, **fields)


def text_part(text: str, logprobs: list[Json] | None = None) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def reasoning_part(text: str) -> Json:
    return {"type": "reasoning_text", "text": text}


def as_sse(event: Json) -> bytes:
    kind: str = event["type"]
    return b"event: " + kind.encode() + b"\ndata: " + _encoder.encode(event) + b"\n\n"
