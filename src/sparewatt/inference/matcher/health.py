"""Is a node there? The socket is the signal; heartbeats catch the sockets that died without saying so."""

from __future__ import annotations

from sparewatt.inference.matcher.model import HealthRules, NodeRow, NodeState


def is_offline(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    return not row.connected or now_s - row.last_heard_s >= rules.offline_after_s


def is_suspect(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    """Silent for a while, or failed a job a moment ago: to be used only if nobody else can."""
    return now_s - row.last_heard_s >= rules.suspect_after_s or now_s < row.suspect_until_s


def state_of(row: NodeRow, *, now_s: float, rules: HealthRules) -> NodeState:
    if is_offline(row, now_s=now_s, rules=rules):
        return NodeState.OFFLINE
    if row.load.draining:
        return NodeState.DRAINING if row.load.paused is None else NodeState.PAUSED
    if is_suspect(row, now_s=now_s, rules=rules):
        return NodeState.SUSPECT
    return NodeState.BUSY if row.jobs_there >= row.specs.slots else NodeState.ONLINE
