"""The indexer: copies our contracts' events from the chain into Postgres, and delivers those that are final.

`ChainFollower` writes bounded batches, each whole or not at all. The index stores the hash of its last block. If the
chain no longer has that block (a reorg, or a local chain that lost its last second), everything above the newest common
block is dropped and read again. The follower may be stopped, killed or started twice at any time.

`EventDelivery` delivers in the chain's order and at least once: a crash between handling an event and storing the
reader's position delivers it again. A handler therefore acts under `business_id(event)`, its idempotency key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from sparewatt.chain.client import ChainClient
from sparewatt.core.errors import ChainRefused, ChainUnavailable, WrongChain
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.log_reader import with_block_times
from sparewatt.evm.model import BlockHeader, ChainIdentity, RawLog, hex_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import BlockRef, ChainIndexRow, ChainStore

_log = Logger("sparewatt.chain")
BLOCKS_PER_BATCH = 500
"""Blocks whose logs are fetched by one request; public nodes refuse ranges of some thousands."""
EVENTS_PER_BATCH = 20_000
"""About 20 MB. A range with more is halved."""
EVENTS_PER_DELIVERY = 100
REORG_BLOCKS_MAX = 64
"""Blocks behind the head whose hashes are stored one by one; no chain in use reorganises deeper by itself."""


@dataclass(slots=True)
class ChainFollower:
    client: ChainClient
    store: ChainStore
    contracts: Contracts
    start_block: int = 0
    """The block of the first contract: there is nothing of ours before it."""
    depth: int | None = None
    """Blocks, its own included, after which an event moves money; for the gateways, which read it from the index."""
    held_addresses: Callable[[], Awaitable[Collection[str]]] | None = None
    """Whose transfers of a foreign token are indexed."""
    reorg_count: int = field(default=0, init=False)
    _batch_blocks: int = field(default=BLOCKS_PER_BATCH, init=False)

    async def begin(self, *, rebuild: bool = False, another_chain: bool = False) -> None:
        """Continue the index, or start it: the first time, for other contracts, or on demand.

        Raises WrongChain if the database follows another chain, unless this chain shall replace it.
        """
        identity, index = await self.client.identity(), await self.store.index()
        if index is not None and not (rebuild and another_chain):
            refuse_other_chain(index, identity)
        elif index is not None and not is_same_chain(index, identity):
            await self.store.leave_chain()
        if index is not None and is_same_chain(index, identity):
            await self._roll_back_if_reorganised(index, await self.client.head())
        same = index is not None and dict(index.contracts) == self.contracts.addresses
        if rebuild or not same:
            await self._start_index(identity)
        if self.depth is not None:
            await self.store.set_depth(self.depth)

    async def step(self) -> bool:
        """Index one batch, or roll back once. True if there is more to do."""
        index = await self._read_index()
        head = await self.client.head()
        if await self._roll_back_if_reorganised(index, head):
            return True
        if head.number <= index.block_number:
            return False
        return await self._index_batch(index, head)

    async def catch_up(self) -> int:
        """Step until the head is reached; returns its number."""
        while await self.step():
            pass
        return (await self._read_index()).block_number

    async def _read_index(self) -> ChainIndexRow:
        index = await self.store.index()
        if index is None:
            raise RuntimeError("begin() comes first")
        return index

    async def _start_index(self, identity: ChainIdentity) -> None:
        first = max(self.start_block - 1, 0)
        header = await self.client.header(first)
        if header is None:
            raise ChainUnavailable(f"The chain's node does not have block {first} yet.")
        await self.store.begin_index(
            chain_id=identity.chain_id,
            genesis_hash=identity.genesis_hash,
            contracts=self.contracts.addresses,
            start=(first, header.hash),
        )
        _log.info("chain_index_started", block=first)

    async def _has_block(self, number: int, block_hash: bytes) -> bool:
        header = await self.client.header(number)
        return header is not None and header.hash == block_hash

    # forwards

    async def _index_batch(self, index: ChainIndexRow, head: BlockHeader) -> bool:
        first = index.block_number + 1
        last = min(head.number, index.block_number + self._batch_blocks)
        # Headers of every block that a reorg could still remove, and at least of the last block of the batch.
        headers = await self.client.headers(max(first, min(last, head.number - REORG_BLOCKS_MAX)), last)
        if not _are_linked(index, headers):
            return True  # a reorg between two requests: start over
        logs = await self._logs(first, last)
        if logs is None or not await self._are_of_blocks(logs, headers):
            return True
        blocks: list[BlockRef] = [(header.number, header.hash) for header in headers]
        events = self.contracts.decode_logs(await with_block_times(self.client, logs, headers))
        await self.store.advance_index(index.version, to=blocks[-1], head=head.number, blocks=blocks, events=events)
        return last < head.number

    async def _logs(self, first: int, last: int) -> list[RawLog] | None:
        """All logs of our contracts; None if the range was too large, and the next batch is smaller."""
        if not self.contracts.addresses:
            return []
        try:
            logs = await self._own_logs(first, last) + await self._foreign_logs(first, last)
        except ChainRefused:
            if last == first:
                raise
            logs = None
        if logs is None or (len(logs) > EVENTS_PER_BATCH and last > first):
            self._batch_blocks = max(1, (last - first + 1) // 2)
            return None
        self._batch_blocks = min(BLOCKS_PER_BATCH, 2 * self._batch_blocks)
        return logs

    async def _own_logs(self, first: int, last: int) -> list[RawLog]:
        contracts = self.contracts
        own = [address for name, address in contracts.addresses.items() if name not in contracts.foreign]
        return await self.client.logs(first, last, own)

    async def _foreign_logs(self, first: int, last: int) -> list[RawLog]:
        """Transfers of the addresses that the network holds.

        These are read after the head was: an address is in the database before anybody can send something to it, so no
        transfer of a block that is being indexed is missed.
        """
        if not self.contracts.foreign or self.held_addresses is None:
            return []
        held = sorted(await self.held_addresses())
        logs = [
            await self.client.transfers(first, last, self.contracts[name].address, held)
            for name in sorted(self.contracts.foreign)
        ]
        return [log for found in logs for log in found]

    async def _are_of_blocks(self, logs: Sequence[RawLog], headers: Sequence[BlockHeader]) -> bool:
        """False if a reorg between the two requests changed the blocks that these headers describe."""
        hashes = {header.number: header.hash for header in headers}
        if any(hashes.get(log.block_number, log.block_hash) != log.block_hash for log in logs):
            return False
        return await self._has_block(headers[-1].number, headers[-1].hash)

    # backwards

    async def _roll_back_if_reorganised(self, index: ChainIndexRow, head: BlockHeader) -> bool:
        """To the newest common block. False if the chain still has the last block of the index."""
        if await self._has_block(index.block_number, index.block_hash):
            return False
        to = await self._common_block(index)
        if to is None:
            identity = await self.client.identity()
            refuse_other_chain(index, identity)
            await self.store.reopen_all()
            await self._start_index(identity)
        elif await self.store.roll_back_index(index.version, to=to, head=head.number):
            self.reorg_count += 1
            _log.warning("chain_reorganised", from_block=index.block_number, to_block=to[0])
        return True

    async def _common_block(self, index: ChainIndexRow) -> BlockRef | None:
        """The newest stored block that the chain has as well."""
        for number, block_hash in await self.store.recent_blocks():
            if number < index.block_number and await self._has_block(number, block_hash):
                return number, block_hash
        return None


def _are_linked(index: ChainIndexRow, headers: Sequence[BlockHeader]) -> bool:
    """Whether each block's parent is the block before it, where both are known, beginning at the index."""
    if not headers or headers[-1].number <= index.block_number:
        return False
    parents = [(index.block_number, index.block_hash), *((header.number, header.hash) for header in headers[:-1])]
    return all(
        number + 1 != header.number or block_hash == header.parent_hash
        for (number, block_hash), header in zip(parents, headers, strict=True)
    )


def is_same_chain(index: ChainIndexRow, identity: ChainIdentity) -> bool:
    return (index.chain_id, index.genesis_hash) == (identity.chain_id, identity.genesis_hash)


def refuse_other_chain(index: ChainIndexRow, identity: ChainIdentity) -> None:
    if not is_same_chain(index, identity):
        raise WrongChain(
            f"This database follows another chain (id {index.chain_id}). Give the right CHAIN_URL, or start over on "
            "this one with 'sparewatt chain sync --rebuild --another-chain'."
        )


def business_id(event: ChainEvent) -> str:
    """The same for the same event, also after a reorg put it into another block."""
    return f"{event.contract}.{event.event}:{hex_of(event.tx_hash)}:{event.ordinal}"


@dataclass(frozen=True, slots=True)
class EventDelivery:
    """One reader with its own position in the index."""

    store: ChainStore
    reader: str
    names: Sequence[str]
    """Of the events, written `contract.event`."""
    depth: int
    handle: Callable[[ChainEvent], Awaitable[None]]

    async def step(self) -> bool:
        """Deliver what became final. True if there may be more."""
        index = await self.store.index()
        if index is None:
            return False
        position = await self.store.reader_position(self.reader, start_block=index.start_block)
        events = await self.store.events_after(
            position, up_to_block=index.final_block(depth=self.depth), names=self.names, limit=EVENTS_PER_DELIVERY
        )
        for event in events:
            await self.handle(event)
            to = (event.block_number, event.log_index)
            await self.store.move_reader(self.reader, seen=position, to=to)
            position = to
        return len(events) == EVENTS_PER_DELIVERY
