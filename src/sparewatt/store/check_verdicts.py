"""Verdicts of checked answers, where each node stands after them, and what the tolerance is learned from.

A verdict and the record that it leads to are written together, with the record locked: gateways that judge the same
node at the same time come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.store.connection_pool import Store, sql
from sparewatt.trust.checks.model import CheckKind
from sparewatt.trust.checks.standing import CheckRecord, CheckState, Consequence
from sparewatt.trust.checks.tolerance import HonestPairs

KEPT_DAYS = 90
LISTED_MAX = 200
GROUPS_MAX = 10_000
VERSIONS_LOOKED_BACK = 64


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One verdict on one node. `evidence` is JSON."""

    id: str
    unix_s: float
    node_id: NodeId
    kind: CheckKind
    result: str
    state: str
    """Where it left the node."""
    evidence: str
    retrial_of: str | None = None
    retried: bool = False


class RecordChange(NamedTuple):
    """What a verdict makes of a record, and of the node's money."""

    record: CheckRecord
    result: str
    consequence: Consequence


class StoredRecord(NamedTuple):
    node_id: NodeId
    record: CheckRecord
    version: int


class CheckVerdictStore(Store):
    async def add(self, row: VerdictRow, change: Callable[[CheckRecord], RecordChange]) -> RecordChange:
        """Store a verdict; its result and state are those that `change` returns for the node's record."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("open_check_record"), row.node_id)
            before = await connection.fetchrow(sql("lock_check_record"), row.node_id)
            changed = change(_record(**before) if before is not None else CheckRecord())
            await connection.execute(sql("set_check_record"), row.node_id, *_columns(changed.record))
            values = (row.id, row.unix_s, row.node_id, row.kind, changed.result, changed.record.state.value)
            await connection.execute(sql("insert_check_verdict"), *values, row.evidence, row.retrial_of)
        return changed

    async def change_record(self, node_id: NodeId, change: Callable[[CheckRecord], CheckRecord]) -> CheckRecord:
        """Without a verdict: a term that has ended, or a re-trial that found for the node."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("open_check_record"), node_id)
            before = await connection.fetchrow(sql("lock_check_record"), node_id)
            record = change(_record(**before) if before is not None else CheckRecord())
            await connection.execute(sql("set_check_record"), node_id, *_columns(record))
        return record

    async def records_since(self, version: int) -> list[StoredRecord]:
        """All that changed after a version, and a few before it."""
        return await self._pool.rows_as(
            _stored, "check_records_since", max(0, version - VERSIONS_LOOKED_BACK), NODES_MAX
        )

    async def list_of(self, node_id: NodeId, *, limit: int = LISTED_MAX) -> list[VerdictRow]:
        """The latest first."""
        return await self._pool.rows_as(VerdictRow, "check_verdicts_of", node_id, limit)

    async def find(self, verdict_id: str) -> VerdictRow | None:
        return await self._pool.row_as(VerdictRow, "find_check_verdict", verdict_id)

    async def claim_retrial(self, verdict_id: str) -> bool:
        """False if it had its re-trial, or is none that may have one."""
        return await self._pool.value("claim_retrial", verdict_id) is not None

    async def release_retrial(self, verdict_id: str) -> None:
        """It could not be held: it may be asked for again."""
        await self._pool.execute("release_retrial", verdict_id)

    async def add_pairs(self, comparable: str, pairs: HonestPairs) -> None:
        await self._pool.execute("add_honest_pairs", comparable, pairs.pieces, pairs.differences)

    async def pairs(self) -> dict[str, HonestPairs]:
        rows = await self._pool.rows("list_honest_pairs", GROUPS_MAX)
        return {str(row["comparable"]): HonestPairs(row["pieces"], row["differences"]) for row in rows}

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_check_verdicts", KEPT_DAYS)


def _columns(record: CheckRecord) -> tuple[object, ...]:
    past = record.past
    counts = record.passed, record.failed_probes, past.pieces, past.differences
    return record.state.value, *counts, record.barred_until_unix_s


def _record(*, state: str, past_pieces: int, past_differences: int, **columns: Any) -> CheckRecord:
    return CheckRecord(state=CheckState(state), past=HonestPairs(past_pieces, past_differences), **columns)


def _stored(*, node_id: str, version: int, **columns: Any) -> StoredRecord:
    return StoredRecord(NodeId(node_id), _record(**columns), version)
