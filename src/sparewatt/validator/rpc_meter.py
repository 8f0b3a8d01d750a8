"""Counts and times the JSON-RPC calls to the chain's node, by method, as AVS operators expect to see them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparewatt.evm.json_rpc import RpcClient

_T = TypeVar("_T")
BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0)
METHODS_MAX = 32
"""Our own calls, so there are about a dozen."""


@dataclass(slots=True)
class MethodUse:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """By bucket, the last one without an upper bound."""
    total_s: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, duration_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.total_s += duration_s


@dataclass(slots=True)
class MeteredRpcClient(RpcClient):
    uses: dict[str, MethodUse] = field(default_factory=dict)
    """By method; several clients may share it."""

    async def call(self, kind: type[_T] | Any, method: str, *params: object) -> _T:
        started_at_s = self.clock.now_s()
        try:
            result: _T = await RpcClient.call(self, kind, method, *params)
            return result
        finally:
            if method in self.uses or len(self.uses) < METHODS_MAX:
                self.uses.setdefault(method, MethodUse()).add(self.clock.now_s() - started_at_s)
