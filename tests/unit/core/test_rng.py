from __future__ import annotations

import pytest

from sparewatt.core.rng import Rng, SystemRng, seeded


def draw(rng: Rng) -> tuple[float, bytes]:
    return rng.random(), rng.randbytes(16)


def test_a_seed_repeats_its_sequence() -> None:
    assert draw(seeded(7)) == draw(seeded(7))


def test_another_seed_gives_another_sequence() -> None:
    assert draw(seeded(7)) != draw(seeded(8))


def test_the_system_generator_does_not_repeat() -> None:
    assert draw(SystemRng()) != draw(SystemRng())


@pytest.mark.parametrize("rng", [SystemRng(), seeded(3)])
def test_random_values_keep_to_their_range_and_length(rng: Rng) -> None:
    assert all(0 <= rng.random() < 1 for _ in range(1000))
    assert [len(rng.randbytes(n)) for n in (0, 1, 32)] == [0, 1, 32]
