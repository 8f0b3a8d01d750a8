"""Browsers that are logged in. The token is in a cookie, known here only by its hash, like a key.

A session is looked up in Postgres and believed for two seconds, so a logout reaches every gateway in that time. The
token that guards against forged requests is derived from the session's own: a page can only know it from us.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import NamedTuple

from sparewatt.accounts.keys import hash_secret
from sparewatt.core.clock import Clock
from sparewatt.core.errors import CsrfRefused, SessionEnded
from sparewatt.core.ids import AccountId
from sparewatt.core.limits import SESSION_LIFE_S, SESSION_REMEMBERED_S, SESSIONS_REMEMBERED_MAX
from sparewatt.core.rng import Rng
from sparewatt.store.accounts import AccountStore, SessionRow

CSRF_HEADER = "x-sparewatt-csrf"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class _CachedSession(NamedTuple):
    row: SessionRow
    at_s: float


class Sessions:
    def __init__(self, store: AccountStore, *, clock: Clock, rng: Rng) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._cache: OrderedDict[bytes, _CachedSession] = OrderedDict()

    async def begin(self, account_id: AccountId) -> str:
        """Log a browser in; the token goes into its cookie."""
        token = self._rng.randbytes(32).hex()
        await self._store.insert_session(hash_secret(token), account_id=account_id, life_s=SESSION_LIFE_S)
        return token

    async def find(self, token: str) -> SessionRow:
        """Raises SessionEnded."""
        hashed = hash_secret(token)
        seen = self._cache.get(hashed)
        if seen is not None and self._clock.now_s() - seen.at_s < SESSION_REMEMBERED_S:
            return seen.row
        self._cache.pop(hashed, None)
        row = await self._store.find_session(hashed)
        if row is None:
            raise SessionEnded("You are logged out. Log in again.")
        self._cache[hashed] = _CachedSession(row, self._clock.now_s())
        if len(self._cache) > SESSIONS_REMEMBERED_MAX:
            self._cache.popitem(last=False)
        return row

    async def end(self, row: SessionRow) -> None:
        self._cache.pop(row.hash, None)
        await self._store.end_session(row.hash)

    def invalidate(self, account_id: AccountId) -> None:
        """Look again at this account's sessions: its role changed, or some of them ended."""
        for hashed in [hashed for hashed, seen in self._cache.items() if seen.row.account_id == account_id]:
            del self._cache[hashed]


def csrf_token(token: str) -> str:
    """What a page of ours sends beside the cookie, and no other page can know."""
    return hmac.new(token.encode(), b"sparewatt csrf", hashlib.sha256).hexdigest()


def check_csrf(*, token: str, method: str, csrf: str | None) -> None:
    """A request that changes something and came by cookie must show the session's own token."""
    if method in SAFE_METHODS:
        return
    if not hmac.compare_digest((csrf or "").encode(errors="replace"), csrf_token(token).encode()):
        raise CsrfRefused(
            f"A request by cookie needs the header {CSRF_HEADER} with the 'csrf_token' that /v1/me shows."
        )


def check_origin(origin: str | None, *, ours: frozenset[str]) -> None:
    """A browser says where a request comes from; other programs say nothing."""
    if origin is not None and origin.lower() not in ours:
        raise CsrfRefused("This request comes from a page of another site. Use this network's own address.")
