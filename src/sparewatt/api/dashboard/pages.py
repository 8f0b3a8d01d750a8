"""The routes of the dashboard: its one HTML document, which shows a page by its address, and its files.

The Content-Security-Policy lets a browser run our own script and style files only and fetch nothing from other sites,
whatever a prompt or a model's answer contains. The dashboard may be built while the gateway runs: until `index.html`
exists, there is a plain status page instead.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from sparewatt.api.dashboard.status_page import render_status
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import NotFound
from sparewatt.core.limits import MIB
from sparewatt.edge.middleware import Handler
from sparewatt.inference.fleet.node_states import NodeStates

PAGES = (
    "(?:matching|models|nodes|market|validators|leases|earnings|playground|keys|usage|join|status|login|signup|account"
    "|operate)"
    "(?:/[^?#]*)?"
)
"""Addresses that the dashboard's own router knows; for any other it shows its page for "not found"."""

WEB_ASSET_BYTES_MAX = 8 * MIB
"""Of one file of the dashboard; all are in memory."""
DIST = Path(__file__).parent / "dist"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_STATUS_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Asset:
    content_type: str
    body: bytes
    zipped: bytes | None


class Bundle:
    """Its methods read files; call them in a thread."""

    def __init__(self, folder: Path = DIST) -> None:
        self._folder = folder
        self._read_at: float | None = None
        self._index = b""
        self._assets: dict[str, Asset] = {}

    def index(self) -> bytes | None:
        """None until the dashboard is built. All files are read again when the index has changed."""
        path = self._folder / "index.html"
        try:
            changed_at = path.stat().st_mtime
            if changed_at != self._read_at:
                self._index, self._assets = path.read_bytes(), self._read_assets()
                self._read_at = changed_at
        except OSError:
            return None
        return self._index

    def asset(self, name: str) -> Asset | None:
        """By name, from memory: a name that a client sends never becomes a path."""
        self.index()
        return self._assets.get(name)

    def _read_assets(self) -> dict[str, Asset]:
        files = {path.name: path for path in (self._folder / "assets").iterdir() if path.is_file()}
        return {
            name: Asset(_type_of(path), _read(path), _read(files[f"{name}.gz"]) if f"{name}.gz" in files else None)
            for name, path in files.items()
            if path.suffix != ".gz"
        }


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(WEB_ASSET_BYTES_MAX)


def _type_of(path: Path) -> str:
    return _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"


@dataclass(slots=True, kw_only=True)
class DashboardEndpoints:
    bundle: Bundle
    states: NodeStates
    jobs_running: Callable[[], int]
    """In all processes of this gateway."""

    @endpoint("GET /", access="public", content_type="text/html")
    async def show_home(self, _: web.Request) -> web.Response:
        """Show the dashboard."""
        return await self.home_page()

    @endpoint("GET /{page:" + PAGES + "}", access="public", content_type="text/html")
    async def show_page(self, request: web.Request) -> web.Response:
        """Show a page of the dashboard, to browsers."""
        # An API client that left `/v1` out of its base URL gets an error object that says so, and no HTML.
        if not _is_browser(request):
            raise web.HTTPNotFound
        return await self.home_page()

    @endpoint("GET /assets/{name}", access="public", content_type="*/*")
    async def show_asset(self, request: web.Request) -> web.Response:
        """Show a file of the dashboard."""
        name = request.match_info["name"]
        asset = await asyncio.to_thread(self.bundle.asset, name)
        if asset is None:
            raise NotFound(f"There is no file {name[:100]!r} here. Load the page again: there is a newer build of it.")
        caching = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        headers = _SECURITY_HEADERS | caching
        zipped = asset.zipped if "gzip" in request.headers.get("accept-encoding", "") else None
        if zipped is not None:
            headers["content-encoding"] = "gzip"
        return web.Response(body=zipped or asset.body, content_type=asset.content_type, headers=headers)

    async def home_page(self) -> web.Response:
        """The dashboard's document, or the plain status page while the dashboard is not built."""
        index = await asyncio.to_thread(self.bundle.index)
        if index is None:
            text = render_status(self.states.all(), jobs_running=self.jobs_running())
            headers = _SECURITY_HEADERS | {"content-security-policy": _STATUS_PAGE_POLICY, "cache-control": "no-store"}
            return web.Response(text=text, content_type="text/html", headers=headers)
        headers = _SECURITY_HEADERS | {"content-security-policy": _POLICY, "cache-control": "no-cache"}
        return web.Response(body=index, content_type="text/html", charset="utf-8", headers=headers)


def not_found_page(home_page: Callable[[], Awaitable[web.Response]]) -> Middleware:
    """For an address without a route: a browser gets the dashboard with status 404, a program the error object."""

    @web.middleware
    async def show_missing(request: web.Request, handler: Handler) -> web.StreamResponse:
        has_no_route = isinstance(request.match_info.http_exception, web.HTTPNotFound)
        if not has_no_route or f"{request.path}/".startswith("/v1/") or not _is_browser(request):
            return await handler(request)
        page = await home_page()
        page.set_status(HTTPStatus.NOT_FOUND)
        return page

    return show_missing


def _is_browser(request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
