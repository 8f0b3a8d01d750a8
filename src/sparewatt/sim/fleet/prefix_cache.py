"""The true prefix cache of a simulated machine: KV-cache blocks of prompts that it has read.

As in model servers: when a job ends, its blocks stay until the memory is needed; evicted first are the least recently
used ones, and of a prompt its last blocks. Gateways can only estimate the content (`PrefixIndex`).
"""

from __future__ import annotations

from collections import OrderedDict

from sparewatt.inference.prompt import BLOCK_TOKENS
from sparewatt.sim.traffic import SimJob


class PrefixCache:
    __slots__ = ("_blocks", "_used_bytes")

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, tuple[int, float]] = OrderedDict()
        """By block: its model's number and its bytes, least recently used first."""
        self._used_bytes = 0.0

    def __len__(self) -> int:
        return len(self._blocks)

    def tokens_of(self, job: SimJob) -> int:
        """Tokens of the job's prompt that need no prefill. The last token always needs it."""
        tokens = 0
        for block in job.prefix:
            if block not in self._blocks:
                break
            tokens += BLOCK_TOKENS
        return min(tokens, job.prompt_tokens - 1)

    def use(self, job: SimJob) -> int:
        """The same, and marks those blocks as used."""
        tokens = self.tokens_of(job)
        for block in reversed(job.prefix[: -(-tokens // BLOCK_TOKENS)]):
            self._blocks.move_to_end(block)
        return tokens

    def add(self, job: SimJob) -> None:
        """The job has ended; its blocks stay in free memory."""
        block_bytes = BLOCK_TOKENS * job.model.kv_bytes_per_token
        for block in reversed(job.prefix[: job.prompt_tokens // BLOCK_TOKENS]):
            if block not in self._blocks:
                self._used_bytes += block_bytes
            self._blocks[block] = (job.model.number, block_bytes)
            self._blocks.move_to_end(block)

    def trim(self, bytes_max: float) -> None:
        while self._blocks and self._used_bytes > bytes_max:
            _, (_, block_bytes) = self._blocks.popitem(last=False)
            self._used_bytes -= block_bytes

    def drop_model(self, number: int) -> None:
        """The model was unloaded; its blocks are useless to another one."""
        for block in [block for block, (model, _) in self._blocks.items() if model == number]:
            self._used_bytes -= self._blocks.pop(block)[1]

    def clear(self) -> None:
        self._blocks.clear()
        self._used_bytes = 0.0
