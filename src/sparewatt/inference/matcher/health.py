"""Is a node there? The socket is the signal; heartbeats catch the sockets that died without saying so."""

from __future__ import annotations

from sparewatt.inference.matcher.model import HealthRules, NodeRow, NodeState


def missed_heartbeats(row: NodeRow, *, now_s: float, rules: HealthRules) -> int:
    return int(max(0.0, now_s - row.last_heard_s - rules.grace_s) / rules.heartbeat_s)


def is_offline(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    return not row.connected or missed_heartbeats(row, now_s=now_s, rules=rules) >= rules.offline_after_missed


def is_suspect(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    """Silent for a while, or failed a job a moment ago: to be used only if nobody else can."""
    silent = missed_heartbeats(row, now_s=now_s, rules=rules) >= rules.suspect_after_missed
    return silent or now_s < row.suspect_until_s


def state_of(row: NodeRow, *, now_s: float, rules: HealthRules) -> NodeState:
    if is_offline(row, now_s=now_s, rules=rules):
        return NodeState.OFFLINE
    if row.load.draining:
        return NodeState.DRAINING
    if is_suspect(row, now_s=now_s, rules=rules):
        return NodeState.SUSPECT
    return NodeState.BUSY if row.jobs_there >= row.specs.slots else NodeState.ONLINE
