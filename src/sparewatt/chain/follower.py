"""Keeps the index in Postgres up with the chain: bounded batches, each taken over whole or not at all.

The last block it indexed is remembered with its hash. When the chain no longer has that block (a reorganisation, or a
local chain that lost its last second), everything above the newest common block is forgotten and read again. It may be
stopped, killed or started twice at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts
from sparewatt.chain.model import BlockHeader, ChainIdentity, RawLog
from sparewatt.core.errors import ChainRefused, ChainUnavailable, WrongChain
from sparewatt.core.limits import CHAIN_BLOCKS_AT_ONCE, CHAIN_EVENTS_AT_ONCE, CHAIN_WINDOW_BLOCKS
from sparewatt.core.log import Logger
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import BlockRef, ChainIndexRow, ChainStore

_log = Logger("sparewatt.chain")


class ChainFollower:
    """Reads one chain into one database."""

    def __init__(self, client: ChainClient, store: ChainStore, contracts: Contracts, *, start_block: int = 0) -> None:
        """`start_block` is where the first contract was made: there is nothing of ours before it."""
        self._client = client
        self._store = store
        self._contracts = contracts
        self._start_block = start_block
        self._blocks_at_once = CHAIN_BLOCKS_AT_ONCE
        self.reorg_count = 0

    async def begin(self, *, rebuild: bool = False, another_chain: bool = False) -> None:
        """Go on where the index stands, or start it: the first time, for other contracts, or because it was asked.

        Raises WrongChain when the database follows another chain, unless this one is to take its place.
        """
        identity, index = await self._client.identity(), await self._store.index()
        if index is not None and not (rebuild and another_chain):
            refuse_other_chain(index, identity)
        elif index is not None and not is_same_chain(index, identity):
            await self._store.leave_chain()
        if index is not None and is_same_chain(index, identity):
            await self._step_back(index, await self._client.head())
        same = index is not None and dict(index.contracts) == self._contracts.addresses
        if rebuild or not same:
            await self._start_anew(identity)

    async def step(self) -> bool:
        """One batch, or one step back. True when there is more to do."""
        index = await self._read_index()
        head = await self._client.head()
        if await self._step_back(index, head):
            return True
        if head.number <= index.block_number:
            return False
        return await self._read_batch(index, head)

    async def catch_up(self) -> int:
        """Steps until the head is reached; returns its number."""
        while await self.step():
            pass
        return (await self._read_index()).block_number

    async def _read_index(self) -> ChainIndexRow:
        index = await self._store.index()
        if index is None:
            raise RuntimeError("begin() comes first")
        return index

    async def _start_anew(self, identity: ChainIdentity) -> None:
        first = max(self._start_block - 1, 0)
        header = await self._client.header(first)
        if header is None:
            raise ChainUnavailable(f"The chain's node does not have block {first} yet.")
        await self._store.begin_index(
            chain_id=identity.chain_id,
            genesis_hash=identity.genesis_hash,
            contracts=self._contracts.addresses,
            start=(first, header.hash),
        )
        _log.info("chain_index_started", block=first)

    async def _still_has(self, number: int, hashed: bytes) -> bool:
        header = await self._client.header(number)
        return header is not None and header.hash == hashed

    # forwards

    async def _read_batch(self, index: ChainIndexRow, head: BlockHeader) -> bool:
        first = index.block_number + 1
        last = min(head.number, index.block_number + self._blocks_at_once)
        headers = await self._headers(first, last, head=head)
        if not _follow(index, headers):
            return True  # the chain moved under our eyes: look again
        logs = await self._logs(first, last)
        if logs is None or not await self._unchanged(headers, logs):
            return True
        await self._commit_batch(index, headers, self._contracts.decode_logs(logs), head=head)
        return last < head.number

    async def _commit_batch(
        self, index: ChainIndexRow, headers: Sequence[BlockHeader], events: Sequence[ChainEvent], *, head: BlockHeader
    ) -> None:
        blocks: list[BlockRef] = [(header.number, header.hash) for header in headers]
        await self._store.advance_index(index.version, to=blocks[-1], head=head.number, blocks=blocks, events=events)

    async def _headers(self, first: int, last: int, *, head: BlockHeader) -> list[BlockHeader]:
        """Of every block that could still vanish, and at least of the last one of the batch."""
        return await self._client.headers(max(first, min(last, head.number - CHAIN_WINDOW_BLOCKS)), last)

    async def _logs(self, first: int, last: int) -> list[RawLog] | None:
        """All logs of our contracts; None when that was too much, and the next try asks for less."""
        addresses = list(self._contracts.addresses.values())
        if not addresses:
            return []
        try:
            logs = await self._client.logs(first, last, addresses)
        except ChainRefused:
            if last == first:
                raise
            logs = None
        if logs is None or (len(logs) > CHAIN_EVENTS_AT_ONCE and last > first):
            self._blocks_at_once = max(1, (last - first + 1) // 2)
            return None
        self._blocks_at_once = min(CHAIN_BLOCKS_AT_ONCE, 2 * self._blocks_at_once)
        return logs

    async def _unchanged(self, headers: Sequence[BlockHeader], logs: Sequence[RawLog]) -> bool:
        """The logs are those of the blocks that were seen before they were asked for."""
        hashes = {header.number: header.hash for header in headers}
        if any(hashes.get(log.block_number, log.block_hash) != log.block_hash for log in logs):
            return False
        return await self._still_has(headers[-1].number, headers[-1].hash)

    # backwards

    async def _step_back(self, index: ChainIndexRow, head: BlockHeader) -> bool:
        """To the newest common block, if the chain no longer has the last one. True when it had not."""
        if await self._still_has(index.block_number, index.block_hash):
            return False
        await self._roll_back(index, head)
        return True

    async def _roll_back(self, index: ChainIndexRow, head: BlockHeader) -> None:
        to = await self._common_block(index)
        if to is None:
            identity = await self._client.identity()
            refuse_other_chain(index, identity)
            await self._store.reopen_all()
            await self._start_anew(identity)
            return
        if await self._store.roll_back_index(index.version, to=to, head=head.number):
            self.reorg_count += 1
            _log.warning("chain_went_another_way", from_block=index.block_number, to_block=to[0])

    async def _common_block(self, index: ChainIndexRow) -> BlockRef | None:
        """The newest block that both have, among those that are remembered."""
        for number, hashed in await self._store.recent_blocks():
            if number < index.block_number and await self._still_has(number, hashed):
                return number, hashed
        return None


def _follow(index: ChainIndexRow, headers: Sequence[BlockHeader]) -> bool:
    """Each block is its predecessor's child, as far as both are known."""
    if not headers or headers[-1].number <= index.block_number:
        return False
    known = [(index.block_number, index.block_hash), *((header.number, header.hash) for header in headers)]
    parents = [header.parent_hash for header in headers]
    links = zip(pairwise(known), parents, strict=True)
    return all(number + 1 != next_number or hashed == parent for ((number, hashed), (next_number, _)), parent in links)


def is_same_chain(index: ChainIndexRow, identity: ChainIdentity) -> bool:
    return (index.chain_id, index.genesis_hash) == (identity.chain_id, identity.genesis_hash)


def refuse_other_chain(index: ChainIndexRow, identity: ChainIdentity) -> None:
    if not is_same_chain(index, identity):
        raise WrongChain(
            f"This database follows another chain (id {index.chain_id}). Give the right CHAIN_URL, or start over on "
            "this one with 'sparewatt chain sync --rebuild --another-chain'."
        )
