from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from argon2 import PasswordHasher

from sparewatt.accounts.passwords import (
    HASHES_WAITING_MAX,
    PASSWORD_CHARS_MAX,
    PASSWORD_CHARS_MIN,
    Passwords,
    check_password,
)
from sparewatt.core.errors import InvalidField, RateLimited

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


async def test_a_hash_is_argon2id_and_fits_its_password_alone() -> None:
    passwords = Passwords(CHEAP)
    hashed = await passwords.hash("correct horse")
    assert hashed.startswith("$argon2id$")
    assert await passwords.verify("correct horse", hashed)
    assert not await passwords.verify("wrong horse", hashed)
    assert not await passwords.verify("correct horse", "no hash at all")


async def test_the_shipped_parameters_are_not_cheap() -> None:
    hasher = Passwords()._hasher
    assert (hasher.time_cost, hasher.memory_cost) >= (3, 64 * 1024)


async def test_letters_composed_in_another_way_are_the_same_password() -> None:
    passwords = Passwords(CHEAP)
    assert await passwords.verify("cafe\u0301 cafe\u0301", await passwords.hash("caf\u00e9 caf\u00e9"))


async def test_for_an_unknown_email_a_hash_is_compared_all_the_same() -> None:
    compared: list[str] = []

    class Watched(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002 - argon2's name
            compared.append(str(password))
            return super().verify(hash, password)

    passwords = Passwords(Watched(time_cost=1, memory_cost=8, parallelism=1))
    assert not await passwords.verify("nobody has this password", None)
    assert compared == ["nobody has this password"]


async def test_a_hash_by_weaker_parameters_is_outdated() -> None:
    hashed = await Passwords(CHEAP).hash("correct horse")
    assert Passwords().is_outdated(hashed)
    assert not Passwords(CHEAP).is_outdated(hashed)


async def test_too_many_at_once_are_refused() -> None:
    passwords = Passwords(CHEAP)
    asked = [passwords.hash("correct horse") for _ in range(HASHES_WAITING_MAX + 10)]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(result, RateLimited) for result in done) == 10
    assert (await passwords.hash("correct horse")).startswith("$argon2id$")


@pytest.mark.parametrize("password", ["x" * PASSWORD_CHARS_MIN, "p\u00e4ssw\u00f6rter", "x" * PASSWORD_CHARS_MAX])
def test_a_password_of_any_letters_is_taken(password: str) -> None:
    check_password(password, email="ann@example.org")


@pytest.mark.parametrize("password", ["", "short", "x" * (PASSWORD_CHARS_MAX + 1), " Ann@Example.org "])
def test_a_short_a_too_long_or_an_obvious_password_is_refused(password: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_password(password, email="ann@example.org")
    assert caught.value.param == "password"
