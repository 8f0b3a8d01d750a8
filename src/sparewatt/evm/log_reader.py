"""Reads our contracts' events block by block over JSON-RPC, and notices reorgs by the blocks' hashes.

`LogReader.step` gives the next batch of whole blocks, or says up to which block the chain is still the one that was
read. It keeps the hashes of the last blocks only; what the events mean is for its caller (`market.chain_view`).
Ranges are bounded, and halved where the node refuses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sparewatt.core.errors import ChainRefused, ChainUnavailable, WrongChain
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import BlockHeader, ChainIdentity, RawLog
from sparewatt.protocol.contracts.chain_events import ChainEvent

BLOCKS_PER_BATCH = 500
"""Blocks whose logs are fetched by one request; public nodes refuse ranges of some thousands."""
EVENTS_PER_BATCH = 20_000
"""A range with more is halved."""
REORG_BLOCKS_MAX = 64
"""Blocks behind the head whose hashes are read one by one; no chain in use reorganises deeper by itself."""
BLOCKS_KEPT = 256
"""Hashes of the last blocks, to find the common block after a reorg."""


class BlockSource(Protocol):
    """Blocks and logs of one chain. Implemented by EvmClient."""

    async def identity(self) -> ChainIdentity: ...

    async def head(self) -> BlockHeader: ...

    async def header(self, number: int) -> BlockHeader | None: ...

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]: ...


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """The events of whole blocks up to `block`."""

    block: BlockHeader
    head: BlockHeader
    events: tuple[ChainEvent, ...]


@dataclass(frozen=True, slots=True)
class Reorg:
    """The chain has other blocks after `common_block` than were read. What came after it must be forgotten."""

    common_block: int


@dataclass(slots=True)
class LogReader:
    client: BlockSource
    contracts: Contracts
    identity: ChainIdentity
    """The chain that is read. Another one is refused."""
    start_block: int = 0
    """The block of the first contract: there is nothing of ours before it."""
    trusts_bloom: bool = False
    """Whether an empty bloom filter means that a block has no logs. Some public chains always give an empty one."""
    reorg_count: int = field(default=0, init=False)
    _blocks: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=BLOCKS_KEPT), init=False)
    """Numbers and hashes of the last blocks that were read, oldest first."""
    _batch_blocks: int = field(default=BLOCKS_PER_BATCH, init=False)

    @property
    def block_number(self) -> int:
        """The last block that was read."""
        return self._blocks[-1][0] if self._blocks else self.start_block - 1

    async def step(self) -> BlockBatch | Reorg | None:
        """The next batch, or a reorg; None if there is nothing new, or a reorg came in between: ask again later.

        Raises ChainUnavailable, WrongChain, and ChainRefused if the node refuses even a single block.
        """
        head = await self.client.head()
        if self._blocks:
            number, block_hash = self._blocks[-1]
            if head.hash == block_hash:
                return None
            if (head.number, head.parent_hash) == (number + 1, block_hash):
                return await self._read_child(head)
            if not await self._has_block(number, block_hash):
                return await self._roll_back()
        if head.number <= self.block_number:
            return None
        return await self._read_batch(head)

    # forwards

    async def _read_child(self, head: BlockHeader) -> BlockBatch | None:
        """The one block that is new: what a follower meets nearly always, so it takes few requests."""
        logs: list[RawLog] = []
        if head.has_logs or not self.trusts_bloom:
            found = await self._logs(head.number, head.number)
            if found is None or not _are_of_blocks(found, [head]) or not await self._has_block(head.number, head.hash):
                return None
            logs = await with_block_times(self.client, found, [head])
        self._blocks.append((head.number, head.hash))
        return BlockBatch(head, head, tuple(self.contracts.decode_logs(logs)))

    async def _read_batch(self, head: BlockHeader) -> BlockBatch | None:
        first, last = self.block_number + 1, min(head.number, self.block_number + self._batch_blocks)
        headers = await self._headers(max(first, min(last, head.number - REORG_BLOCKS_MAX)), last)
        if not self._are_linked(headers, last):
            return None
        logs = await self._logs(first, last)
        if logs is None or not _are_of_blocks(logs, headers) or not await self._has_block(last, headers[-1].hash):
            return None
        logs = await with_block_times(self.client, logs, headers)
        self._blocks.extend((header.number, header.hash) for header in headers)
        return BlockBatch(headers[-1], head, tuple(self.contracts.decode_logs(logs)))

    async def _headers(self, first: int, last: int) -> list[BlockHeader]:
        headers = []
        for number in range(first, last + 1):
            header = await self.client.header(number)
            if header is None:
                break
            headers.append(header)
        return headers

    def _are_linked(self, headers: Sequence[BlockHeader], last: int) -> bool:
        """Whether they reach to `last`, and each block's parent is the block before it, where both are known."""
        if not headers or headers[-1].number != last:
            return False
        known = dict(self._blocks) | {header.number: header.hash for header in headers}
        return all(known.get(header.number - 1, header.parent_hash) == header.parent_hash for header in headers)

    async def _logs(self, first: int, last: int) -> list[RawLog] | None:
        """None if the range was too large: the next one is half of it."""
        try:
            logs = await self.client.logs(first, last, list(self.contracts.addresses.values()))
        except ChainRefused:
            if first == last:
                raise
            logs = None
        if logs is None or (len(logs) > EVENTS_PER_BATCH and first < last):
            self._batch_blocks = max(1, (last - first + 1) // 2)
            return None
        self._batch_blocks = min(BLOCKS_PER_BATCH, 2 * self._batch_blocks)
        return logs

    # backwards

    async def _roll_back(self) -> Reorg:
        """To the newest block that is still on the chain; to the start if it is none of those kept."""
        if await self.client.identity() != self.identity:
            raise WrongChain("The node follows another chain now. Is its URL the right one?")
        while self._blocks and not await self._has_block(*self._blocks[-1]):
            self._blocks.pop()
        self.reorg_count += 1
        return Reorg(self.block_number)

    async def _has_block(self, number: int, block_hash: bytes) -> bool:
        header = await self.client.header(number)
        return header is not None and header.hash == block_hash


async def with_block_times(client: BlockSource, logs: Sequence[RawLog], headers: Sequence[BlockHeader]) -> list[RawLog]:
    """The logs with the times of their blocks: from the headers, the node's word, or else the block itself."""
    times = {header.number: header.unix_s for header in headers}
    for log in logs:
        if log.block_number in times:
            continue
        if not log.unix_s:
            header = await client.header(log.block_number)
            if header is None or header.hash != log.block_hash:
                raise ChainUnavailable("The chain's node gave a log of a block that it does not have.")
            times[log.block_number] = header.unix_s
        else:
            times[log.block_number] = log.unix_s
    return [replace(log, unix_s=times[log.block_number]) for log in logs]


def _are_of_blocks(logs: Sequence[RawLog], headers: Sequence[BlockHeader]) -> bool:
    """False if a reorg between the two requests changed the blocks that these headers describe."""
    hashes = {header.number: header.hash for header in headers}
    return all(hashes.get(log.block_number, log.block_hash) == log.block_hash for log in logs)
