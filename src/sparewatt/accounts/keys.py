"""API keys: made here, shown once, known afterwards only by their hash.

`KeyRing` is what the request path asks: a dictionary in memory, kept up to date from Postgres in the background.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, get_args

from sparewatt.core.errors import InvalidField, KeyNotFound, NotAllowed, NotAuthenticated
from sparewatt.core.ids import KeyId, new_id
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.core.rng import Rng
from sparewatt.store.database import Database, KeyRow

Scope = Literal["inference", "node", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
KEY_PREFIX = "sk-sw-"
SHOWN_CHARS = 12
_WHERE = "Ask the operator for one ('sparewatt keys create'), and send it as 'Authorization: Bearer sk-sw-…'."


def new_secret(*, rng: Rng) -> str:
    """256 bits of chance behind a prefix that secret scanners can find."""
    return KEY_PREFIX + rng.randbytes(32).hex()


def hash_secret(secret: str) -> bytes:
    """Of anything that can stand in a header, also of bytes that are no UTF-8."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


class KeyRing:
    """All keys of the network by hash. A revoked key stays, so that its holder learns what happened."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, KeyRow] = {}
        self.version = 0

    def put(self, rows: Iterable[KeyRow]) -> None:
        """Take over rows; one that is older than what is known here (a slow answer, say) changes nothing."""
        for row in rows:
            known = self._by_hash.get(row.hash)
            if known is None or row.version >= known.version:
                self._by_hash[row.hash] = row
            self.version = max(self.version, row.version)

    def authenticate(self, authorization: str | None) -> KeyRow:
        """The key behind an Authorization header. Raises NotAuthenticated with what to do."""
        if not authorization:
            raise NotAuthenticated(f"This needs an API key. {_WHERE}")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise NotAuthenticated(f"The Authorization header must begin with 'Bearer '. {_WHERE}")
        row = self._by_hash.get(hash_secret(secret.strip()))
        if row is None:
            raise NotAuthenticated(f"This API key is not known here. {_WHERE}")
        if row.revoked_at is not None:
            raise NotAuthenticated(f"The API key {row.prefix}… was revoked. {_WHERE}")
        return row


def require_scope(key: KeyRow, scope: Scope) -> None:
    if scope not in key.scopes:
        raise NotAllowed(f"The key {key.prefix}… may not do this: it needs the scope {scope!r}, it has {_said(key)}.")


def _said(key: KeyRow) -> str:
    return ", ".join(repr(scope) for scope in key.scopes) or "none"


class KeyService:
    """Making, listing and revoking keys."""

    def __init__(self, database: Database, ring: KeyRing, *, rng: Rng) -> None:
        self._database = database
        self._ring = ring
        self._rng = rng

    async def create(self, *, name: str, scopes: Sequence[str], secret: str | None = None) -> tuple[KeyRow, str]:
        """A new key and its secret, which nobody can show again."""
        check_name(name)
        check_scopes(scopes)
        secret = secret or new_secret(rng=self._rng)
        row = await self._database.insert_key(
            key_id=KeyId(new_id("key", rng=self._rng)),
            name=name,
            hashed=hash_secret(secret),
            prefix=secret[:SHOWN_CHARS],
            scopes=list(dict.fromkeys(scopes)),
        )
        self._ring.put([row])
        return row, secret

    async def revoke(self, key_id: str) -> KeyRow:
        """Revoke a key; a second time changes nothing. Raises KeyNotFound."""
        row = await self._database.revoke_key(KeyId(key_id))
        if row is None:
            raise KeyNotFound(f"There is no key {key_id[:60]!r}. 'sparewatt keys list' shows them.")
        self._ring.put([row])
        return row

    async def sync(self) -> None:
        """Take over what other processes changed."""
        self._ring.put(await self._database.keys_changed_since(self._ring.version))


def check_name(name: str) -> None:
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise InvalidField(f"A name has 1 to {NAME_CHARS_MAX} printable characters.", param="name")


def check_scopes(scopes: Collection[str]) -> None:
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise InvalidField(f"Scopes are one or more of {', '.join(SCOPES)}.", param="scopes")
