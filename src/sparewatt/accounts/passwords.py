"""Passwords: their rules, and argon2id hashes of them, computed in a bounded number of threads."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from sparewatt.core.errors import InvalidField, RateLimited

_T = TypeVar("_T")
PASSWORD_CHARS_MIN = 10
"""Long enough against guessing at the pace that logins allow, short enough to be typed."""
PASSWORD_CHARS_MAX = 256
HASH_THREADS = 2
"""Each hash takes 64 MiB and a core for some 50 ms, and the rest of the gateway needs cores too."""
HASHES_WAITING_MAX = 64
"""The last one waits about two seconds. More is an attack."""


def check_password(password: str, *, email: str = "") -> None:
    """Raises InvalidField. Only length counts: rules about symbols make people write passwords down."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise InvalidField(f"A password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters.", param="password")
    if email and password.strip().lower() == email:
        raise InvalidField("The e-mail address is not a password: anybody would try it first.", param="password")


class Passwords:
    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._threads = asyncio.Semaphore(HASH_THREADS)
        self._waiting = 0
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run_in_thread(lambda: self._hasher.hash(_normalize(password)))

    async def verify(self, password: str, password_hash: str | None) -> bool:
        """False with None, as for an unknown e-mail, after as long a time: response times show nothing."""
        if password_hash is None:
            self._dummy = self._dummy or await self.hash("nobody has this password")
            await self._verify_hash(password, self._dummy)
            return False
        return await self._verify_hash(password, password_hash)

    def is_outdated(self, password_hash: str) -> bool:
        """Whether the hash was made with weaker parameters than today's."""
        return self._hasher.check_needs_rehash(password_hash)

    async def _verify_hash(self, password: str, password_hash: str) -> bool:
        def verify() -> bool:
            try:
                return self._hasher.verify(password_hash, _normalize(password))
            except (VerifyMismatchError, VerificationError, InvalidHashError):
                return False

        return await self._run_in_thread(verify)

    async def _run_in_thread(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= HASHES_WAITING_MAX:
            raise RateLimited("Too many people are logging in right now. Try again in a moment.", retry_after_s=2)
        self._waiting += 1
        try:
            async with self._threads:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def _normalize(password: str) -> str:
    """The same letters have the same hash, however the keyboard composed them."""
    return unicodedata.normalize("NFKC", password)
