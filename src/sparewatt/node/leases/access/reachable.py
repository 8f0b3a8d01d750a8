"""Which leases of this node a renter can reach, by what the node itself knows of them."""

from __future__ import annotations

from sparewatt.node.leases.access.lease_streams import ReachableLease
from sparewatt.node.leases.placed.lease_runner import LeaseRunner
from sparewatt.protocol.link.lease_tasks import TaskState

_REACHABLE = (TaskState.PENDING, TaskState.ACTIVE, TaskState.PAUSED)


def find_reachable(runner: LeaseRunner, order_id: str) -> ReachableLease | None:
    """None for a lease that is over, or not placed with this node."""
    worker = runner.workers.get(order_id)
    if worker is None or worker.is_done or worker.task.state not in _REACHABLE:
        return None
    content = worker.checked.content
    return ReachableLease(worker.label, content.ports if content is not None else ())
