"""What Postgres knows of the chain: the index of its events, and the outbox. One method per question.

The index only ever moves by one version at a time, so any number of followers may run; a nonce is given and its signed
transaction stored in one step, so any number of senders may.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import asyncpg

from sparewatt.core.limits import CHAIN_BLOCKS_KEPT
from sparewatt.protocol.contracts.chain_events import ChainEvent, SignedTransaction
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.queries import sql


class OutboxState(Enum):
    """A transaction's way. From `SIGNED` on its nonce is fixed; the last three are ends."""

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


EventPosition = tuple[int, int]
"""Block number and log index: where an event stands in the chain's order."""

BlockRef = tuple[int, bytes]


class ChainStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    # index

    async def index(self) -> ChainIndexRow | None:
        row = await self._pool.row("read_chain_index")
        return (
            None if row is None else ChainIndexRow(**(dict(row.items()) | {"contracts": json.loads(row["contracts"])}))
        )

    async def begin_index(
        self, *, chain_id: int, genesis_hash: bytes, contracts: Mapping[str, str], start: BlockRef
    ) -> None:
        """Forget what was indexed and start behind `start`. Readers keep their place: what they did stays done."""
        number, hashed = start
        async with self._pool.transaction() as connection:
            await connection.execute(sql("remove_chain_events_above"), -1)
            await connection.execute(sql("remove_chain_blocks_above"), -1)
            values = (chain_id, genesis_hash, json.dumps(dict(contracts)), number + 1, number, hashed)
            await connection.execute(sql("begin_chain_index"), *values)

    async def leave_chain(self) -> None:
        """Another chain will be followed: there no nonce was used and no root posted. What is open is signed anew."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("forget_signed"))
            await connection.execute(sql("forget_ended_outbox"))
            await connection.execute(sql("decide_outbox_anew"))
            await connection.execute(sql("forget_senders"))
            await connection.execute(sql("forget_chain_readers"))
            for query in (sql("forget_posted_batches"), sql("forget_payout_claims"), sql("forget_claim_requests")):
                await connection.execute(query)

    async def advance_index(
        self, version: int, *, to: BlockRef, head: int, blocks: Sequence[BlockRef], events: Sequence[ChainEvent]
    ) -> bool:
        """Take over a batch. False, and nothing changed, when the index moved meanwhile."""
        async with self._pool.transaction() as connection:
            if await connection.fetchrow(sql("move_chain_index"), version, *to, head) is None:
                return False
            await connection.execute(sql("insert_chain_blocks"), [n for n, _ in blocks], [h for _, h in blocks])
            await connection.execute(sql("reopen_outbox_moved"), blocks[0][0], head)
            await connection.execute(sql("forget_chain_blocks"), to[0] - CHAIN_BLOCKS_KEPT)
            await connection.execute(sql("insert_chain_events"), *_columns(events))
        return True

    async def roll_back_index(self, version: int, *, to: BlockRef, head: int) -> bool:
        """Forget everything above a block that is still on the chain; what was mined there is under way again."""
        async with self._pool.transaction() as connection:
            if await connection.fetchrow(sql("move_chain_index"), version, *to, head) is None:
                return False
            await connection.execute(sql("remove_chain_events_above"), to[0])
            await connection.execute(sql("remove_chain_blocks_above"), to[0])
            await connection.execute(sql("reopen_outbox_above"), to[0])
            await connection.execute(sql("rewind_chain_readers"), to[0])
        return True

    async def reopen_all(self) -> None:
        """The chain went back further than anybody remembers: every transaction is looked for again."""
        await self._pool.execute("reopen_outbox_above", -1)

    async def recent_blocks(self) -> list[BlockRef]:
        """Newest first."""
        rows = await self._pool.rows("recent_chain_blocks", CHAIN_BLOCKS_KEPT + 1)
        return [(row["number"], row["hash"]) for row in rows]

    async def count_events(self) -> int:
        return int(await self._pool.value("count_chain_events"))

    async def has_fresh_events(self, *, depth: int) -> bool:
        """Whether an event still lacks blocks on top of it."""
        return bool(await self._pool.value("has_fresh_events", depth))

    # readers

    async def reader_position(self, reader: str, *, start_block: int) -> EventPosition:
        """How far a reader has come; a new one begins at `start_block`."""
        await self._pool.execute("begin_chain_reader", reader, start_block - 1)
        row = await self._pool.row("read_chain_reader", reader)
        if row is None:
            raise RuntimeError("a reader that was begun has a place")
        return row["block_number"], row["log_index"]

    async def events_after(
        self, place: EventPosition, *, up_to_block: int, names: Sequence[str], limit: int
    ) -> list[ChainEvent]:
        """`names` are written `contract.event`."""
        pairs = [name.partition(".") for name in names]
        contracts, events = [contract for contract, _, _ in pairs], [event for _, _, event in pairs]
        rows = await self._pool.rows("chain_events_after", *place, up_to_block, contracts, events, limit)
        return [ChainEvent(**(dict(row.items()) | {"args": json.loads(row["args"])})) for row in rows]

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
        return [_outbox_row(row, ()) for row in await self._pool.rows("outbox_decided", sender, limit)]

    async def list_in_flight(self, sender: str, *, limit: int) -> list[OutboxRow]:
        """Signed and not final, in the order of their nonces, with all their signed forms."""
        return await self._with_signed(await self._pool.rows("outbox_under_way", sender, limit))

    async def sign(
        self, row: OutboxRow, *, nonce_min: int, gas_limit: int, sign: Callable[[int], SignedTransaction]
    ) -> SignedTransaction | None:
        """Give the row the sender's next nonce and store what `sign` makes of it, both or neither.

        None when somebody else did so meanwhile.
        """
        async with self._pool.transaction() as connection:
            nonce = int(await connection.fetchval(sql("take_nonce"), row.sender, nonce_min))
            if await connection.fetchrow(sql("outbox_note_signed"), row.id, nonce, row.nonce, gas_limit) is None:
                return None
            signed = sign(nonce)
            await connection.execute(sql("use_nonce"), row.sender, nonce)
            await connection.execute(sql("insert_signed"), row.id, *_signed_values(signed))
        return signed

    async def sign_again(self, row: OutboxRow, signed: SignedTransaction) -> None:
        """Store another form of the row's transaction: same nonce, higher fee."""
        await self._pool.execute("insert_signed", row.id, *_signed_values(signed))

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
        await self._pool.execute("outbox_note_refused", row.id, reason, tries_max)

    async def finalize(self, *, depth: int) -> None:
        """Make final what has `depth` blocks, its own included, in the index."""
        await self._pool.execute("finish_outbox", depth)

    async def has_open(self, prefix: str) -> bool:
        """Whether a decision whose business id begins so has not ended yet."""
        return bool(await self._pool.value("outbox_has_open", prefix))

    async def count_outbox(self) -> dict[str, int]:
        return {row["state"]: row["n"] for row in await self._pool.rows("count_outbox")}

    async def _with_signed(self, rows: Sequence[asyncpg.Record]) -> list[OutboxRow]:
        found: dict[int, list[SignedTransaction]] = {row["id"]: [] for row in rows}
        for each in await self._pool.rows("outbox_signed", list(found)):
            wei = (int(each["fee_wei"]), int(each["tip_wei"]))
            found[each["outbox_id"]].append(SignedTransaction(each["tx_hash"], each["raw"], *wei, each["age_s"]))
        return [_outbox_row(row, found[row["id"]]) for row in rows]


def _outbox_row(row: asyncpg.Record, signed: Sequence[SignedTransaction]) -> OutboxRow:
    return OutboxRow(**(dict(row.items()) | {"state": OutboxState(row["state"])}), signed=tuple(signed))


def _signed_values(signed: SignedTransaction) -> tuple[bytes, bytes, int, int]:
    return signed.tx_hash, signed.raw, signed.max_wei, signed.tip_wei


def _columns(events: Sequence[ChainEvent]) -> list[list[Any]]:
    """Events as the columns that one INSERT takes."""
    plain = ("block_number", "log_index", "block_hash", "tx_hash", "ordinal", "contract", "event")
    return [
        *([getattr(event, name) for event in events] for name in plain),
        [json.dumps(dict(event.args)) for event in events],
    ]
