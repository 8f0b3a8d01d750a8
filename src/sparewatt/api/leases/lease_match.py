"""/v1/leases/{lease}/match: one auction with its bids, votes and certificate. It only reads, and shows anybody's."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import RequestLimiter, endpoint
from sparewatt.core.errors import InvalidField
from sparewatt.edge.bodies import whole_number
from sparewatt.edge.middleware import context_of
from sparewatt.leasing.relay.match_service import MatchService
from sparewatt.protocol.api.lease_match import LeaseMatch, LeaseMatchRecord

WAIT_MS_MAX = 10_000
VERSION_MAX = 99_999_999
ATTEMPT_MAX = 9_999


@dataclass(slots=True, kw_only=True)
class LeaseMatchEndpoints:
    limiter: RequestLimiter
    matches: MatchService

    @endpoint("GET /v1/leases/{lease}/match", access="identified", query=("attempt", "have", "wait_ms"))
    async def show_lease_match(self, request: web.Request, principal: Principal) -> LeaseMatch:
        """Show an order's auction: bids, declines, lists, votes, certificate. `have` and `wait_ms` wait for more."""
        self.limiter.charge(context_of(request))
        have = whole_number(request, "have", default=0, most=VERSION_MAX)
        wait_ms = whole_number(request, "wait_ms", default=0, most=WAIT_MS_MAX)
        wanted, attempt = request.match_info["lease"], _attempt(request)
        return await self.matches.show(principal.account_id, wanted, attempt=attempt, have=have, wait_ms=wait_ms)

    @endpoint("GET /v1/leases/{lease}/match/record", access="identified", query=("attempt",))
    async def show_lease_match_record(self, request: web.Request, principal: Principal) -> LeaseMatchRecord:
        """Show one validator's record of an auction, from which anyone can recompute it."""
        self.limiter.charge(context_of(request))
        return await self.matches.record(principal.account_id, request.match_info["lease"], attempt=_attempt(request))


def _attempt(request: web.Request) -> int | None:
    """Counted from 0; None for the newest."""
    text = request.query.get("attempt")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise InvalidField(f"'attempt' is a number from 0 to {ATTEMPT_MAX:,}.", param="attempt")
    return int(text)
