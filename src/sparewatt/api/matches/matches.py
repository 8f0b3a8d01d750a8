"""GET /v1/matches: past matches, and why a node was chosen in each. Shown to the account that made the request."""

from __future__ import annotations

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.core.errors import MatchNotFound
from sparewatt.core.limits import MATCHES_KEPT, MATCHES_STORED_DAYS
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import whole_number
from sparewatt.edge.middleware import context_of
from sparewatt.inference.dispatch.dispatcher import ONE_IN
from sparewatt.protocol.api.matches import MatchExplanation, MatchList
from sparewatt.telemetry.explanations import Explanations

LISTED_DEFAULT, LISTED_MAX = 50, 500


class MatchEndpoints:
    def __init__(self, *, auth: Authenticator, explanations: Explanations) -> None:
        self._auth = auth
        self._explanations = explanations

    @get("/v1/matches", query=("limit",))
    async def list_matches(self, request: web.Request) -> MatchList:
        """List the last matches of your account, or of all accounts to an operator, the latest first."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        limit = whole_number(request, "limit", default=LISTED_DEFAULT, most=LISTED_MAX)
        account = None if principal.is_operator else principal.account_id
        return MatchList(data=await self._explanations.last(account, limit))

    @get("/v1/matches/{match_id}", reply=MatchExplanation)
    async def show_match(self, request: web.Request) -> web.Response:
        """Explain a past match, to the account that made the request and to operators."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        match_id = request.match_info["match_id"]
        explanation = await self._explanations.find(match_id)
        if explanation is None or not (principal.is_operator or explanation.account == principal.account_id):
            raise MatchNotFound(
                f"Your account has no match {match_id[:60]!r}. The last {MATCHES_KEPT:,} are kept; "
                f"failures, and one in {ONE_IN}, for {MATCHES_STORED_DAYS} days. Others' are shown to their own keys."
            )
        return web.Response(body=explanation.body, content_type="application/json")
