"""Browser sessions. The token is in a cookie; only its hash is stored, as with API keys.

A session is cached for two seconds, so a logout reaches every gateway in that time. The CSRF token is an HMAC under the
session's token, so no page of another site can know it.
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
from sparewatt.core.limits import SESSION_LIFE_S
from sparewatt.core.rng import Rng
from sparewatt.store.accounts import AccountStore, SessionRow

CSRF_HEADER = "x-sparewatt-csrf"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CACHE_S = 2.0
"""A logout at another gateway, or a closed account, is noticed within this time."""
CACHED_SESSIONS_MAX = 10_000
"""About 500 bytes each."""


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
        """Returns the token for the cookie."""
        token = self._rng.randbytes(32).hex()
        await self._store.insert_session(hash_secret(token), account_id=account_id, life_s=SESSION_LIFE_S)
        return token

    async def find(self, token: str) -> SessionRow:
        """Raises SessionEnded."""
        hashed = hash_secret(token)
        cached = self._cache.get(hashed)
        if cached is not None and self._clock.now_s() - cached.at_s < CACHE_S:
            return cached.row
        self._cache.pop(hashed, None)
        row = await self._store.find_session(hashed)
        if row is None:
            raise SessionEnded("You are logged out. Log in again.")
        self._cache[hashed] = _CachedSession(row, self._clock.now_s())
        if len(self._cache) > CACHED_SESSIONS_MAX:
            self._cache.popitem(last=False)
        return row

    async def end(self, row: SessionRow) -> None:
        self._cache.pop(row.hash, None)
        await self._store.end_session(row.hash)

    def invalidate(self, account_id: AccountId) -> None:
        """Forget this account's cached sessions: its role changed, or some of them ended."""
        for hashed in [hashed for hashed, cached in self._cache.items() if cached.row.account_id == account_id]:
            del self._cache[hashed]


def csrf_token(token: str) -> str:
    """What our own pages send in a header, in addition to the cookie."""
    return hmac.new(token.encode(), b"sparewatt csrf", hashlib.sha256).hexdigest()


def check_csrf(*, token: str, method: str, csrf: str | None) -> None:
    """A request by cookie that changes something must bring the CSRF token. Raises CsrfRefused."""
    if method in SAFE_METHODS:
        return
    if not hmac.compare_digest((csrf or "").encode(errors="replace"), csrf_token(token).encode()):
        raise CsrfRefused(
            f"A request by cookie needs the header {CSRF_HEADER} with the 'csrf_token' that /v1/me shows."
        )


def check_origin(origin: str | None, *, ours: frozenset[str]) -> None:
    """Browsers send an origin, other programs do not. Raises CsrfRefused for that of another site."""
    if origin is not None and origin.lower() not in ours:
        raise CsrfRefused("This request comes from a page of another site. Use this network's own address.")
