"""One model's nodes as numbers: what a scan reads. Written by the table, a row at a time.

Every node that has the model has one place. A place's numbers lie together, so that a report is one write and a
compiled scan reads a node at once. A look at all of them is quicker in columns: `data` keeps a turned copy in step.
"""

from __future__ import annotations

import enum
import math
import struct

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId

Floats = NDArray[np.float64]
GROWTH = 2
FIRST_PLACES = 24
SCAN_MAX = 10_000
"""Up to here a decision looks at all places, and numpy needs columns; beyond it at a few, row by row."""
ID_WORDS = 3


class ColumnField(enum.IntEnum):
    """The numbers of a place, in three groups: what every report changes, what is learned, what specs say.

    What follows from a report alone is worked out when it comes, not in every decision (`figures`).
    """

    OPEN_S = 0
    """When it was last heard; minus infinity if it can take nothing, whatever the job."""
    QUEUE_S = 1
    HALVING = 2
    STEP_S = 3
    STEP_TOKEN_S = 4
    JOBS = 5
    KV_FREE_BYTES = 6
    ROOM_JOBS = 7
    LAST_HEARD_S = 8
    DRAINING = 9

    CONNECTED = 10
    RTT_S = 11
    READ_FIXED_S = 12
    READ_TOKEN_S = 13
    FAILURE_ODDS = 14
    SUSPECT_UNTIL_S = 15
    STRAIN_MAX = 16

    COLD_S = 17
    STEP_PER_JOB_S = 18
    KV_TOKEN_S = 19
    KV_BYTES_PER_TOKEN = 20
    PROMPT_USD = 21
    COMPLETION_USD = 22
    CONTEXT_TOKENS = 23
    FITS_TOKENS = 24
    """How long a context may be for weights and context to fit; no bound for a model that is loaded."""
    MEASURED = 25
    WARM = 26
    WEIGHTS_BYTES = 27
    VRAM_BYTES = 28
    BANDWIDTH = 29
    TFLOPS = 30
    HOURLY_USD = 31


LOAD = slice(ColumnField.OPEN_S, ColumnField.DRAINING + 1)
RECORD = slice(ColumnField.CONNECTED, ColumnField.STRAIN_MAX + 1)
SPECS = slice(ColumnField.COLD_S, ColumnField.HOURLY_USD + 1)
MOVING = slice(LOAD.start, RECORD.stop)
"""What changes from job to job: the first two groups."""
_LOAD, _RECORD, _SPECS, _MOVING = (
    struct.Struct(f"{group.stop - group.start}d") for group in (LOAD, RECORD, SPECS, MOVING)
)
_pack_load, _pack_moving = _LOAD.pack_into, _MOVING.pack_into
FEW = 8
"""Columns of so many places are brought up to date one by one: numpy's way of doing it at once is slow to start."""
_ROW_BYTES, _RECORD_AT, _SPECS_AT = 8 * len(ColumnField), 8 * RECORD.start, 8 * SPECS.start
_ROW, _OPEN, _HEARD = len(ColumnField), int(ColumnField.OPEN_S), int(ColumnField.LAST_HEARD_S)
_CLOSED = -math.inf


class NodeColumns:
    """All nodes that have one model. Places are dense: the last one moves into a hole."""

    def __init__(self, *, said: int = 0) -> None:
        self.nodes: list[NodeId] = []
        self.changes = 0
        """How often a place was taken or left: until it counts on, every node keeps its place."""
        self.reports = 0
        """How often a node said something new about its hardware, prices or models."""
        self.said = said
        """Counts both on. A model's next entries begin beyond its last: what was the same then is the same now."""
        self._hash = np.zeros(FIRST_PLACES, np.uint64)
        self._row = np.zeros(FIRST_PLACES, np.intp)
        self._id = np.zeros((FIRST_PLACES, ID_WORDS), np.uint64)
        self._seated: tuple[NodeId, ...] = ()
        self._seated_at = 0
        self._columns: Floats | None = None
        self._memory: tuple[int, int, int, int, int] | None = None
        self._written: set[int] = set()
        """Places whose columns are behind, where columns are kept at all."""
        self._keep(np.zeros((FIRST_PLACES, len(ColumnField))))

    def _keep(self, numbers: Floats) -> None:
        """Single numbers are written through plain memory: an array's own way takes several times as long."""
        self._memory = None
        self._numbers = numbers
        self._buffer = numbers.data.cast("B")
        self._doubles = self._buffer.cast("d")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def seated(self) -> tuple[NodeId, ...]:
        """Who has each place now: decisions keep this, and share it until somebody comes or goes."""
        if self._seated_at != self.changes:
            self._seated, self._seated_at = tuple(self.nodes), self.changes
        return self._seated

    @property
    def data(self) -> Floats:
        """Field by place; to be read only."""
        n, columns = len(self.nodes), self.columns
        return self._numbers[:n].T if columns is None else columns[:, :n]

    @property
    def columns(self) -> Floats | None:
        """The same with spare places; None if there are too many to keep them turned."""
        if len(self.nodes) > SCAN_MAX:
            self._turn(None)
        elif self._columns is None or self._columns.shape[1] != len(self._numbers):
            self._turn(np.ascontiguousarray(self._numbers.T))
        elif self._written:
            self._turn_written(self._columns)
        return self._columns

    def _turn(self, columns: Floats | None) -> None:
        if columns is not self._columns:
            self._columns, self._memory = columns, None
            self._written.clear()

    def _turn_written(self, columns: Floats) -> None:
        if len(self._written) <= FEW:
            for place in self._written:
                columns[:, place] = self._numbers[place]
        else:
            behind = np.fromiter(self._written, np.intp, len(self._written))
            columns[:, behind] = self._numbers[behind].T
        self._written.clear()

    @property
    def numbers(self) -> Floats:
        """Place by field, with spare places: whole arrays, which compiled code walks faster."""
        return self._numbers

    @property
    def memory(self) -> tuple[int, int, int, int, int]:
        """Where compiled code finds it: rows, columns, how many places those have (0: no columns), hashes, ids."""
        columns = self.columns
        if self._memory is None:
            turned, capacity = (0, 0) if columns is None else (columns.ctypes.data, columns.shape[1])
            kept = (self._numbers, self._hash, self._id)
            rows, hashes, ids = (array.ctypes.data for array in kept)
            self._memory = rows, turned, capacity, hashes, ids
        return self._memory

    @property
    def all_hashes(self) -> NDArray[np.uint64]:
        return self._hash

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Each node's id in three words, by which ties are broken; with spare places."""
        return self._id

    @property
    def hashes(self) -> NDArray[np.uint64]:
        return self._hash[: len(self.nodes)]

    @property
    def rows(self) -> NDArray[np.intp]:
        """The node's number in the table."""
        return self._row[: len(self.nodes)]

    def some(self, places: NDArray[np.int64]) -> NodeColumns:
        """A copy of these places alone, for a scan that supposes other numbers."""
        part = NodeColumns()
        part.nodes = [self.nodes[place] for place in places.tolist()]
        part.changes += 1
        part._keep(self.numbers[places])
        part._hash, part._row, part._id = self._hash[places], self._row[places], self._id[places]
        return part

    def add(self, node_id: NodeId, node_hash: int, row: int) -> int:
        place = len(self.nodes)
        self.changes += 1
        self.said += 1
        if place == len(self._numbers):
            self._grow()
        self.nodes.append(node_id)
        self._hash[place] = node_hash
        self._row[place] = row
        self._id[place] = [int(node_id[2:18], 16), int(node_id[18:34], 16), int(node_id[34:], 16)]
        return place

    def remove(self, place: int) -> NodeId | None:
        """Free a place. The node that moved into it, if one did."""
        last = len(self.nodes) - 1
        self.changes += 1
        self.said += 1
        moved = self.nodes.pop()
        self._written.discard(last)
        if place == last:
            return None
        self.nodes[place] = moved
        for array in (self._numbers, self._hash, self._row, self._id):
            array[place] = array[last]
        self._written.add(place)
        return moved

    def write_load(self, place: int, values: tuple[float, ...]) -> None:
        _pack_load(self._buffer, place * _ROW_BYTES, *values)
        if self._columns is not None:
            self._written.add(place)

    def write_moving(self, place: int, values: tuple[float, ...]) -> None:
        """Load and record at once."""
        _pack_moving(self._buffer, place * _ROW_BYTES, *values)
        if self._columns is not None:
            self._written.add(place)

    def write_heard(self, place: int, now_s: float) -> None:
        """The node is there, and all it says was known."""
        at, numbers = place * _ROW, self._doubles
        if numbers[at + _OPEN] != _CLOSED:
            numbers[at + _OPEN] = now_s
        numbers[at + _HEARD] = now_s
        if self._columns is not None:
            self._written.add(place)

    def write_record(self, place: int, values: tuple[float, ...]) -> None:
        _RECORD.pack_into(self._buffer, place * _ROW_BYTES + _RECORD_AT, *values)
        self._written.add(place)

    def write_specs(self, place: int, values: tuple[float, ...]) -> None:
        _SPECS.pack_into(self._buffer, place * _ROW_BYTES + _SPECS_AT, *values)
        self.reports += 1
        self.said += 1
        self._written.add(place)

    def write_column(self, field: ColumnField, values: Floats) -> None:
        """One number of every place."""
        n = len(self.nodes)
        self._numbers[:n, field] = values
        if self._columns is not None and n <= self._columns.shape[1]:
            self._columns[field, :n] = values

    def _grow(self) -> None:
        extra = len(self._numbers) * (GROWTH - 1)
        self._keep(np.concatenate((self._numbers, np.zeros((extra, len(ColumnField))))))
        self._hash = np.concatenate((self._hash, np.zeros(extra, np.uint64)))
        self._row = np.concatenate((self._row, np.zeros(extra, np.intp)))
        self._id = np.concatenate((self._id, np.zeros((extra, ID_WORDS), np.uint64)))
