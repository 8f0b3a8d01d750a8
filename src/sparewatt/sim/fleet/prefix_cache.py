"""What a simulated machine still has of the prompts it has read: blocks in memory that nobody else needs.

As model servers do it: when a job ends, its blocks stay where they are until the memory is wanted, the longest unused
and the ends of prompts first. Truth; gateways can only guess (`dispatch/prefixes.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sparewatt.inference.prompt import BLOCK_TOKENS

if TYPE_CHECKING:
    from sparewatt.sim.fleet.machine import SimJob


class PrefixCache:
    __slots__ = ("_blocks", "_used_bytes")

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, tuple[int, float]] = OrderedDict()
        """By block: its model's number and its bytes, the longest unused first."""
        self._used_bytes = 0.0

    def __len__(self) -> int:
        return len(self._blocks)

    def tokens_of(self, job: SimJob) -> int:
        """Of the job's prompt, the tokens that need not be read. One always must."""
        found = 0
        for block in job.prefix:
            if block not in self._blocks:
                break
            found += BLOCK_TOKENS
        return min(found, job.prompt_tokens - 1)

    def use(self, job: SimJob) -> int:
        """The same; what was found is now the latest used."""
        tokens = self.tokens_of(job)
        for block in reversed(job.prefix[: -(-tokens // BLOCK_TOKENS)]):
            self._blocks.move_to_end(block)
        return tokens

    def keep(self, job: SimJob) -> None:
        """The job is over; its memory is free, and still holds its prompt."""
        block_bytes = BLOCK_TOKENS * job.model.kv_bytes_per_token
        for block in reversed(job.prefix[: job.prompt_tokens // BLOCK_TOKENS]):
            if block not in self._blocks:
                self._used_bytes += block_bytes
            self._blocks[block] = (job.model.number, block_bytes)
            self._blocks.move_to_end(block)

    def trim(self, room_bytes: float) -> None:
        """Others need the memory: only so much is left."""
        while self._blocks and self._used_bytes > room_bytes:
            _, (_, block_bytes) = self._blocks.popitem(last=False)
            self._used_bytes -= block_bytes

    def drop_model(self, number: int) -> None:
        """The model was unloaded; what it had read means nothing to another."""
        for block in [block for block, (model, _) in self._blocks.items() if model == number]:
            self._used_bytes -= self._blocks.pop(block)[1]

    def clear(self) -> None:
        self._blocks.clear()
        self._used_bytes = 0.0
