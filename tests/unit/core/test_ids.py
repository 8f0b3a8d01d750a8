from __future__ import annotations

import pytest

from sparewatt.core.ids import new_id
from sparewatt.core.rng import SystemRng, seeded


class FixedRng:
    """Chance that always falls the same way."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def random(self) -> float:
        return 0.0

    def randbytes(self, n: int, /) -> bytes:
        return bytes([self._byte]) * n


@pytest.mark.parametrize(("n_bytes", "n_chars"), [(1, 2), (5, 8), (10, 16), (16, 26)])
def test_an_id_is_as_long_as_its_random_bytes_need(n_bytes: int, n_chars: int) -> None:
    prefix, _, rest = new_id("match", rng=seeded(1), n_bytes=n_bytes).partition("_")
    assert prefix == "match"
    assert len(rest) == n_chars


def test_an_id_has_no_letter_that_can_be_misread() -> None:
    for seed in range(200):
        assert not set(new_id("k", rng=seeded(seed)).removeprefix("k_")) & set("ilouILOU")


@pytest.mark.parametrize(("byte", "rest"), [(0, "0" * 16), (255, "z" * 16)])
def test_every_random_bit_changes_the_id(byte: int, rest: str) -> None:
    assert new_id("k", rng=FixedRng(byte)) == f"k_{rest}"


def test_ids_do_not_repeat() -> None:
    rng = SystemRng()
    assert len({new_id("k", rng=rng) for _ in range(10_000)}) == 10_000
