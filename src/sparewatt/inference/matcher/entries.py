"""One model's nodes as columns of numbers: what a scan reads. Written by the table, a row at a time.

Every node that has the model has one place. Columns that belong to the node (load, health) are repeated for each of its
models, so that a scan walks through memory once and looks nothing up.
"""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId

Floats = NDArray[np.float64]
GROWTH = 2
FIRST_PLACES = 24
PADDING = 8
"""Columns a power of two apart would all fall into the same few lines of the processor's cache."""


class Field(enum.IntEnum):
    """Rows of the array. The first group changes with every report, the second when the node's specs do."""

    CONNECTED = 0
    DRAINING = 1
    LAST_HEARD_S = 2
    SUSPECT_UNTIL_S = 3
    RTT_S = 4
    JOBS = 5
    BACKLOG_S = 6
    KV_USED_BYTES = 7
    KV_READ_BYTES = 8
    OTHER_ACTIVE_BYTES = 9
    PREFILL_SHARE = 10
    SPEED = 11
    FAILURE_ODDS = 12
    STRAIN_MAX = 13
    ROOM_JOBS = 14
    KV_CAPACITY_BYTES = 15

    VRAM_BYTES = 16
    BANDWIDTH = 17
    TFLOPS = 18
    HOURLY_USD = 19
    COLD_S = 20
    PREFILL_TPS = 21
    FIXED_S = 22
    STEP_S = 23
    STEP_PER_JOB_S = 24
    PROMPT_USD = 25
    COMPLETION_USD = 26
    WEIGHTS_BYTES = 27
    KV_BYTES_PER_TOKEN = 28
    CONTEXT_TOKENS = 29
    MEASURED = 30
    WARM = 31


LIVE = slice(Field.CONNECTED, Field.KV_CAPACITY_BYTES + 1)
FIXED = slice(Field.VRAM_BYTES, Field.WARM + 1)


class Entries:
    """All nodes that have one model. Places are dense: the last one moves into a hole."""

    def __init__(self) -> None:
        self._data = np.zeros((len(Field), FIRST_PLACES))
        self._hash = np.zeros(FIRST_PLACES, np.uint64)
        self._row = np.zeros(FIRST_PLACES, np.intp)
        self._high = np.zeros(FIRST_PLACES, np.uint64)
        self.nodes: list[NodeId] = []

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def data(self) -> Floats:
        return self._data[:, : len(self.nodes)]

    @property
    def storage(self) -> tuple[Floats, NDArray[np.uint64], NDArray[np.uint64]]:
        """Columns, hashes and ids with their spare places: whole arrays, which compiled code walks faster."""
        return self._data, self._hash, self._high

    @property
    def hashes(self) -> NDArray[np.uint64]:
        return self._hash[: len(self.nodes)]

    @property
    def highs(self) -> NDArray[np.uint64]:
        """The first 64 bits of each node's id, by which ties are broken."""
        return self._high[: len(self.nodes)]

    @property
    def rows(self) -> NDArray[np.intp]:
        """The node's number in the table."""
        return self._row[: len(self.nodes)]

    def add(self, node_id: NodeId, node_hash: int, row: int) -> int:
        place = len(self.nodes)
        if place == self._data.shape[1]:
            self._grow()
        self.nodes.append(node_id)
        self._hash[place] = node_hash
        self._row[place] = row
        self._high[place] = int(node_id[2:18], 16)
        return place

    def remove(self, place: int) -> NodeId | None:
        """Free a place. The node that moved into it, if one did."""
        last = len(self.nodes) - 1
        moved = self.nodes.pop()
        if place == last:
            return None
        self.nodes[place] = moved
        self._data[:, place] = self._data[:, last]
        self._hash[place] = self._hash[last]
        self._row[place] = self._row[last]
        self._high[place] = self._high[last]
        return moved

    def write_live(self, place: int, values: tuple[float, ...]) -> None:
        self._data[LIVE, place] = values

    def write_fixed(self, place: int, values: tuple[float, ...]) -> None:
        self._data[FIXED, place] = values

    def _grow(self) -> None:
        places = self._data.shape[1] * GROWTH + PADDING
        data = np.zeros((len(Field), places))
        data[:, : len(self.nodes)] = self.data
        self._data = data
        self._hash = np.resize(self._hash, places)
        self._row = np.resize(self._row, places)
        self._high = np.resize(self._high, places)
