"""API keys: a secret is shown once, when its key is made; only its hash is stored.

Requests are authenticated by the `KeyRing`, a dictionary in memory that is synced from Postgres in the background. A
key's policy is text here; `check_policy` validates it once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

from sparewatt.accounts.principal import SCOPES
from sparewatt.core.errors import InvalidField, KeyNotFound, NotAuthenticated
from sparewatt.core.ids import AccountId, KeyId, new_id
from sparewatt.core.limits import KEYS_PER_ACCOUNT_MAX, NAME_CHARS_MAX, POLICY_BYTES_MAX
from sparewatt.core.money import MAX_NANO
from sparewatt.core.rng import Rng
from sparewatt.store.database import Database, KeyRow, KeyTerms

KEY_PREFIX = "sk-sw-"
PREFIX_CHARS = 12
RATE_MAX = 2**31 - 1
_WHERE = "Make one with 'sparewatt keys create', and send it as 'Authorization: Bearer sk-sw-…'."
_KEY_ID = re.compile(r"key_[0-9a-z]{1,40}")


def new_secret(*, rng: Rng) -> str:
    """256 random bits, after a prefix that secret scanners recognise."""
    return KEY_PREFIX + rng.randbytes(32).hex()


def hash_secret(secret: str) -> bytes:
    """Takes anything that a header can hold, also bytes that are not UTF-8."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def bearer_secret(authorization: str) -> str:
    """The key in an Authorization header. Raises NotAuthenticated for another scheme."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise NotAuthenticated(f"The Authorization header must begin with 'Bearer '. {_WHERE}")
    return secret.strip()


class KeyRing:
    """All keys of the network by hash. A revoked key stays, so that its client gets the reason."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, KeyRow] = {}
        self._account_of: dict[KeyId, AccountId] = {}
        self._used: set[KeyId] = set()
        self.version = 0

    def put(self, rows: Iterable[KeyRow]) -> None:
        """Ignores a row that is older than the known one, as after a slow query."""
        for row in rows:
            known = self._by_hash.get(row.hash)
            if known is None or row.version >= known.version:
                self._by_hash[row.hash] = row
                self._account_of[row.id] = row.account_id
            self.version = max(self.version, row.version)

    def authenticate(self, authorization: str | None, *, unix_s: float) -> KeyRow:
        """Raises NotAuthenticated with what to do."""
        if not authorization:
            raise NotAuthenticated(f"This needs an API key. {_WHERE}")
        row = self._by_hash.get(hash_secret(bearer_secret(authorization)))
        if row is None:
            raise NotAuthenticated(f"This API key is not known here. {_WHERE}")
        _refuse_ended(row, unix_s=unix_s)
        self._used.add(row.id)
        return row

    def revalidate(self, row: KeyRow) -> bool:
        """Whether a key that was authenticated before is unchanged. False for keys that expire."""
        if self._by_hash.get(row.hash) is not row or row.expires_at is not None:
            return False
        self._used.add(row.id)
        return True

    def account_of(self, key_id: KeyId) -> AccountId | None:
        """Of a job's `key_id`, which is a key, or the account itself if a browser submitted it."""
        return self._account_of.get(key_id) or (AccountId(key_id) if key_id.startswith("acc_") else None)

    def pop_used(self) -> list[KeyId]:
        """The keys used since the last call."""
        used, self._used = self._used, set()
        return list(used)


def _refuse_ended(row: KeyRow, *, unix_s: float) -> None:
    if row.revoked_at is not None:
        raise NotAuthenticated(f"The API key {row.prefix}… was revoked. {_WHERE}")
    if row.expires_at is not None and row.expires_at.timestamp() <= unix_s:
        raise NotAuthenticated(f"The API key {row.prefix}… expired on {row.expires_at:%Y-%m-%d %H:%M} UTC. {_WHERE}")
    if row.closed_at is not None:
        raise NotAuthenticated(f"The account of the API key {row.prefix}… is closed. Ask the network's operator.")


@dataclass(frozen=True, slots=True)
class KeyService:
    """Makes, lists, limits and revokes keys."""

    database: Database
    ring: KeyRing
    rng: Rng
    validate_policy: Callable[[str], object] | None = None
    """Takes a policy as JSON text; raises InvalidField."""
    announce: Callable[[], Awaitable[object]] | None = None
    """Makes the other processes of this gateway sync at once. Other gateways sync every second."""

    async def create(
        self, account_id: AccountId, *, terms: KeyTerms, scopes: Sequence[str], secret: str | None = None
    ) -> tuple[KeyRow, str]:
        """A new key and its secret, which cannot be shown again."""
        check_scopes(scopes)
        self._check(terms, scopes=scopes)
        secret = secret or new_secret(rng=self.rng)
        row = await self.database.insert_key(
            key_id=KeyId(new_id("key", rng=self.rng)),
            account_id=account_id,
            hashed=hash_secret(secret),
            prefix=secret[:PREFIX_CHARS],
            scopes=list(dict.fromkeys(scopes)),
            terms=terms,
        )
        if row is None:
            raise InvalidField(f"An account has at most {KEYS_PER_ACCOUNT_MAX:,} keys. Revoke some first.")
        return await self._publish(row), secret

    async def list(self, account_id: AccountId | None) -> list[KeyRow]:
        """Of one account, or of all with None."""
        return await self.database.list_keys(account_id)

    async def change_terms(
        self, key_id: str, *, account_id: AccountId | None, change: Callable[[KeyRow], KeyTerms]
    ) -> KeyRow:
        """Change a key's terms. Raises KeyNotFound also for a key of another account, or InvalidField."""

        def checked(row: KeyRow) -> KeyTerms:
            if row.revoked_at is not None:
                raise InvalidField(f"The key {row.id} was revoked. Make another one.")
            terms = change(row)
            self._check(terms, scopes=row.scopes)
            return terms

        row = await self.database.change_key(_checked_id(key_id), account_id=account_id, change=checked)
        return await self._publish(row or _refuse_unknown(key_id))

    async def revoke(self, key_id: str, *, account_id: AccountId | None) -> KeyRow:
        """Revoke a key; a second time changes nothing. Raises KeyNotFound also for a key of another account."""
        row = await self.database.revoke_key(_checked_id(key_id), account_id=account_id)
        return await self._publish(row or _refuse_unknown(key_id))

    async def sync(self) -> None:
        """Load what other processes changed in keys or their accounts."""
        self.ring.put(await self.database.keys_changed_since(self.ring.version))

    async def on_account_changed(self) -> None:
        """What a key may do depends on its account, so its keys are loaded again."""
        await self.sync()
        await self._announce_change()

    async def note_used(self) -> None:
        """Store the time of use of the keys that were used since the last call."""
        if used := self.ring.pop_used():
            await self.database.note_keys_used(used)

    def check_policy(self, policy: str | None) -> None:
        if policy is None:
            return
        if len(policy.encode()) > POLICY_BYTES_MAX:
            raise InvalidField(f"A policy has at most {POLICY_BYTES_MAX // 1024} KiB.", param="policy")
        if self.validate_policy is not None:
            self.validate_policy(policy)

    def _check(self, terms: KeyTerms, *, scopes: Collection[str]) -> None:
        check_name(terms.name)
        check_budget(terms)
        check_rates(terms)
        self.check_policy(terms.policy)
        if "admin" in scopes and (terms.budget_nano is not None or terms.policy is not None):
            raise InvalidField(
                "A key with the scope 'admin' can make other keys, so a budget or a policy would not bind it. "
                "Leave out the scope or the limit."
            )

    async def _publish(self, row: KeyRow) -> KeyRow:
        self.ring.put([row])
        await self._announce_change()
        return row

    async def _announce_change(self) -> None:
        if self.announce is not None:
            await self.announce()


def terms_of(row: KeyRow) -> KeyTerms:
    """The part of a key that can be changed."""
    return KeyTerms(**{field.name: getattr(row, field.name) for field in fields(KeyTerms)})


def _checked_id(text: str) -> KeyId:
    """Raises KeyNotFound for what cannot be an id, so that Postgres does not see it."""
    return KeyId(text) if _KEY_ID.fullmatch(text) else _refuse_unknown(text)


def _refuse_unknown(key_id: str) -> NoReturn:
    raise KeyNotFound(f"There is no key {key_id[:60]!r}. 'sparewatt keys list' shows them.")


def check_name(name: str) -> None:
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise InvalidField(f"A name has 1 to {NAME_CHARS_MAX} printable characters.", param="name")


def check_scopes(scopes: Collection[str]) -> None:
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise InvalidField(f"Scopes are one or more of {', '.join(SCOPES)}.", param="scopes")


def check_budget(terms: KeyTerms) -> None:
    if (terms.budget_nano is None) != (terms.budget_period is None):
        raise InvalidField("A budget has an amount and a period.", param="budget")
    if terms.budget_nano is not None and not 0 < terms.budget_nano <= MAX_NANO:
        raise InvalidField("A budget is more than 0. To stop a key, revoke it.", param="budget")


def check_rates(terms: KeyTerms) -> None:
    for name in ("requests_per_min", "tokens_per_min"):
        rate = getattr(terms, name)
        if rate is not None and not 0 < rate <= RATE_MAX:
            raise InvalidField(f"{name} is a number from 1 to {RATE_MAX:,}.", param=name)
