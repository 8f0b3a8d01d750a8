"""Is a node there? The socket is the signal; heartbeats catch the sockets that died without saying so."""

from __future__ import annotations

from collections.abc import Iterable

from sparewatt.inference.matcher.model import HealthRules, NodeRow, NodeState


def is_offline(row: NodeRow, *, now_s: float, rules: HealthRules) -> bool:
    return not row.connected or now_s - row.last_heard_s >= rules.offline_after_s


def silent_of(rows: Iterable[NodeRow], *, now_s: float, rules: HealthRules) -> tuple[list[NodeRow], float]:
    """Those that are offline, and when the next of the others will be if it is not heard of again."""
    after_s = rules.offline_after_s
    silent, oldest_s = [], now_s
    for row in rows:
        if row.last_heard_s < oldest_s or not row.connected:
            if is_offline(row, now_s=now_s, rules=rules):
                silent.append(row)
            else:
                oldest_s = row.last_heard_s
    return silent, oldest_s + after_s


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
