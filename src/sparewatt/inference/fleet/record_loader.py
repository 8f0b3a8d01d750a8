"""Tells the matcher what earlier eras say of nodes, so that a failure at one gateway, or before a restart, has a price.

The record is scaled to RECORD_JOBS_MAX at most: what a process sees itself outweighs it soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.clock import Clock
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.store.eras import CompletionSum

RECORDS_S = 60.0
RECORD_JOBS_MAX = 50.0


class CompletionSource(Protocol):
    """Implemented by `EraStore`."""

    async def completion_sums(self, *, now_unix_s: float) -> Sequence[CompletionSum]: ...


@dataclass(frozen=True, slots=True)
class RecordLoader:
    table: NodeTable
    source: CompletionSource
    clock: Clock

    async def load(self) -> None:
        for each in await self.source.completion_sums(now_unix_s=self.clock.unix_s()):
            if self.table.get(each.node_id) is not None:
                scale = min(1.0, RECORD_JOBS_MAX / max(1.0, each.done + each.failed))
                self.table.restore(each.node_id, {}, record=(each.done * scale, each.failed * scale))
