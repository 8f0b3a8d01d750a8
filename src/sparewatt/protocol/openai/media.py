"""Pictures in the messages of a chat: as data (`data:` URLs), or by an address that somebody would have to fetch. Pure.

A model server that fetches an address does so from inside its owner's network. So the gateway passes on addresses only
for nodes whose owners allow the host, and a node hands its model server no address at all: both check with this module.
Names are compared without case, as some servers do, and what cannot be read is refused, not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from sparewatt.core.errors import InvalidField, RemoteUrlRefused, UnsupportedContent, UnsupportedParameter
from sparewatt.protocol.openai.chat import UNREADABLE

URL_CHARS_MAX = 2_048
"""Of an address; what travels as data is bounded by the body."""
FETCHED_PER_REQUEST_MAX = 8
"""Addresses of one request: each is a connection that a node opens for a stranger."""
_LABEL, _LAST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])"
HOST = re.compile(rf"(?=.{{1,253}}(?::|\Z))(?:{_LABEL}\.)+{_LAST_LABEL}(?::\d{{1,5}})?")
"""A DNS name of two labels or more, with a port where it is not the scheme's own. Numeric hosts do not match."""
PROCESSOR_OPTIONS = "mm_processor_kwargs"
DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_TEXT_TYPES = frozenset(
    {"text", "input_text", "output_text", "refusal", "thinking", "reasoning", "reasoning_text", "summary_text"}
)
_PICTURE = "image_url"
_OTHER_MEDIA = frozenset(
    {
        *("input_audio", "audio_url", "audio", "video_url", "video", "input_video", "file", "file_url", "input_file"),
        *("image", "input_image", "image_embeds", "image_pil", "audio_embeds"),
    }
)
"""Types and fields of parts that servers know and no node here takes."""
_DATA = "data:"
_ADVICE = "Send the picture itself, as a data: URL (data:image/png;base64,…)."
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts_decoder = msgspec.json.Decoder(list[dict[str, Any] | str])
Json = dict[str, Any]


class MessageMedia(NamedTuple):
    """What a chat has besides text."""

    has_pictures: bool = False
    remote_urls: tuple[str, ...] = ()
    """The addresses among them, each once."""

    def hosts(self) -> frozenset[str]:
        """Of the addresses. Raises RemoteUrlRefused."""
        return frozenset(map(host_of_url, self.remote_urls))


NO_MEDIA = MessageMedia()


def media_in(messages: Iterable[bytes]) -> MessageMedia:
    """Of messages as raw JSON. Raises InvalidField, UnsupportedContent, or RemoteUrlRefused for what nobody fetches."""
    urls = [url for message in messages for part in _parts_of(message) for url in _picture_urls(part)]
    remote = tuple(dict.fromkeys(url for url in urls if not is_data(url)))
    if len(remote) > FETCHED_PER_REQUEST_MAX:
        text = f"A request may have {FETCHED_PER_REQUEST_MAX} pictures by address, not {len(remote)}. {_ADVICE}"
        raise RemoteUrlRefused(text, param="messages")
    found = MessageMedia(bool(urls), remote)
    found.hosts()
    return found


def check_processor_options(options: msgspec.Raw | None) -> None:
    """Of `mm_processor_kwargs`: servers hand them to a library that would also load pictures by their address.

    Raises UnsupportedParameter unless they are numbers and switches, such as `max_pixels`.
    """
    if options is None:
        return
    try:
        values = list((msgspec.json.decode(options, type=dict[str, Any] | None) or {}).values())
    except UNREADABLE:
        values = [None]
    if not all(isinstance(value, int | float) for value in values):
        text = f"The values of {PROCESSOR_OPTIONS!r} are numbers, true or false."
        raise UnsupportedParameter(text, param=PROCESSOR_OPTIONS)


def is_data(url: str) -> bool:
    return url[: len(_DATA)].lower() == _DATA


def host_of_url(url: str) -> str:
    """The DNS name of a web address, with its port if it is not the usual one. Raises RemoteUrlRefused."""
    try:
        parts = urlsplit(url) if len(url) <= URL_CHARS_MAX and url.isascii() and url.isprintable() else None
        port = parts.port if parts is not None else None
    except ValueError:
        parts, port = None, None
    if parts is None or parts.scheme not in DEFAULT_PORTS or "@" in parts.netloc or {" ", "\\"} & set(url):
        raise RemoteUrlRefused(f"A picture has an address that nobody fetches. {_ADVICE}", param="messages")
    host = (parts.hostname or "") + ("" if port in (None, DEFAULT_PORTS[parts.scheme]) else f":{port}")
    if not HOST.fullmatch(host):
        raise RemoteUrlRefused(f"A picture's address names no public host. {_ADVICE}", param="messages")
    return host


def refused_host(model: str) -> RemoteUrlRefused:
    text = f"No node that serves {model!r} fetches pictures from that host. {_ADVICE}"
    return RemoteUrlRefused(text, param="messages")


def with_pictures(messages: Iterable[bytes], data: Mapping[str, str]) -> list[msgspec.Raw]:
    """The messages with each address replaced by its `data:` URL."""
    return [msgspec.Raw(_with_pictures(message, data)) for message in messages]


def _with_pictures(message: bytes, data: Mapping[str, str]) -> bytes:
    if not any(map(_picture_urls, _parts_of(message))):
        return message
    fields: Json = dict(_fields_decoder.decode(message))
    for name in [name for name in fields if name.lower() == "content" and not _is_text(fields[name])]:
        parts = _parts_decoder.decode(fields[name])
        fields[name] = [part if isinstance(part, str) else _with_data(part, data) for part in parts]
    return msgspec.json.encode(fields)


def _with_data(part: Json, data: Mapping[str, str]) -> Json:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(inner) if name.lower() == "url" else inner for name, inner in value.items()}
        return data.get(value, value) if isinstance(value, str) else value

    return {name: replaced(value) if name.lower() == _PICTURE else value for name, value in part.items()}


# parts


def _parts_of(message: bytes) -> Iterator[Json | str]:
    """Of one message; none if its content is text."""
    try:
        contents = [value for name, value in _fields_decoder.decode(message).items() if name.lower() == "content"]
        yield from (part for value in contents if not _is_text(value) for part in _parts_decoder.decode(value))
    except UNREADABLE:
        text = "A message is an object, and its content is text or a list of parts."
        raise InvalidField(text, param="messages") from None


def _is_text(content: msgspec.Raw) -> bool:
    return bytes(memoryview(content)[:1]) in (b'"', b"n")


def _picture_urls(part: Json | str) -> list[str]:
    """Raises UnsupportedContent for a part that is neither text nor a picture, InvalidField for half a picture."""
    if isinstance(part, str):
        return []
    kind = part.get("type")
    names = {name.lower() for name in part}
    other = sorted(names & _OTHER_MEDIA)
    is_known = kind is None or (isinstance(kind, str) and (kind == _PICTURE or kind in _TEXT_TYPES))
    if other or not is_known:
        name = other[0] if other else str(kind)[:40]
        text = f"No node here takes parts of type {name!r}. Send text and image_url parts only."
        raise UnsupportedContent(text, param="messages")
    if kind != _PICTURE and _PICTURE not in names:
        return []
    urls = [url for name, value in part.items() if name.lower() == _PICTURE for url in _urls(value)]
    if not urls:
        raise InvalidField("A part of type 'image_url' has an object 'image_url' with a 'url'.", param="messages")
    return urls


def _urls(value: Any) -> list[str]:
    """Of the field `image_url`: some clients send the URL itself."""
    found = [inner for name, inner in value.items() if name.lower() == "url"] if isinstance(value, dict) else [value]
    if not all(isinstance(url, str) for url in found):
        raise InvalidField("The 'url' of a picture is text.", param="messages")
    return found
