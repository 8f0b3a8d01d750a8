"""What a client says on the WebSocket of `/v1/responses`, and how an error is told there."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.core.errors import InvalidField, InvalidJson, SparewattError
from sparewatt.protocol.openai.chat import error_body
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, parse_request

SocketEventKind = Literal["response.create", "response.cancel"]
_OF_HTTP = ("type", "stream", "stream_options", "background")
"""Fields of the envelope, or of the other transport: an answer is always streamed here."""


class SocketEvent(msgspec.Struct, frozen=True):
    type: SocketEventKind
    response_id: str | None = None
    """Of a cancellation; None for whichever response is being written."""
    background: bool | None = None


_decoder = msgspec.json.Decoder(SocketEvent)


def read_event(text: str) -> SocketEvent:
    """Raises InvalidJson or InvalidField."""
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError:
        raise InvalidField("The type of a message is response.create or response.cancel.", param="type") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidJson("A message is a JSON object.") from None


def parse_create(text: str) -> ParsedResponsesRequest:
    """The request of a `response.create`. Raises what `parse_request` does."""
    if read_event(text).background:
        raise InvalidField("There is no background on a WebSocket. Send it to POST /v1/responses.", param="background")
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in fields.items() if name not in _OF_HTTP}
    return parse_request(msgspec.json.encode(kept | {"stream": True}))


def error_event(error: SparewattError) -> Json:
    return {"type": "error", "status": error.status, **error_body(error)}
