"""Free memory goes back to the system."""

from __future__ import annotations

import ctypes

import pytest

from sparewatt.machine import free_memory
from sparewatt.machine.free_memory import release_free_memory


@pytest.fixture(autouse=True)
def _looked_up_anew() -> None:
    free_memory._malloc_trim.cache_clear()


def test_the_c_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    class Library:
        @staticmethod
        def malloc_trim(pad: int) -> int:
            told.append(pad)
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library())
    release_free_memory()
    release_free_memory()
    assert told == [0, 0]
    free_memory._malloc_trim.cache_clear()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    release_free_memory()
    free_memory._malloc_trim.cache_clear()


def test_it_can_be_called_here() -> None:
    release_free_memory()
