"""A figure with its source, so that an owner can see where each number comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

FigureSource = Literal[
    "owner",
    "server",
    "measured",
    "family table",
    "card table",
    "model name",
    "share of weights",
    "learned",
    "default",
]
"""Who says so. `server` includes what follows from its answers; `default` is what this kind of server does unless told
otherwise."""
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Figure(Generic[T_co]):
    value: T_co
    source: FigureSource


def first_known(*candidates: tuple[FigureSource, T_co | None]) -> Figure[T_co] | None:
    """The first that has a value; nothing at or below zero is one. The order is the order of trust."""
    return next((Figure(value, source) for source, value in candidates if value is not None and _is_known(value)), None)


def _is_known(value: object) -> bool:
    return value > 0 if isinstance(value, int | float) else bool(value)
