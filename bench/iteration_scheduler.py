"""Which tokens the next iteration of a server with continuous batching works on. Pure; the server is `torch_server`.

Every answer that is being written gets one token; what is left of the iteration's tokens goes to prompts, in the order
of arrival. A prompt's last piece gives its first token. Lengths are known beforehand, since nothing but its limit ends
an answer, so an iteration can be planned before the previous one is done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

CHUNK_TOKENS = 2048
"""In one iteration."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request. `read` and `written` are what is planned, not what is done."""

    prompt: list[int]
    limit: int
    slot: int = -1
    read: int = 0
    written: int = 0
    is_cancelled: bool = False

    @property
    def is_read(self) -> bool:
        return self.read == len(self.prompt)

    @property
    def is_over(self) -> bool:
        return self.is_cancelled or self.written >= self.limit


class PromptPiece(NamedTuple):
    sequence: Sequence
    start: int
    tokens: int

    @property
    def is_last(self) -> bool:
        return self.start + self.tokens == len(self.sequence.prompt)


class Iteration(NamedTuple):
    decoding: tuple[tuple[Sequence, int], ...]
    """Each with the position of the token that it feeds, its last one."""
    pieces: tuple[PromptPiece, ...]

    @property
    def writers(self) -> list[Sequence]:
        """Whoever gets a token, in the order in which the model gives them."""
        return [sequence for sequence, _ in self.decoding] + [each.sequence for each in self.pieces if each.is_last]


@dataclass(slots=True)
class IterationScheduler:
    slots: int
    chunk_tokens: int = CHUNK_TOKENS
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    _free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._free = list(range(self.slots))

    def submit(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def next(self) -> Iteration | None:
        """None if there is nothing to do."""
        self._update_running()
        decoding = tuple((each, len(each.prompt) + each.written - 1) for each in self.running if each.is_read)
        pieces = tuple(self._pieces(self.chunk_tokens - len(decoding)))
        for sequence, _ in decoding:
            sequence.written += 1
        for piece in pieces:
            piece.sequence.read += piece.tokens
            piece.sequence.written += piece.is_last
        return Iteration(decoding, pieces) if decoding or pieces else None

    def kv_tokens(self) -> int:
        """In use by running requests."""
        return sum(each.read + each.written for each in self.running)

    def _update_running(self) -> None:
        self._free += [each.slot for each in self.running if each.is_over]
        self.running = [each for each in self.running if not each.is_over]
        self.waiting = deque(each for each in self.waiting if not each.is_over)
        while self.waiting and self._free:
            sequence = self.waiting.popleft()
            sequence.slot = self._free.pop(0)
            self.running.append(sequence)

    def _pieces(self, budget: int) -> list[PromptPiece]:
        found = []
        for sequence in self.running:
            count = min(len(sequence.prompt) - sequence.read, budget)
            if count > 0:
                found.append(PromptPiece(sequence, sequence.read, count))
                budget -= count
        return found
