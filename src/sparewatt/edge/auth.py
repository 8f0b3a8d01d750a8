"""Who sends a request, by API key or session cookie, and whether their rate limit lets it pass.

A key is looked up in memory; only a browser's session needs the database. The rate limits themselves are token buckets
of `accounts/`.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from sparewatt.accounts.keys import KeyRing
from sparewatt.accounts.principal import (
    Principal,
    Scope,
    principal_from_key,
    principal_from_session,
    require_operator,
    require_scope,
)
from sparewatt.accounts.rate_limits import RateCharge, RateLimiter
from sparewatt.accounts.sessions import CSRF_HEADER, Sessions, check_csrf, check_origin
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.edge.context import RequestContext
from sparewatt.edge.cookies import cookie_name
from sparewatt.store.database import KeyRow


class Authenticator:
    def __init__(
        self, keys: KeyRing, sessions: Sessions, limits: RateLimiter, *, origins: frozenset[str], clock: Clock
    ) -> None:
        """`origins`: where pages of this gateway come from, as a browser names it."""
        self._keys = keys
        self._sessions = sessions
        self._limits = limits
        self._origins = origins
        self._clock = clock

    def identify_by_key(self, context: RequestContext) -> Principal | None:
        """Needs no database. None for a browser, whose session must be looked up. Raises NotAuthenticated.

        From here on the reply tells what is left of the key's rate limit, whatever else is wrong with the request.
        """
        authorization = context.headers.get("authorization")
        if not authorization and _session_token(context) is not None:
            return None
        key = self._keys.authenticate(authorization, unix_s=self._clock.unix_s())
        self._meter_by_key(context, key)
        return principal_from_key(key)

    def identify_again(self, context: RequestContext, principal: Principal) -> bool:
        """Whether a key that was let in before is still the same row; then the request uses its rate limit."""
        key = principal.key
        if key is None or not self._keys.revalidate(key):
            return False
        self._meter_by_key(context, key)
        return True

    async def identify(self, context: RequestContext) -> Principal:
        """By key or by cookie. A key counts first, also where a browser sends its cookie along."""
        return self.identify_by_key(context) or await self._identify_session(context)

    async def authenticate(self, context: RequestContext, scope: Scope) -> Principal:
        """Identify, check the scope, and charge the rate limit. Raises NotAuthenticated, NotAllowed or RateLimited."""
        principal = await self.identify(context)
        require_scope(principal, scope)
        self.charge(context)
        return principal

    async def authenticate_operator(self, context: RequestContext) -> Principal:
        """The same for what only an operator of the network may do. Raises OperatorsOnly as well."""
        principal = await self.identify(context)
        require_operator(principal)
        self.charge(context)
        return principal

    def charge(self, context: RequestContext, *, tokens: int = 0) -> RateCharge:
        """Charge an identified request to the rate limits of its key and of its address. Raises RateLimited."""
        meter, now_s = context.meter, self._clock.now_s()
        if meter is None:
            raise RuntimeError("a request is identified before it is charged")
        address = self._limits.address_meter(context.address, now_s=now_s)
        denial = self._limits.admit(meter, address, tokens=tokens, now_s=now_s)
        if denial is not None:
            wait_s = max(1.0, denial.retry_after_s)
            raise RateLimited(
                f"This {denial.who} has used up its {denial.what} per minute. Come back in {wait_s:.0f} s.",
                retry_after_s=wait_s,
            )
        return RateCharge(meter, address, tokens)

    def _meter_by_key(self, context: RequestContext, key: KeyRow) -> None:
        context.meter = self._limits.key_meter(
            key.id,
            now_s=context.began_s,
            requests_per_min=key.requests_per_min,
            tokens_per_min=key.tokens_per_min,
        )

    async def _identify_session(self, context: RequestContext) -> Principal:
        token = _session_token(context) or ""
        session = await self._sessions.find(token)
        check_origin(context.headers.get("origin"), ours=self._origins)
        check_csrf(token=token, method=context.method, csrf=context.headers.get(CSRF_HEADER))
        principal = principal_from_session(session)
        context.meter = self._limits.key_meter(principal.key_id, now_s=self._clock.now_s())
        return principal


def _session_token(context: RequestContext) -> str | None:
    cookies = context.headers.get("cookie")
    if not cookies:
        return None
    try:
        found = SimpleCookie(cookies).get(cookie_name(context.settings))
    except CookieError:
        return None
    return found.value if found is not None else None
