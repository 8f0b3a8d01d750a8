from __future__ import annotations

import pytest

from sparewatt.core.rng import Rng, SystemRng, seeded


def draw(rng: Rng) -> tuple[float, bytes]:
    return rng.random(), rng.randbytes(16)


def test_a_seed_repeats_its_chance() -> None:
    assert draw(seeded(7)) == draw(seeded(7))


def test_another_seed_brings_other_chance() -> None:
    assert draw(seeded(7)) != draw(seeded(8))


def test_the_machines_chance_does_not_repeat() -> None:
    assert draw(SystemRng()) != draw(SystemRng())


@pytest.mark.parametrize("rng", [SystemRng(), seeded(3)])
def test_chance_keeps_to_its_range_and_length(rng: Rng) -> None:
    assert all(0 <= rng.random() < 1 for _ in range(1000))
    assert [len(rng.randbytes(n)) for n in (0, 1, 32)] == [0, 1, 32]
