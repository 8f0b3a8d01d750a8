"""Counts `near`: the distance from a node's zone to the place that a request wants to be near to is part of its cost.

It is added to the network's part, in seconds, with that part's weight and, as what a request sorts by, with emphasis:
otherwise the jitter of a long answer would hide it. Within a zone it is the same for all, so the nodes of each zone are
ranked by the formula as it is, and the best of the zones are merged. What is predicted of the answer stays what it is:
the distance says where a node is, not how long this gateway waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparewatt.inference.matcher.columns import NodeColumns, Positions
from sparewatt.inference.matcher.formula import EMPHASIS, PARTS, SUMMARY, hash_fraction
from sparewatt.inference.matcher.model import REJECTED_WIDTH, REJECTIONS_KEPT
from sparewatt.inference.matcher.scan import MatchQuery, ScanFunction, ScanResult, lowest_costs, pack_ranked
from sparewatt.policy.zones import distances_from

NEAREST_ADDED = 64
"""Nodes of the nearest zone that a match looks at besides a shortlist, which was sorted without the distance."""
_NETWORK = PARTS.index("network")
_REJECTED_BYTES_MAX = REJECTIONS_KEPT * REJECTED_WIDTH * 8


@dataclass(frozen=True, slots=True)
class NearbyRank:
    """A scan function, as `scan.rank`, for a request that wants to be near to a place."""

    rank: ScanFunction
    near: str
    zones: NDArray[np.uint8]
    """By the node's index in the table."""

    def __call__(
        self, query: MatchQuery, columns: NodeColumns, subset: Positions, tried: Positions, *, k: int
    ) -> ScanResult:
        found = [
            (zone, self.rank(query, columns, positions, tried[np.isin(tried, positions)], k=k))
            for zone, positions in self._by_zone(columns, subset)
        ]
        ranked = [(zone, result) for zone, result in found if result.n_ranked]
        counts, rejected = _rejections([result for _, result in found])
        if not ranked:
            return ScanResult(b"", 0, counts, rejected)
        positions = np.concatenate([result.positions for _, result in ranked])
        costs = np.concatenate([self._with_distance(query, zone, result) for zone, result in ranked])
        order = lowest_costs(costs[:, 0], columns, positions, k=k)
        return ScanResult(pack_ranked(positions[order], costs[order]), order.size, counts, rejected)

    def nearest(self, query: MatchQuery, columns: NodeColumns, allowed: Positions) -> Positions:
        """Some nodes of the nearest zone that has any, drawn at random for each match."""
        distances = distances_from(self.near)
        _, positions = min(self._by_zone(columns, allowed), key=lambda found: distances[found[0]])
        chance = hash_fraction(np.arange(NEAREST_ADDED, dtype=np.uint64), query.jitter_seed)
        drawn: Positions = np.unique(positions[(chance * positions.size).astype(np.int64)])
        return drawn

    def _by_zone(self, columns: NodeColumns, subset: Positions) -> Iterator[tuple[int, Positions]]:
        positions = subset if subset.size else np.arange(len(columns))
        zones = self.zones[columns.rows[positions]]
        for zone in np.unique(zones).tolist():
            yield zone, positions[zones == zone]

    def _with_distance(self, query: MatchQuery, zone: int, result: ScanResult) -> NDArray[np.float64]:
        distance_s = distances_from(self.near)[zone] / 1000.0
        costs = result.costs.copy()
        costs[:, 0] += query.weights[_NETWORK] * EMPHASIS * distance_s
        costs[:, len(SUMMARY) + _NETWORK] += distance_s
        return costs


def _rejections(results: list[ScanResult]) -> tuple[tuple[int, ...], bytes]:
    """Of all zones together."""
    counted = [result.rejected_counts for result in results if result.rejected_counts]
    counts = tuple(sum(column) for column in zip(*counted, strict=True))
    return counts, b"".join(result.rejected_rows for result in results)[:_REJECTED_BYTES_MAX]
