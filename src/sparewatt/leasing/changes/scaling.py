"""How many leases of one name there are, and which end first if there shall be fewer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.store.lease_orders import LeaseOrderRow

_ENDS_FIRST = (
    None,
    LeaseState.UNPLACED,
    LeaseState.VACANT,
    LeaseState.PENDING,
    LeaseState.PAUSED,
    LeaseState.ACTIVE,
)
"""What does least for its renter goes first; None: no provider yet."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    kept: tuple[LeaseOrderRow, ...]
    ended: tuple[LeaseOrderRow, ...]
    """In the order in which they end."""
    ordered: int
    """How many are ordered anew."""


def plan_scale(rows: Sequence[LeaseOrderRow], leases: Mapping[str, LeaseRecord], *, count: int) -> ScalePlan:
    """`rows`: those of the name that have not ended. Of leases in the same state the newest ends first."""

    def rank(row: LeaseOrderRow) -> tuple[int, float]:
        lease = leases.get(row.order_id or "")
        state = lease.state if lease is not None else None
        return (_ENDS_FIRST.index(state) if state in _ENDS_FIRST else 0, -row.created_unix_s)

    last_of_batch_first = sorted(rows, key=lambda row: (len(row.lease_id), row.lease_id), reverse=True)
    by_rank = sorted(last_of_batch_first, key=rank)
    surplus = max(0, len(rows) - count)
    ended = tuple(by_rank[:surplus])
    kept = tuple(row for row in rows if row not in ended)
    return ScalePlan(kept, ended, max(0, count - len(rows)))
