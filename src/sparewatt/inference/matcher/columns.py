"""The nodes that have one model, as arrays of numbers: what a scan reads. The table writes it, one node at a time.

Every node that has the model has one position. The numbers of one position lie together (`by_node`), so that a report
is one write and compiled code reads a node in one go. numpy is faster on whole columns, so `by_field` is a transposed
copy; it is brought up to date when it is read.
"""

from __future__ import annotations

import enum
import math
import struct

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
NO_POSITIONS: Positions = np.empty(0, np.int64)
"""As a subset to scan, this means every position."""
CAPACITY_FIRST = 24
GROWTH = 2
SCAN_MAX = 10_000
"""A scan looks at up to this many nodes, and numpy needs columns for it; beyond, at a shortlist, row by row."""
ID_WORDS = 3
TRANSPOSE_ONE_BY_ONE_MAX = 8
"""Up to this many stale columns are copied one by one: numpy's fancy indexing is slow to start."""


class Standing(enum.IntEnum):
    """What is known of a node and a model by this network's own timing; a match asks for at least one of them."""

    SUSPENDED = -1
    """A check of its answers failed: it gets checks alone, which ask for no more than this."""
    WAITING = 0
    """Not timed yet, and it has as many first jobs as it may, or has failed one."""
    NEWCOMER = 1
    """Not timed yet, with room for a first job."""
    TIMED = 2


class ColumnField(enum.IntEnum):
    """The numbers of one node for one model, in three groups: load, record, specs.

    Whatever follows from a report alone is computed when the report comes, not in every match (`node_row`).
    """

    HEARD_IF_OPEN_S = 0
    """When the node was last heard; minus infinity if it can take no job at all."""
    OWN_READ_END_S = 1
    """When the prompts sent from here should all be read, by the gateway's clock."""
    OWN_READ_MIN_S = 2
    """What is left of them at the least, also when that time has passed."""
    FOREIGN_READ_END_S = 3
    """The same as OWN_READ_END_S for the prompts of others."""
    SLOT_WAIT_S = 4
    """Until a slot is free, if all are taken."""
    READ_SLOWER = 5
    """How many times longer a prompt takes beside the answers that are being written."""
    STEP_S = 6
    STEP_TOKEN_S = 7
    STEP_ADDED_S = 8
    """What one more job of the model adds to every step: its share, and the weights if no other job has them read."""
    JOBS = 9
    KV_FREE_BYTES = 10
    JOBS_MAX = 11
    LAST_HEARD_S = 12
    DRAINING = 13

    CONNECTED = 14
    RTT_S = 15
    PREFILL_FIXED_S = 16
    PREFILL_TOKEN_S = 17
    PREFILL_SQUARE_S = 18
    FAILURE_ODDS = 19
    SUSPECT_UNTIL_S = 20
    STANDING = 21
    """`Standing`: whether a gateway has timed the node, and if not, whether it may have another job."""

    COLD_S = 22
    KV_TOKEN_S = 23
    STALL_SHARE = 24
    """What an answer loses of its time while a prompt is read."""
    KV_BYTES_PER_TOKEN = 25
    PROMPT_USD = 26
    COMPLETION_USD = 27
    CONTEXT_TOKENS = 28
    FITS_TOKENS = 29
    """The longest context for which weights and KV cache fit; infinite for a model that is loaded."""
    MEASURED = 30
    WARM = 31
    WEIGHTS_BYTES = 32
    VRAM_BYTES = 33
    BANDWIDTH = 34
    TFLOPS = 35
    HOURLY_USD = 36


LOAD = slice(ColumnField.HEARD_IF_OPEN_S, ColumnField.DRAINING + 1)
RECORD = slice(ColumnField.CONNECTED, ColumnField.STANDING + 1)
SPECS = slice(ColumnField.COLD_S, ColumnField.HOURLY_USD + 1)
DYNAMIC = slice(LOAD.start, RECORD.stop)
"""What changes from job to job: load and record."""
_pack_specs, _pack_dynamic = (struct.Struct(f"{group.stop - group.start}d").pack_into for group in (SPECS, DYNAMIC))
_N_FIELDS = len(ColumnField)
_ROW_BYTES, _SPECS_AT = 8 * _N_FIELDS, 8 * SPECS.start
_HEARD_IF_OPEN, _HEARD = int(ColumnField.HEARD_IF_OPEN_S), int(ColumnField.LAST_HEARD_S)
_FOREIGN_READ_END = int(ColumnField.FOREIGN_READ_END_S)


class NodeColumns:
    """All nodes that have one model. Positions are dense: when one is freed, the last node moves into it."""

    def __init__(self, *, version: int = 0) -> None:
        self.nodes: list[NodeId] = []
        self.membership_version = 0
        """Counts nodes that came or went: while it stands, every node keeps its position."""
        self.specs_version = 0
        """Counts changes of a node's hardware, prices or models."""
        self.version = version
        """Counts both. A model that loses its last node and returns goes on from its last version."""
        self._hash = np.zeros(CAPACITY_FIRST, np.uint64)
        self._row = np.zeros(CAPACITY_FIRST, np.intp)
        self._id = np.zeros((CAPACITY_FIRST, ID_WORDS), np.uint64)
        self._node_ids: tuple[NodeId, ...] = ()
        self._node_ids_version = 0
        self._transposed: Floats | None = None
        self._stale: set[int] = set()
        """Positions whose transposed columns are out of date."""
        self._addresses: tuple[int, int, int, int, int] | None = None
        self._set_numbers(np.zeros((CAPACITY_FIRST, _N_FIELDS)))

    def _set_numbers(self, numbers: Floats) -> None:
        """Single numbers are written through memoryviews: indexing the array takes several times as long."""
        self._addresses = None
        self._numbers = numbers
        self._buffer = numbers.data.cast("B")
        self._doubles = self._buffer.cast("d")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The node at each position. Decisions share this tuple until a node comes or goes."""
        if self._node_ids_version != self.membership_version:
            self._node_ids, self._node_ids_version = tuple(self.nodes), self.membership_version
        return self._node_ids

    @property
    def by_node(self) -> Floats:
        """One row per position, spare positions included."""
        return self._numbers

    @property
    def by_field(self) -> Floats:
        """One row per field; read only."""
        n, transposed = len(self.nodes), self.by_field_padded
        return self._numbers[:n].T if transposed is None else transposed[:, :n]

    @property
    def by_field_padded(self) -> Floats | None:
        """One row per field, spare positions included; None if there are too many nodes for a copy."""
        if len(self.nodes) > SCAN_MAX:
            self._set_transposed(None)
        elif self._transposed is None or self._transposed.shape[1] != len(self._numbers):
            self._set_transposed(np.ascontiguousarray(self._numbers.T))
        elif self._stale:
            self._refresh(self._transposed)
        return self._transposed

    def _set_transposed(self, transposed: Floats | None) -> None:
        if transposed is not self._transposed:
            self._transposed, self._addresses = transposed, None
            self._stale.clear()

    def _refresh(self, transposed: Floats) -> None:
        if len(self._stale) <= TRANSPOSE_ONE_BY_ONE_MAX:
            for position in self._stale:
                transposed[:, position] = self._numbers[position]
        else:
            stale = np.fromiter(self._stale, np.intp, len(self._stale))
            transposed[:, stale] = self._numbers[stale].T
        self._stale.clear()

    @property
    def addresses(self) -> tuple[int, int, int, int, int]:
        """For compiled code: rows, transposed columns, their capacity (0 if there are none), hashes, ids."""
        transposed = self.by_field_padded
        if self._addresses is None:
            columns, capacity = (0, 0) if transposed is None else (transposed.ctypes.data, transposed.shape[1])
            rows, hashes, ids = (array.ctypes.data for array in (self._numbers, self._hash, self._id))
            self._addresses = rows, columns, capacity, hashes, ids
        return self._addresses

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each node's id, spare positions included."""
        return self._hash

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Each node's id in three words, by which ties are broken; spare positions included."""
        return self._id

    @property
    def rows(self) -> NDArray[np.intp]:
        """The node's index in the table."""
        return self._row[: len(self.nodes)]

    def subset(self, positions: Positions) -> NodeColumns:
        """A copy of these positions alone, for a scan that supposes other numbers."""
        part = NodeColumns()
        part.nodes = [self.nodes[position] for position in positions.tolist()]
        part.membership_version += 1
        part._set_numbers(self._numbers[positions])
        part._hash, part._row, part._id = self._hash[positions], self._row[positions], self._id[positions]
        return part

    def add(self, node_id: NodeId, node_hash: int, row: int) -> int:
        position = len(self.nodes)
        self.membership_version += 1
        self.version += 1
        if position == len(self._numbers):
            self._grow()
        self.nodes.append(node_id)
        self._hash[position] = node_hash
        self._row[position] = row
        self._id[position] = [int(node_id[2:18], 16), int(node_id[18:34], 16), int(node_id[34:], 16)]
        return position

    def remove(self, position: int) -> NodeId | None:
        """Free a position. Returns the node that moved into it, if one did."""
        last = len(self.nodes) - 1
        self.membership_version += 1
        self.version += 1
        moved = self.nodes.pop()
        self._stale.discard(last)
        if position == last:
            return None
        self.nodes[position] = moved
        for array in (self._numbers, self._hash, self._row, self._id):
            array[position] = array[last]
        self._stale.add(position)
        return moved

    def write_dynamic(self, position: int, values: tuple[float, ...]) -> None:
        """Load and record in one write."""
        _pack_dynamic(self._buffer, position * _ROW_BYTES, *values)
        if self._transposed is not None:
            self._stale.add(position)

    def write_heartbeat(self, position: int, now_s: float) -> None:
        """The node reported, and nothing changed but the time: nobody's prompts wait there."""
        at, numbers = position * _N_FIELDS, self._doubles
        if numbers[at + _HEARD_IF_OPEN] != -math.inf:
            numbers[at + _HEARD_IF_OPEN] = now_s
        numbers[at + _HEARD] = numbers[at + _FOREIGN_READ_END] = now_s
        if self._transposed is not None:
            self._stale.add(position)

    def write_specs(self, position: int, values: tuple[float, ...]) -> None:
        _pack_specs(self._buffer, position * _ROW_BYTES + _SPECS_AT, *values)
        self.specs_version += 1
        self.version += 1
        self._stale.add(position)

    def write_column(self, field: ColumnField, values: Floats) -> None:
        """One field of every node."""
        n = len(self.nodes)
        self._numbers[:n, field] = values
        if self._transposed is not None and n <= self._transposed.shape[1]:
            self._transposed[field, :n] = values

    def _grow(self) -> None:
        extra = len(self._numbers) * (GROWTH - 1)
        self._set_numbers(np.concatenate((self._numbers, np.zeros((extra, _N_FIELDS)))))
        self._hash = np.concatenate((self._hash, np.zeros(extra, np.uint64)))
        self._row = np.concatenate((self._row, np.zeros(extra, np.intp)))
        self._id = np.concatenate((self._id, np.zeros((extra, ID_WORDS), np.uint64)))
