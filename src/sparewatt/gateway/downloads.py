"""GET /dl: the gateway's own wheel, and the line with which a machine joins. Open to all, as the program is.

The wheel is packed once, beside the start, and kept in memory: what is served stays what runs, also while somebody
installs the next release over it.
"""

from __future__ import annotations

import asyncio
import shlex

from aiohttp import web

from sparewatt.core.errors import NotFound
from sparewatt.gateway.http import json_reply
from sparewatt.gateway.join_line import line_of
from sparewatt.gateway.own_wheel import Wheel, pack_own_wheel
from sparewatt.gateway.services import services_of

DOWNLOADS = "/dl"


class Downloads:
    """Packs when first asked for, or told to; once."""

    def __init__(self) -> None:
        self._packing: asyncio.Task[Wheel | None] | None = None

    def pack(self) -> asyncio.Task[Wheel | None]:
        if self._packing is None:
            self._packing = asyncio.create_task(asyncio.to_thread(pack_own_wheel))
        return self._packing

    async def wheel(self) -> Wheel:
        """Raises NotFound where there is none to hand out."""
        wheel = await asyncio.shield(self.pack())
        if wheel is None:
            raise NotFound("This gateway was not installed as a package, so it has no wheel to hand out.")
        return wheel


OWN = web.AppKey("downloads", Downloads)


async def list_downloads(request: web.Request) -> web.StreamResponse:
    wheel, root_url = await request.app[OWN].wheel(), services_of(request).root_url
    return json_reply(
        {
            "version": wheel.version,
            "name": wheel.name,
            "url": wheel_url(root_url, wheel),
            "sha256": wheel.sha256,
            "bytes": len(wheel.data),
            "install": install_line(root_url, wheel),
        }
    )


async def download(request: web.Request) -> web.StreamResponse:
    wheel = await request.app[OWN].wheel()
    if request.match_info["name"] != wheel.name:
        raise NotFound(f"This gateway hands out {DOWNLOADS}/{wheel.name} alone.")
    etag = f'"{wheel.sha256}"'
    headers = {"etag": etag, "cache-control": "no-cache", "x-sparewatt-sha256": wheel.sha256}
    if request.headers.get("if-none-match") == etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=wheel.data, content_type="application/octet-stream", headers=headers)


def wheel_url(root_url: str, wheel: Wheel) -> str:
    return f"{root_url}{DOWNLOADS}/{wheel.name}#sha256={wheel.sha256}"


def install_line(root_url: str, wheel: Wheel) -> str:
    """What pip is told; it checks the hash itself."""
    return f"pip install {shlex.quote(f'sparewatt[node] @ {wheel_url(root_url, wheel)}')}"


async def join_line(request: web.Request, token: str) -> str | None:
    """All that a machine needs, to be copied as it is. None where there is no wheel to install."""
    root_url = services_of(request).root_url
    try:
        wheel = await request.app[OWN].wheel()
    except NotFound:
        return None
    return line_of(install_line(root_url, wheel), root_url, token)
