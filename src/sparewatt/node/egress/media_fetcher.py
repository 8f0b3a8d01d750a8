"""Fetches pictures that a request names by address, where the owner allows the host, and hands them on as data.

A host's name is resolved once, every address is checked, and the connection goes to a checked address: a name that
resolves to something else a moment later (DNS rebinding) gains nothing. Redirects are not followed. Size, time, content
types and the number of fetches at once are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from sparewatt.core.address_rules import is_public
from sparewatt.core.errors import BadRequest, MediaNotFetched, RemoteUrlRefused
from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.machine.stranger_http import ADDRESSES_MAX, Resolve, resolve_by_system, resolved
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.openai.media import (
    DEFAULT_PORTS,
    PROCESSOR_OPTIONS,
    check_processor_options,
    host_of_url,
    media_in,
    with_pictures,
)
from sparewatt.protocol.openai.prompts import parse_completion, parse_embedding

_log = Logger("sparewatt.node")
PICTURE_BYTES_MAX = 8 * MIB
"""One picture; servers scale a larger one down anyway."""
FETCH_S = 10.0
"""From the name to the last byte: the client waits for it, and so does a slot's worth of the node's promise."""
FETCHES_AT_ONCE_MAX = 4
CONTENT_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def may_connect(address: str, port: int) -> bool:
    """Whether it is a public address, of another machine."""
    return is_public(address) and not is_own(address, port)


class MediaFetcher:
    def __init__(
        self,
        allowed_hosts: Collection[str] = (),
        *,
        resolve: Resolve = resolve_by_system,
        may_connect: Callable[[str, int], bool] = may_connect,
    ) -> None:
        self._allowed = frozenset(allowed_hosts)
        self._resolve = resolve
        self._may_connect = may_connect
        self._fetches = asyncio.Semaphore(FETCHES_AT_ONCE_MAX)

    async def inlined(self, path: JobPath, body: bytes) -> bytes:
        """The request with every picture as data: the model server gets no address to fetch.

        Raises BadRequest for a request that holds what a server might fetch and this node does not, MediaNotFetched if
        a picture cannot be had, and msgspec.DecodeError or UnicodeDecodeError for what is no JSON.
        """
        try:
            return await self._inlined(path, body)
        except RecursionError:
            raise BadRequest("The request is nested too deeply.", param="messages") from None

    async def _inlined(self, path: JobPath, body: bytes) -> bytes:
        if path != "/v1/chat/completions":
            _check_prompts(path, body)
            return body
        fields, messages = _messages_of(body)
        check_processor_options(fields.get(PROCESSOR_OPTIONS))
        urls = media_in(messages).remote_urls
        if not urls:
            return body
        for url in urls:
            if host_of_url(url) not in self._allowed:
                raise RemoteUrlRefused("The owner of this node does not let it fetch from that host.", param="messages")
        data = {url: await self._data_url(url) for url in urls}
        return msgspec.json.encode({**fields, "messages": with_pictures(messages, data)})

    async def _data_url(self, url: str) -> str:
        try:
            async with self._fetches, asyncio.timeout(FETCH_S):
                kind, content = await self._fetch(url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.info("picture_not_fetched", why=type(error).__name__)
            raise MediaNotFetched("A picture of the request could not be fetched.", param="messages") from None
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"

    async def _fetch(self, url: str) -> tuple[str, bytes]:
        host, _, port = host_of_url(url).partition(":")
        found = await self._addresses(host, int(port or DEFAULT_PORTS[url.partition(":")[0].lower()]))
        connector = aiohttp.TCPConnector(resolver=_PinnedResolver(host, found), use_dns_cache=False, force_close=True)
        headers = {"accept": ", ".join(sorted(CONTENT_TYPES)), "accept-encoding": "identity"}
        async with (
            aiohttp.ClientSession(connector=connector, auto_decompress=False, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False) as reply,
        ):
            if reply.status != 200 or reply.headers.get("content-encoding", "identity") != "identity":
                text = f"The host of a picture answered {reply.status}. Redirects and compression are not followed."
                raise MediaNotFetched(text, param="messages")
            if reply.content_type not in CONTENT_TYPES:
                raise MediaNotFetched(
                    "What a picture's address leads to is no PNG, JPEG, WebP or GIF.", param="messages"
                )
            return reply.content_type, await _read(reply)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """All addresses of the host, checked: a single private one refuses the name."""
        found = list(await self._resolve(host, port))[:ADDRESSES_MAX]
        if not found or not all(self._may_connect(address, port) for address in found):
            _log.warning("fetch_refused", host=host, why="the address is not public")
            raise MediaNotFetched("A picture's host has no public address.", param="messages")
        return found


class _PinnedResolver(AbstractResolver):
    """Knows one name and its checked addresses."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        self._host, self._addresses = host, addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family  # of the two, whichever was found
        if host != self._host:
            raise OSError(f"no address is known of {host}")
        return resolved(host, port, self._addresses)

    async def close(self) -> None:
        return None


def is_own(address: str, port: int) -> bool:
    """Whether it is a public address of this machine itself: then packets to it leave from it. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False  # there is no way to it at all


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > PICTURE_BYTES_MAX:
            raise MediaNotFetched(f"A picture is over {PICTURE_BYTES_MAX // MIB} MiB.", param="messages")
    return bytes(content)


def _messages_of(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The fields of a chat request, and its messages as raw JSON."""
    fields = _fields_decoder.decode(body)
    if [name for name in fields if name.lower() == "messages"] != ["messages"]:
        raise BadRequest("The request has no messages, or has them twice.", param="messages")
    return fields, [bytes(message) for message in _messages_decoder.decode(fields["messages"])]


def _check_prompts(path: JobPath, body: bytes) -> None:
    """Of endpoints that take texts: some servers take objects there, with pictures in them."""
    if path == "/v1/completions":
        parse_completion(body)
    else:
        parse_embedding(body)
    if any(name.lower() == "messages" for name in _fields_decoder.decode(body)):
        raise BadRequest("This endpoint takes no messages.", param="messages")
