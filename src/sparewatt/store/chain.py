"""The chain's index and outbox in Postgres.

Several followers and senders may run at once: the index moves by compare-and-set on its version, and a nonce is taken
in the same transaction that stores what was signed with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import asyncpg

from sparewatt.protocol.contracts.chain_events import ChainEvent, SignedTransaction
from sparewatt.store.connection_pool import Store, sql
from sparewatt.store.pockets import write_off_pockets_within

BLOCKS_KEPT = 256
"""Hashes of the last blocks, to find the common block after a reorg; after a deeper one everything is read again."""
EventPosition = tuple[int, int]
"""Block number and log index: the position of an event in the chain's order."""
BlockRef = tuple[int, bytes]
"""Number and hash of a block."""


class OutboxState(Enum):
    """From `SIGNED` on the nonce is fixed. The last three are final."""

    DECIDED = "decided"
    SIGNED = "signed"
    SENT = "sent"
    MINED = "mined"
    FINAL = "final"
    REVERTED = "reverted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OutboxRow:
    id: int
    business_id: str
    sender: str
    recipient: str
    data: bytes
    gas_limit: int | None
    state: OutboxState
    nonce: int | None
    tries: int
    reason: str | None
    block_number: int | None
    block_hash: bytes | None
    tx_hash: bytes | None
    succeeded: bool | None
    lost_block: int | None
    request_id: str | None = None
    """The chain request that it is a call of."""
    signed: tuple[SignedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainIndexRow:
    chain_id: int
    genesis_hash: bytes
    contracts: Mapping[str, str]
    start_block: int
    block_number: int
    block_hash: bytes
    head_number: int
    version: int
    saved_block: int | None = None
    """The newest block that a local chain has on disk; None for chains whose blocks survive their node."""

    def final_block(self, *, depth: int) -> int:
        """The newest that is `depth` blocks deep, its own included, and that no kill of a local chain can remove."""
        deep = self.block_number - depth + 1
        return deep if self.saved_block is None else min(deep, self.saved_block)


class ChainStore(Store):
    # index

    async def index(self) -> ChainIndexRow | None:
        return await self._pool.row_as(_index_row, "read_chain_index")

    async def begin_index(
        self, *, chain_id: int, genesis_hash: bytes, contracts: Mapping[str, str], start: BlockRef
    ) -> None:
        """Drop the index and start it behind the block `start`. Readers keep their positions."""
        number, block_hash = start
        async with self._pool.transaction() as connection:
            await connection.execute(sql("remove_chain_events_above"), -1)
            await connection.execute(sql("remove_chain_blocks_above"), -1)
            values = (chain_id, genesis_hash, json.dumps(dict(contracts)), number + 1, number, block_hash)
            await connection.execute(sql("begin_chain_index"), *values)
            await connection.execute(sql("tell_market_changed"))

    async def leave_chain(self) -> None:
        """Prepare for another chain: no nonce was used there and no root posted. Open rows are signed again."""
        async with self._pool.transaction() as connection:
            await write_off_pockets_within(connection)
            for query in (
                *(sql("forget_signed"), sql("forget_ended_outbox"), sql("decide_outbox_anew"), sql("forget_senders")),
                *(sql("forget_chain_readers"), sql("forget_posted_batches")),
                *(sql("forget_payout_claims"), sql("forget_claim_requests"), sql("forget_matches_of_chain")),
                sql("forget_lease_acts_of_chain"),
            ):
                await connection.execute(query)

    async def problem(self) -> str | None:
        """What a person must mend before the chain's process can work, in words."""
        found: str | None = await self._pool.value("chain_problem")
        return found

    async def set_problem(self, problem: str | None) -> None:
        """None once it works."""
        if problem is None:
            await self._pool.execute("clear_chain_problem")
        else:
            await self._pool.execute("set_chain_problem", problem)

    async def advance_index(
        self, version: int, *, to: BlockRef, head: int, blocks: Sequence[BlockRef], events: Sequence[ChainEvent]
    ) -> bool:
        """Store a batch. False, and nothing changes, if another follower moved the index meanwhile."""
        async with self._pool.transaction() as connection:
            if await connection.fetchrow(sql("move_chain_index"), version, *to, head) is None:
                return False
            await connection.execute(sql("insert_chain_blocks"), [n for n, _ in blocks], [h for _, h in blocks])
            await connection.execute(sql("reopen_outbox_moved"), blocks[0][0], head)
            await connection.execute(sql("forget_chain_blocks"), to[0] - BLOCKS_KEPT)
            if events:
                await connection.execute(sql("insert_chain_events"), *_columns(events))
                await connection.execute(sql("tell_market_changed"))
        return True

    async def roll_back_index(self, version: int, *, to: BlockRef, head: int) -> bool:
        """Drop everything above a block that is still on the chain. Transactions mined there are in flight again."""
        async with self._pool.transaction() as connection:
            if await connection.fetchrow(sql("move_chain_index"), version, *to, head) is None:
                return False
            await connection.execute(sql("remove_chain_events_above"), to[0])
            await connection.execute(sql("note_events_removed"), to[0])
            await connection.execute(sql("tell_market_changed"))
            await connection.execute(sql("remove_chain_blocks_above"), to[0])
            await connection.execute(sql("reopen_outbox_above"), to[0])
            await connection.execute(sql("rewind_chain_readers"), to[0])
        return True

    async def reopen_all(self) -> None:
        """After a reorg deeper than the stored blocks: every transaction is in flight again."""
        await self._pool.execute("reopen_outbox_above", -1)

    async def set_depth(self, depth: int) -> None:
        """Tell the gateways how deep an event must be before it moves money."""
        await self._pool.execute("set_chain_depth", depth)

    async def set_saved_block(self, number: int | None) -> None:
        """How far a local chain is on disk. Later blocks are not final, however deep."""
        await self._pool.execute("set_saved_block", number)

    async def set_attempt_s(self, attempt_s: int) -> None:
        """Tell the gateways how long an attempt of an order has for its certificate."""
        await self._pool.execute("set_attempt_time", attempt_s)

    async def recent_blocks(self) -> list[BlockRef]:
        """Newest first."""
        rows = await self._pool.rows("recent_chain_blocks", BLOCKS_KEPT + 1)
        return [(row["number"], row["hash"]) for row in rows]

    async def count_events(self) -> int:
        return int(await self._pool.value("count_chain_events"))

    async def has_fresh_events(self, *, depth: int) -> bool:
        """Whether an event is not final yet."""
        return bool(await self._pool.value("has_fresh_events", depth))

    # readers

    async def reader_position(self, reader: str, *, start_block: int) -> EventPosition:
        """A new reader begins at `start_block`."""
        await self._pool.execute("begin_chain_reader", reader, start_block - 1)
        row = await self._pool.row("read_chain_reader", reader)
        if row is None:
            raise RuntimeError("a reader that was begun has a position")
        return row["block_number"], row["log_index"]

    async def events_after(
        self, position: EventPosition, *, up_to_block: int, names: Sequence[str], limit: int
    ) -> list[ChainEvent]:
        """`names` are written `contract.event`."""
        contracts, _, events = zip(*(name.partition(".") for name in names), strict=True)
        values = (*position, up_to_block, contracts, events, limit)
        return await self._pool.rows_as(_chain_event, "chain_events_after", *values)

    async def events_of(self, tx_hashes: Sequence[bytes], *, names: Sequence[str]) -> list[ChainEvent]:
        """The events of these transactions, in the chain's order. `names` are written `contract.event`."""
        contracts, _, events = zip(*(name.partition(".") for name in names), strict=True)
        return await self._pool.rows_as(_chain_event, "chain_events_of", list(tx_hashes), contracts, events)

    async def move_reader(self, reader: str, *, seen: EventPosition, to: EventPosition) -> None:
        await self._pool.execute("move_chain_reader", reader, *seen, *to)

    # outbox

    async def enqueue(
        self, business_id: str, sender: str, recipient: str, data: bytes, *, gas_limit: int | None = None
    ) -> None:
        """A row that has this business id already stays as it is."""
        await self._pool.execute("decide_outbox", business_id, sender, recipient, data, gas_limit)

    async def find(self, business_id: str) -> OutboxRow | None:
        row = await self._pool.row("find_outbox", business_id)
        return (await self._with_signed([row]))[0] if row else None

    async def list_decided(self, sender: str, *, limit: int) -> list[OutboxRow]:
        return await self._pool.rows_as(_outbox_row, "outbox_decided", sender, limit)

    async def list_in_flight(self, sender: str, *, limit: int) -> list[OutboxRow]:
        """Signed and not final, by nonce, with all their signed versions."""
        return await self._with_signed(await self._pool.rows("outbox_under_way", sender, limit))

    async def sign(
        self, row: OutboxRow, *, nonce_min: int, gas_limit: int, sign: Callable[[int], SignedTransaction]
    ) -> SignedTransaction | None:
        """Give the row the sender's next nonce and store what `sign` makes of it, both or neither.

        None if another sender did so meanwhile.
        """
        async with self._pool.transaction() as connection:
            nonce = int(await connection.fetchval(sql("take_nonce"), row.sender, nonce_min))
            values = (row.id, nonce, row.nonce, gas_limit, row.sender)
            if await connection.fetchrow(sql("outbox_note_signed"), *values) is None:
                return None
            signed = sign(nonce)
            await connection.execute(sql("use_nonce"), row.sender, nonce)
            await connection.execute(sql("insert_signed"), row.id, *_signed_values(signed))
        return signed

    async def sign_again(self, row: OutboxRow, signed: SignedTransaction) -> bool:
        """Store another version of the row's transaction: same nonce, higher fee. False if another sender did."""
        values = (row.id, *_signed_values(signed), len(row.signed))
        return await self._pool.value("insert_signed_again", *values) is not None

    async def fill_nonce(
        self, business_id: str, sender: str, *, nonce: int, gas_limit: int, signed: SignedTransaction
    ) -> bool:
        """Store a transaction of the sender to itself under a nonce that no row has. False if one has it."""
        async with self._pool.transaction() as connection:
            row_id = await connection.fetchval(sql("fill_outbox_nonce"), business_id, sender, gas_limit, nonce)
            if row_id is None:
                return False
            await connection.execute(sql("insert_signed"), row_id, *_signed_values(signed))
        return True

    async def note_sent(self, row: OutboxRow) -> None:
        await self._pool.execute("outbox_note_sent", row.id)

    async def note_mined(
        self, row: OutboxRow, *, block: BlockRef, tx_hash: bytes, succeeded: bool, reason: str | None
    ) -> None:
        await self._pool.execute("outbox_note_mined", row.id, *block, tx_hash, succeeded, reason)

    async def note_lost(self, row: OutboxRow, *, block_number: int) -> None:
        """Another transaction has its nonce, as of this block."""
        await self._pool.execute("outbox_note_lost", row.id, block_number)

    async def note_refused(self, row: OutboxRow, reason: str, *, tries_max: int) -> None:
        """After the last try the row ends as refused, and with it the later calls of its request."""
        await self._pool.execute("outbox_note_refused", row.id, reason, tries_max)

    async def finalize(self, *, depth: int) -> None:
        """Make final what has `depth` blocks, its own included, in the index, and is on the chain's disk."""
        await self._pool.execute("finish_outbox", depth)

    # senders

    async def list_open_senders(self, senders: Sequence[str]) -> list[str]:
        """Those of `senders` that have a row which is not final."""
        return [row["sender"] for row in await self._pool.rows("outbox_open_senders", list(senders))]

    async def sender_loads(self, senders: Sequence[str]) -> dict[str, tuple[int, float]]:
        """Of those with any: rows that are not mined, and how many seconds ago the oldest of these was signed."""
        rows = await self._pool.rows("outbox_sender_loads", list(senders))
        return {row["sender"]: (row["open_calls"], row["waiting_s"]) for row in rows}

    async def has_waiting_requests(self) -> bool:
        """Whether a call of a request has no nonce yet."""
        return bool(await self._pool.value("outbox_has_waiting_requests"))

    async def list_movable_requests(self, staying: Sequence[str], *, limit: int) -> list[tuple[str, int]]:
        """Requests of senders other than `staying` that have no call under way, with their number of waiting calls."""
        rows = await self._pool.rows("outbox_movable_requests", list(staying), limit)
        return [(row["request_id"], row["calls"]) for row in rows]

    async def move_request(self, request_id: str, *, to: str) -> bool:
        """Give the calls of a request to another sender. False, and nothing changes, if one was signed meanwhile."""
        async with self._pool.transaction() as connection:
            states = await connection.fetch(sql("lock_outbox_of_request"), request_id)
            if any(row["state"] in {"signed", "sent"} for row in states):
                return False
            await connection.execute(sql("move_outbox_of_request"), request_id, to)
        return True

    async def has_open(self, prefix: str) -> bool:
        """Whether a row whose business id begins so is not final yet."""
        return bool(await self._pool.value("outbox_has_open", prefix))

    async def count_outbox(self) -> dict[str, int]:
        return {row["state"]: row["n"] for row in await self._pool.rows("count_outbox")}

    async def count_outbox_by_sender(self) -> dict[str, int]:
        """Rows that are not final, of every key that has sent."""
        return {row["address"]: row["n"] for row in await self._pool.rows("count_outbox_by_sender")}

    async def _with_signed(self, rows: Sequence[asyncpg.Record]) -> list[OutboxRow]:
        versions: dict[int, list[SignedTransaction]] = {row["id"]: [] for row in rows}
        for each in await self._pool.rows("outbox_signed", list(versions)):
            wei = (int(each["fee_wei"]), int(each["tip_wei"]))
            versions[each["outbox_id"]].append(SignedTransaction(each["tx_hash"], each["raw"], *wei, each["age_s"]))
        return [_outbox_row(**row, signed=tuple(versions[row["id"]])) for row in rows]


def _index_row(*, contracts: str, **columns: Any) -> ChainIndexRow:
    return ChainIndexRow(contracts=json.loads(contracts), **columns)


def _chain_event(*, args: str, **columns: Any) -> ChainEvent:
    return ChainEvent(args=json.loads(args), **columns)


def _outbox_row(*, state: str, **columns: Any) -> OutboxRow:
    return OutboxRow(state=OutboxState(state), **columns)


def _signed_values(signed: SignedTransaction) -> tuple[bytes, bytes, int, int]:
    return signed.tx_hash, signed.raw, signed.max_wei, signed.tip_wei


def _columns(events: Sequence[ChainEvent]) -> list[list[Any]]:
    """One list per column of the INSERT."""
    plain = ("block_number", "log_index", "block_hash", "tx_hash", "ordinal", "contract", "event", "unix_s")
    return [
        *([getattr(event, name) for event in events] for name in plain),
        [json.dumps(dict(event.args)) for event in events],
    ]
