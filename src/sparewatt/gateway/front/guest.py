"""aiohttp as a guest on a connection: it gets whole, well-formed requests, one at a time, and answers on the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from sparewatt.core.errors import BadRequest, Internal
from sparewatt.core.ids import new_id
from sparewatt.core.rng import SystemRng
from sparewatt.gateway.asking import SERVER
from sparewatt.gateway.front.head import Head, head_of
from sparewatt.gateway.http import error_reply

NEVER_S = 1e9
"""When an idle connection ends is not a guest's to say."""


class Guest(web.RequestHandler):
    """One connection's. `on_answered` is called after every reply."""

    __slots__ = ("_on_answered",)

    def __init__(self, manager: web.Server, *, on_answered: Callable[[], None], **options: Any) -> None:
        super().__init__(manager, access_log=None, keepalive_timeout=NEVER_S, **options)  # type: ignore[arg-type]
        self._on_answered = on_answered

    @property
    def is_full(self) -> bool:
        """Whether it has more of a body than was asked for. When that changes it reads on by itself."""
        return self._reading_paused

    def ask(self, head: Head) -> None:
        """The head of the next request, in our own words."""
        self.data_received(head_of(head, head.headers))

    def leave(self) -> None:
        """The connection goes on without a guest."""
        self.transport = None
        self.connection_lost(None)

    async def finish_response(self, *args: Any, **kw: Any) -> Any:
        """aiohttp's last step of every request."""
        result = await super().finish_response(*args, **kw)
        self._loop.call_soon(self._on_answered)
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 (may hold what the client sent)
        message: str | None = None,  # noqa: ARG002 (likewise)
    ) -> web.StreamResponse:
        """aiohttp answers in plain text that repeats the offending bytes, and logs them: those may be a key."""
        if request.writer.output_size > 0:
            raise ConnectionError("the reply has begun, an error cannot follow")
        error = Internal("Something broke here.") if status >= 500 else BadRequest("This is not a valid HTTP request.")
        reply = error_reply(error, {"x-request-id": new_id("req", rng=SystemRng()), "server": SERVER})
        reply.force_close()
        return reply
