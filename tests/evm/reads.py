"""Answers of view functions, kept as long as nothing that they read has changed.

The random walks read hundreds of values after each step, few of which the step has changed. While a view runs, each
storage slot that it loads is noted, and whether it asks for the time; a write to one of these slots, or another time,
drops the answer. So a kept answer is what the EVM would answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SLOAD, SSTORE, TIMESTAMP = 0x54, 0x55, 0x42
Slot = tuple[bytes, int]
Call = tuple[str, str, bytes]
"""Contract, caller, calldata."""
TIME: Slot = (b"", 0)
"""Stands for the block's time, of which no contract has the address."""


class Traced:
    """An opcode of the EVM that first tells what it touches."""

    def __init__(self, opcode: Any, tell: Callable[[Any], None]) -> None:
        self.opcode, self.tell = opcode, tell
        self.mnemonic = opcode.mnemonic

    def __call__(self, computation: Any) -> Any:
        self.tell(computation)
        return self.opcode(computation)


class Reads:
    def __init__(self) -> None:
        self.answers: dict[Call, Any] = {}
        self.readers: dict[Slot, set[Call]] = defaultdict(set)
        self.touched: set[Slot] = set()
        """What the running call has read."""

    def trace(self, opcodes: dict[int, Any]) -> None:
        """Watch an EVM by its table of opcodes."""
        opcodes[SLOAD] = Traced(opcodes[SLOAD], lambda c: self.touched.add(slot_of(c)))
        opcodes[SSTORE] = Traced(opcodes[SSTORE], lambda c: self.forget(slot_of(c)))
        opcodes[TIMESTAMP] = Traced(opcodes[TIMESTAMP], lambda _: self.touched.add(TIME))

    def answer(self, call: Call, run: Callable[[], Any]) -> Any:
        """A view that reverts is not kept."""
        if call in self.answers:
            return self.answers[call]
        self.touched.clear()
        found = self.answers[call] = run()
        for slot in self.touched:
            self.readers[slot].add(call)
        return found

    def forget(self, slot: Slot) -> None:
        for call in self.readers.pop(slot, ()):
            self.answers.pop(call, None)

    def forget_time(self) -> None:
        self.forget(TIME)

    def forget_all(self) -> None:
        self.answers.clear()
        self.readers.clear()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Around a block after which the chain is as it was before it."""
        answers = dict(self.answers)
        readers = {slot: set(calls) for slot, calls in self.readers.items()}
        try:
            yield
        finally:
            self.answers, self.readers = answers, defaultdict(set, readers)


def slot_of(computation: Any) -> Slot:
    """Of a load or a store: whose storage, and the word on top of the stack."""
    top = computation._stack.values[-1]
    return computation.msg.storage_address, top if isinstance(top, int) else int.from_bytes(top, "big")
