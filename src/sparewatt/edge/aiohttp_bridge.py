"""aiohttp behind our own parser: it gets whole, well-formed requests, one at a time, and answers on the same socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from sparewatt.core.errors import BadRequest, InternalError
from sparewatt.core.ids import new_id
from sparewatt.core.rng import SystemRng
from sparewatt.edge.context import SERVER
from sparewatt.edge.replies import error_reply
from sparewatt.edge.request_head import RequestHead, head_bytes

NEVER_S = 1e9
"""aiohttp closes no idle connection: the `Connection` does."""


class AiohttpBridge(web.RequestHandler):
    """One per connection. `on_replied` is called after every reply."""

    __slots__ = ("_on_replied",)

    def __init__(self, manager: web.Server, *, on_replied: Callable[[], None], **options: Any) -> None:
        super().__init__(manager, access_log=None, keepalive_timeout=NEVER_S, **options)  # type: ignore[arg-type]
        self._on_replied = on_replied

    @property
    def is_full(self) -> bool:
        """Whether it has buffered more of a body than was read. It resumes the transport by itself."""
        return self._reading_paused

    def ask(self, head: RequestHead) -> None:
        """Feed the head of the next request, serialised anew."""
        self.data_received(head_bytes(head, head.headers))

    def detach(self) -> None:
        """The connection goes on without aiohttp."""
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
        exc: BaseException | None = None,  # noqa: ARG002 (may hold what the client sent)
        message: str | None = None,  # noqa: ARG002 (likewise)
    ) -> web.StreamResponse:
        """aiohttp would answer in plain text that repeats the offending bytes, and log them: those may be a key."""
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun, an error cannot follow")
        error = (
            InternalError("Something broke here.") if status >= 500 else BadRequest("This is not a valid HTTP request.")
        )
        reply = error_reply(error, {"x-request-id": new_id("req", rng=SystemRng()), "server": SERVER})
        reply.force_close()
        return reply
