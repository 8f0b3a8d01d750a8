"""A dict that forgets what was put into it a while ago, or when there is too much, for little memory and no work.

Entries live in two generations. When the younger one is old or full it becomes the older one, and what that was is
forgotten as a whole: an entry stays for one to two periods, and no order of single entries is kept.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Generations(Generic[K, V]):
    __slots__ = ("_older", "_period_s", "_size_max", "_until_s", "_younger")

    def __init__(self, *, period_s: float, size_max: int) -> None:
        """`size_max`: entries of both generations together."""
        self._period_s = period_s
        self._size_max = size_max
        self._younger: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._until_s: float | None = None
        """When the younger one is old; None while there is nothing."""

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def __contains__(self, key: K) -> bool:
        return key in self._younger or key in self._older

    def put(self, key: K, value: V, *, now_s: float) -> None:
        self.forget_old(now_s)
        if len(self._younger) >= (self._size_max + 1) // 2:
            self._turn(now_s)
        self._older.pop(key, None)
        self._younger[key] = value
        if self._until_s is None:
            self._until_s = now_s + self._period_s

    def pop(self, key: K) -> V | None:
        found = self._younger.pop(key, None)
        return found if found is not None else self._older.pop(key, None)

    def forget_old(self, now_s: float) -> None:
        """Call it also when nothing comes, so that the last entries go as well."""
        while self._until_s is not None and now_s >= self._until_s:
            self._turn(self._until_s)

    def _turn(self, at_s: float) -> None:
        self._older, self._younger = self._younger, {}
        self._until_s = at_s + self._period_s if self._older else None
