from __future__ import annotations

import pytest

from sparewatt.accounts.keys import hash_secret
from sparewatt.accounts.sealer import Sealer, derive_key
from sparewatt.core.rng import seeded

SECRET = "sk-sw-secret"
PLAIN = b"A prompt"


def a_sealer(secret: bytes = SECRET.encode(), purpose: bytes = b"test") -> Sealer:
    return Sealer(secret, purpose=purpose, rng=seeded(1))


def test_what_is_sealed_opens_under_its_own_name() -> None:
    sealed = a_sealer().seal(PLAIN, bound_to="mine")
    assert PLAIN not in sealed
    assert a_sealer().open(sealed, bound_to="mine") == PLAIN


@pytest.mark.parametrize(
    ("sealer", "bound_to"),
    [
        (a_sealer(), "yours"),
        (a_sealer(secret=b"another"), "mine"),
        (a_sealer(purpose=b"another"), "mine"),
        (a_sealer(secret=hash_secret(SECRET)), "mine"),
    ],
    ids=["name", "secret", "purpose", "hash of the secret"],
)
def test_nothing_else_opens_it(sealer: Sealer, bound_to: str) -> None:
    sealed = a_sealer().seal(PLAIN, bound_to="mine")
    with pytest.raises(ValueError, match="MAC"):
        sealer.open(sealed, bound_to=bound_to)


@pytest.mark.parametrize("at", [0, 1, 13, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    sealed = bytearray(a_sealer().seal(PLAIN, bound_to="mine"))
    sealed[at] ^= 1
    with pytest.raises(ValueError, match=r"MAC|form"):
        a_sealer().open(bytes(sealed), bound_to="mine")


def test_the_same_text_is_sealed_differently_each_time() -> None:
    sealer = a_sealer()
    assert sealer.seal(PLAIN, bound_to="mine") != sealer.seal(PLAIN, bound_to="mine")


def test_keys_for_different_things_have_nothing_in_common() -> None:
    assert len({derive_key(SECRET.encode(), purpose) for purpose in (b"a", b"b", b"")} | {hash_secret(SECRET)}) == 4
