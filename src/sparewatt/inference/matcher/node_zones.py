"""The zone of every node in the table, as far as it can be believed.

A node names its own region. Where the gateway knows its own zone, the round trip that it measures must fit: an answer
that comes sooner than light could carry it, or much later than from the named zone, refutes the claim. A node without
a believable zone counts as farthest, so neither silence nor a false name brings it jobs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sparewatt.policy.zones import DISTANCE_MS, UNKNOWN_ZONE, zone_of_region
from sparewatt.protocol.link.node_report import NodeSpecs

SOONEST_SHARE = 0.5
"""Typical routes are at most twice as long as the straight line at the speed of light in glass."""
LATEST_MS = 100.0
"""What a bad last mile adds."""
_CAPACITY_FIRST = 64


class LocatedNode(Protocol):
    """A row of the table."""

    @property
    def specs(self) -> NodeSpecs: ...
    @property
    def index(self) -> int: ...
    @property
    def rtt_s(self) -> float: ...


def believed_zone(claimed: int, *, rtt_s: float, gateway_zone: int) -> int:
    """The claimed zone, or 0 if the measured round trip refutes it. Without a measurement the claim stands."""
    if UNKNOWN_ZONE in (claimed, gateway_zone) or not rtt_s:
        return claimed
    usual_ms, rtt_ms = DISTANCE_MS[gateway_zone][claimed], rtt_s * 1000.0
    is_sooner = claimed != gateway_zone and rtt_ms < SOONEST_SHARE * usual_ms
    return UNKNOWN_ZONE if is_sooner or rtt_ms > usual_ms + LATEST_MS else claimed


class NodeZones:
    """By the index that a node has in the table."""

    def __init__(self, *, gateway_zone: int = UNKNOWN_ZONE) -> None:
        self._gateway_zone = gateway_zone
        self._by_index = np.zeros(_CAPACITY_FIRST, np.uint8)

    @property
    def by_index(self) -> NDArray[np.uint8]:
        return self._by_index

    def note(self, row: LocatedNode) -> bool:
        """When it reports another region, or its round trip was measured. Whether the two fit."""
        if row.index >= len(self._by_index):
            self._by_index = np.concatenate((self._by_index, np.zeros(row.index, np.uint8)))
        claimed = zone_of_region(row.specs.region)
        believed = believed_zone(claimed, rtt_s=row.rtt_s, gateway_zone=self._gateway_zone)
        self._by_index[row.index] = believed
        return believed == claimed
