"""Passwords: what one must be like, and argon2id hashes of them, made beside the event loop a few at a time."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from sparewatt.core.errors import InvalidField, RateLimited
from sparewatt.core.limits import (
    PASSWORD_CHARS_MAX,
    PASSWORD_CHARS_MIN,
    PASSWORD_HASHES_AT_ONCE,
    PASSWORD_HASHES_WAITING_MAX,
)

_T = TypeVar("_T")


def check_password(password: str, *, email: str = "") -> None:
    """Raises InvalidField. Length is what counts; a rule about symbols only makes people write them down."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise InvalidField(f"A password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters.", param="password")
    if email and password.strip().lower() == email:
        raise InvalidField("The e-mail address is not a password: anybody would try it first.", param="password")


class Passwords:
    """Hashes and compares. Bounded: each hash takes a core and 64 MiB for a while."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._places = asyncio.Semaphore(PASSWORD_HASHES_AT_ONCE)
        self._waiting = 0
        self._dummy: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run_in_thread(lambda: self._hasher.hash(_normalize(password)))

    async def verify(self, password: str, password_hash: str | None) -> bool:
        """Whether it is the password. With None (nobody has this address) it takes the same time and says no."""
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
        if self._waiting >= PASSWORD_HASHES_WAITING_MAX:
            raise RateLimited("Too many people are logging in right now. Try again in a moment.", retry_after_s=2)
        self._waiting += 1
        try:
            async with self._places:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def _normalize(password: str) -> str:
    """The same letters, however the keyboard composed them."""
    return unicodedata.normalize("NFKC", password)
