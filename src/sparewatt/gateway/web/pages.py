"""The routes of the dashboard: one page that shows itself by its address, and its files.

No script runs but our own files, no style but our own, and nothing is fetched from elsewhere: the policy below says so
to the browser, whatever a prompt or a model's answer holds.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from aiohttp import web

from sparewatt.core.errors import NotFound
from sparewatt.gateway.feeds.status import render_status
from sparewatt.gateway.http import Handler
from sparewatt.gateway.services import services_of
from sparewatt.gateway.web.bundle import Bundle

PAGES = "(?:matching|models|nodes|earnings|playground|keys|usage|join|status|login|signup|account)(?:/[^?#]*)?"
"""What the dashboard shows by itself; anything else is not there, and the dashboard says so."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_PLAIN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_API = "/v1/"
_FOR_EVER = "public, max-age=31536000, immutable"

BUNDLE = web.AppKey("bundle", Bundle)


def find_bundle() -> Bundle:
    return Bundle()


async def show_page(request: web.Request) -> web.StreamResponse:
    """To browsers: a client that forgot `/v1` in its base URL is better told so than shown a page."""
    if not _is_browser(request):
        raise web.HTTPNotFound
    return await show_home(request)


@web.middleware
async def show_missing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An address that is no route: a browser gets the dashboard, which says so, and a program the error object."""
    is_missing = isinstance(request.match_info.http_exception, web.HTTPNotFound)
    if not is_missing or f"{request.path}/".startswith(_API) or not _is_browser(request):
        return await handler(request)
    page = await show_home(request)
    page.set_status(HTTPStatus.NOT_FOUND)
    return page


def _is_browser(request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


async def show_home(request: web.Request) -> web.Response:
    """The dashboard, or the plain status page while it is not built."""
    index = await asyncio.to_thread(request.app[BUNDLE].index)
    if index is None:
        headers = _SAFE | {"content-security-policy": _PLAIN_POLICY, "cache-control": "no-store"}
        return web.Response(text=render_status(services_of(request)), content_type="text/html", headers=headers)
    headers = _SAFE | {"content-security-policy": _POLICY, "cache-control": "no-cache"}
    return web.Response(body=index, content_type="text/html", charset="utf-8", headers=headers)


async def show_asset(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    asset = await asyncio.to_thread(request.app[BUNDLE].asset, name)
    if asset is None:
        raise NotFound(f"There is no file {name[:100]!r} here. Load the page again: it was built anew.")
    headers = _SAFE | {"cache-control": _FOR_EVER, "vary": "accept-encoding"}
    zipped = asset.zipped if "gzip" in request.headers.get("accept-encoding", "") else None
    if zipped is not None:
        headers["content-encoding"] = "gzip"
    return web.Response(body=zipped or asset.body, content_type=asset.content_type, headers=headers)
