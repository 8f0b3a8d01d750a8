"""aiohttp behind our own HTTP parser: it gets whole, well-formed requests, one at a time, on the client's socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from sparewatt.core.errors import BadRequest, InternalError
from sparewatt.core.ids import new_id
from sparewatt.core.rng import SystemRng
from sparewatt.edge.bodies import error_reply
from sparewatt.edge.http1 import SERVER, RequestHead

_NEVER_S = 1e9
"""aiohttp closes no idle connection: `Connection` does."""


class AiohttpBridge(web.RequestHandler):
    """One per connection. `on_replied` is called after every reply."""

    __slots__ = ("_on_replied",)

    def __init__(self, manager: web.Server, *, on_replied: Callable[[], None], **options: Any) -> None:
        super().__init__(manager, access_log=None, keepalive_timeout=_NEVER_S, **options)  # type: ignore[arg-type]
        self._on_replied = on_replied

    @property
    def is_full(self) -> bool:
        """Whether it buffers more of a body than its handler read. aiohttp resumes the transport by itself."""
        return self._reading_paused

    def begin(self, head: RequestHead) -> None:
        """Feed the head of the next request."""
        self.data_received(head.to_bytes())

    def detach(self) -> None:
        """Let go of the socket, which stays open for another protocol."""
        self.transport = None
        self.connection_lost(None)

    async def finish_response(self, *args: Any, **kw: Any) -> Any:
        """aiohttp's last step of every request."""
        result = await super().finish_response(*args, **kw)
        self._loop.call_soon(self._on_replied)
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 (may contain what the client sent)
        message: str | None = None,  # noqa: ARG002 (likewise)
    ) -> web.StreamResponse:
        """Replace aiohttp's error page, which repeats and logs the offending bytes: those may be a key."""
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun, an error cannot follow")
        broken, invalid = InternalError("Something broke here."), BadRequest("This is not a valid HTTP request.")
        headers = {"x-request-id": new_id("req", rng=SystemRng()), "server": SERVER}
        reply = error_reply(broken if status >= 500 else invalid, headers)
        reply.force_close()
        return reply
