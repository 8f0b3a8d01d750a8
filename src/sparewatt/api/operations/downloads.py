"""GET /dl: the gateway's own program as a wheel, and the shell command that installs it. Public, as the program is.

The wheel is packed once, soon after the start, and served from memory: it stays the release that runs, also while the
next one is being installed over it.
"""

from __future__ import annotations

import asyncio
import shlex

from aiohttp import web

from sparewatt.api.endpoint import endpoint
from sparewatt.api.nodes.join_line import line_of
from sparewatt.api.operations.own_wheel import Wheel, pack_own_wheel
from sparewatt.core.errors import NotFound
from sparewatt.protocol.api.operations import WheelInfo


class Downloads:
    """The wheel and the commands that use it. It is packed once: by `pack`, or when it is first needed."""

    def __init__(self, root_url: str) -> None:
        """`root_url`: where other machines reach this gateway."""
        self._root_url = root_url
        self._packing: asyncio.Task[Wheel | None] | None = None

    def pack(self) -> asyncio.Task[Wheel | None]:
        if self._packing is None:
            self._packing = asyncio.create_task(asyncio.to_thread(pack_own_wheel))
        return self._packing

    async def wheel(self) -> Wheel:
        """Raises NotFound if there is none."""
        wheel = await asyncio.shield(self.pack())
        if wheel is None:
            raise NotFound("This gateway was not installed as a package, so it has no wheel to serve.")
        return wheel

    @endpoint("GET /dl", access="public")
    async def show_wheel(self, _: web.Request) -> WheelInfo:
        """Show what this gateway hands out: its own wheel."""
        wheel = await self.wheel()
        return WheelInfo(
            version=wheel.version,
            name=wheel.name,
            url=self._url_of(wheel),
            sha256=wheel.sha256,
            bytes=len(wheel.data),
            install=self._install_line(wheel),
        )

    @endpoint("GET /dl/{name}", access="public", content_type="application/octet-stream")
    async def download(self, request: web.Request) -> web.Response:
        """Download a file that this gateway hands out."""
        wheel = await self.wheel()
        if request.match_info["name"] != wheel.name:
            raise NotFound(f"This gateway serves /dl/{wheel.name} alone.")
        etag = f'"{wheel.sha256}"'
        headers = {"etag": etag, "cache-control": "no-cache", "x-sparewatt-sha256": wheel.sha256}
        if request.headers.get("if-none-match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=wheel.data, content_type="application/octet-stream", headers=headers)

    async def join_line(self, token: str) -> str | None:
        """The shell command that installs the program and joins this network. None if there is no wheel to install."""
        try:
            wheel = await self.wheel()
        except NotFound:
            return None
        return line_of(self._install_line(wheel), self._root_url, token)

    def _url_of(self, wheel: Wheel) -> str:
        return f"{self._root_url}/dl/{wheel.name}#sha256={wheel.sha256}"

    def _install_line(self, wheel: Wheel) -> str:
        """With the hash in the address, which pip verifies."""
        return f"pip install {shlex.quote(f'sparewatt[node] @ {self._url_of(wheel)}')}"
