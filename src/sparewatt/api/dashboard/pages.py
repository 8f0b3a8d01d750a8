"""The routes of the dashboard: its one HTML document, which shows a page by its address, and its files.

The Content-Security-Policy lets a browser run our own script and style files only and fetch nothing from elsewhere,
whatever a prompt or a model's answer contains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Middleware

from sparewatt.api.dashboard.bundle import Bundle
from sparewatt.api.dashboard.status_page import render_status
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import NotFound
from sparewatt.edge.middleware import Handler
from sparewatt.inference.fleet.node_states import NodeStates

PAGES = "(?:matching|models|nodes|earnings|playground|keys|usage|join|status|login|signup|account)(?:/[^?#]*)?"
"""Addresses that the dashboard's own router knows; for any other it shows its page for "not found"."""

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
_API = "/v1/"
_IMMUTABLE = "public, max-age=31536000, immutable"


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
        headers = _SECURITY_HEADERS | {"cache-control": _IMMUTABLE, "vary": "accept-encoding"}
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
        if not has_no_route or f"{request.path}/".startswith(_API) or not _is_browser(request):
            return await handler(request)
        page = await home_page()
        page.set_status(HTTPStatus.NOT_FOUND)
        return page

    return show_missing


def _is_browser(request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
