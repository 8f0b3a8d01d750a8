"""Runs the library for Linux on aarch64 in an emulator and compares it with numpy, to the bit, on random tables.

A machine of the other kind cannot load it. Run by `make scan` after a build.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import unicorn
from unicorn import arm64_const

from sparewatt.inference.matcher import library
from sparewatt.inference.matcher.columns import ID_WORDS, ColumnField
from sparewatt.inference.matcher.kernel import CALL, QUERY, Kernel
from sparewatt.inference.matcher.model import REJECTED_WIDTH, REJECTIONS_KEPT, SCAN_REJECTIONS
from sparewatt.inference.matcher.scan import RANKED_WIDTH
from tests.unit.inference.scans import compare_scans

TABLES = 2000
SEED = 5
PAGE = 0x1000
STACK_BYTES = 0x10000
CODE_AT, STACK_AT, RETURN_AT = 0x10_0000, 0x80_0000, 0xF0_0000
"""Where nothing of the host's memory is, which keeps its addresses."""
INSTRUCTIONS_MAX = 50_000_000
PT_LOAD, SHT_DYNSYM = 1, 11


class EmulatedEntry:
    """The library's function on a processor in software. Called as the real one, with addresses of this process."""

    def __init__(self, path: Path) -> None:
        self._image = path.read_bytes()
        self._machine: Any = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._machine.mem_map(CODE_AT, 64 * PAGE)
        self._machine.mem_map(STACK_AT, STACK_BYTES)
        self._machine.mem_map(RETURN_AT, PAGE)
        for offset, at, size in self._segments():
            self._machine.mem_write(CODE_AT + at, self._image[offset : offset + size])
        self._entry_at = CODE_AT + self._symbol(library.entry_name())
        self._pages: set[int] = set()

    def __call__(self, result_at: int, _: int | None, call_at: int) -> int:
        machine, regions = self._machine, [(result_at, 8), *_regions(call_at)]
        for at, size in regions:
            self._map(at, size)
            machine.mem_write(at, ctypes.string_at(at, size))
        for register, value in zip(
            (arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X1, arm64_const.UC_ARM64_REG_X2),
            (result_at, 0, call_at),
            strict=True,
        ):
            machine.reg_write(register, value)
        machine.reg_write(arm64_const.UC_ARM64_REG_SP, STACK_AT + STACK_BYTES)
        machine.reg_write(arm64_const.UC_ARM64_REG_LR, RETURN_AT)
        machine.emu_start(self._entry_at, RETURN_AT, count=INSTRUCTIONS_MAX)
        for at, size in regions:
            ctypes.memmove(at, bytes(machine.mem_read(at, size)), size)
        status: int = machine.reg_read(arm64_const.UC_ARM64_REG_W0)
        return status

    def _map(self, at: int, size: int) -> None:
        for page in range(at // PAGE, (at + size - 1) // PAGE + 1):
            if page not in self._pages:
                self._machine.mem_map(page * PAGE, PAGE)
                self._pages.add(page)

    def _segments(self) -> Iterator[tuple[int, int, int]]:
        """Offset, address and size of what is loaded."""
        first, count = struct.unpack_from("<Q", self._image, 32)[0], struct.unpack_from("<H", self._image, 56)[0]
        for number in range(count):
            kind, _, offset, at, _, size = struct.unpack_from("<IIQQQQ", self._image, first + 56 * number)
            if kind == PT_LOAD:
                yield offset, at, size

    def _symbol(self, name: str) -> int:
        """The address of a symbol that the library exports."""
        wanted = name.encode() + b"\0"
        sections, count = struct.unpack_from("<Q", self._image, 40)[0], struct.unpack_from("<H", self._image, 60)[0]
        headers = [struct.unpack_from("<IIQQQQII", self._image, sections + 64 * n) for n in range(count)]
        for _, kind, _, _, offset, size, link, _ in headers:
            if kind == SHT_DYNSYM:
                for at in range(offset, offset + size, 24):
                    name_at, _, value = struct.unpack_from("<IIQ", self._image, at)
                    start = headers[link][4] + name_at
                    if self._image[start : start + len(wanted)] == wanted:
                        return int(value)
        raise SystemExit(f"The library has no {name}. Run `make scan`.")


def _regions(call_at: int) -> Iterator[tuple[int, int]]:
    """The memory that a call reads and writes: addresses and sizes, by the arguments of `compiled.scan`."""
    yield call_at, CALL.size
    arguments = CALL.unpack(ctypes.string_at(call_at, CALL.size))
    rows, columns, capacity, hashes, ids, n, subset, n_subset, tried, n_tried, k, query = arguments[:12]
    bounds, positions, lines, counts, rejections, picks, rejected = arguments[12:]
    doubles = {
        rows: n * len(ColumnField), columns: capacity * len(ColumnField), hashes: n, ids: n * ID_WORDS,
        subset: n_subset, tried: n_tried, bounds: n, positions: k, lines: k * RANKED_WIDTH,
        counts: len(SCAN_REJECTIONS) + 2, picks: REJECTIONS_KEPT, rejected: REJECTIONS_KEPT * REJECTED_WIDTH,
    }  # fmt: skip
    yield from ((at, 8 * size) for at, size in doubles.items() if at and size)
    yield from ((query, QUERY.size), (rejections, n_subset or n))


def main() -> None:
    rank = Kernel(EmulatedEntry(library.path_of("linux-aarch64"))).rank
    chance = np.random.default_rng(SEED)
    ranked = [compare_scans(chance, rank=rank) for _ in range(TABLES)]
    print(f"aarch64, emulated: {TABLES:,} tables, {sum(ranked):,} nodes ranked, as numpy does, to the bit")


if __name__ == "__main__":
    main()
