"""Eras of rewards in Postgres: what they are computed from, and each with its batch and postings, all or nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.store.connection_pool import ConnectionPool, Store, sql
from sparewatt.store.ledger import LedgerStore, Transfer, post_transfers_within, to_columns
from sparewatt.store.migrations import PgConnection
from sparewatt.store.payouts import LEAVES_MAX, REWARD_POOL_ID, PayoutBatchDraft, PayoutLeafRow, insert_batch_within
from sparewatt.trust.node_record import HALF_LIFE_DAYS, WINDOW_DAYS, RecordDay
from sparewatt.trust.tiers import Tier

WORK_ROWS_MAX = 1_000_000
"""Nodes by payers of one era."""
DAYS_MAX = 40
"""Of one era: a gateway that was away for longer begins with the last of them."""
KEPT_DAYS = 400
"""What nodes got stays on record for a year; an era's inputs and sums stay for good."""
FEES, REWARDS = "network:fees", "network:rewards"


@dataclass(frozen=True, slots=True, kw_only=True)
class EraRow:
    era: int
    since: int
    until: int
    inputs: str
    """The published document; empty where eras are listed."""
    inputs_hash: bytes
    pool_micro: int
    given_micro: int
    carried_nano: int
    epoch: int | None
    """Of the reward batch; None if nothing was given."""
    fees_left_nano: int
    """In the account of fees, after the era took its share: what is above that is the next era's."""
    lease_fees_micro: int
    """By all final events up to then: likewise."""


@dataclass(frozen=True, slots=True)
class PaidWork:
    """What one other account had a node do in an era, with money."""

    node_id: NodeId
    owner_id: AccountId
    payer: AccountId
    done: int
    paid_nano: int
    fee_nano: int


@dataclass(frozen=True, slots=True)
class EraCount:
    """What gateways counted of a node on a day, as far as no earlier era has it."""

    node_id: NodeId
    day: dt.date
    up_s: float
    known_s: float
    failed: int
    checks_passed: int
    checks_failed: int


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Of the eras that ended in the last days."""

    node_id: NodeId
    days: int
    good_days: int
    """Since the last failed check."""
    last_day: dt.date | None
    """On which it was up."""
    up_s: int
    known_s: int
    done: int
    failed: int
    checks_passed: int
    checks_failed: int


@dataclass(frozen=True, slots=True)
class CompletionSum:
    """The completion facet of a node's record, in jobs."""

    node_id: NodeId
    done: float
    failed: float


@dataclass(frozen=True, slots=True)
class NodePayee:
    node_id: NodeId
    account_id: AccountId
    payee: str | None


@dataclass(frozen=True, slots=True)
class EraNodeRow:
    node_id: NodeId
    account_id: AccountId
    up_s: int
    known_s: int
    done: int
    failed: int
    checks_passed: int
    checks_failed: int
    good_units: int
    bad_units: int
    availability_micro: int
    uptime_micro: int
    quality_micro: int


@dataclass(frozen=True, slots=True)
class AccountRewardRow:
    era: int
    until: int
    node_id: NodeId
    availability_micro: int
    uptime_micro: int
    quality_micro: int


@dataclass(frozen=True, slots=True)
class EraMoney:
    """What the books hold at the moment in which an era is closed."""

    held_nano: int
    fees_nano: int
    lease_fees_micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EraDraft:
    row: EraRow
    nodes: Sequence[EraNodeRow]
    marks: Sequence[EraCount]
    """Of the day in which it ended, unless it ended with it."""
    tiers: Mapping[NodeId, Tier]
    batch: PayoutBatchDraft | None
    transfers: Sequence[Transfer]
    """Beside those of the batch."""


DraftEra = Callable[[EraMoney, int, list[PayoutLeafRow]], EraDraft]
"""From the money, the epoch of the next reward batch, and the leaves so far."""


class EraStore(Store):
    def __init__(self, pool: ConnectionPool, ledger: LedgerStore) -> None:
        super().__init__(pool)
        self._ledger = ledger

    # what an era is computed from

    async def work(self, *, since: int, until: int) -> list[PaidWork]:
        return await self._pool.rows_as(PaidWork, "era_work", float(since), float(until), WORK_ROWS_MAX)

    async def counts(self, *, first: dt.date, last: dt.date) -> list[EraCount]:
        return await self._pool.rows_as(EraCount, "era_counts", first, last, NODES_MAX * DAYS_MAX)

    async def histories(self, *, since: int) -> dict[NodeId, NodeHistory]:
        rows = await self._pool.rows_as(NodeHistory, "node_histories", float(since), NODES_MAX)
        return {row.node_id: row for row in rows}

    async def payees(self, node_ids: Sequence[NodeId]) -> dict[NodeId, NodePayee]:
        rows = await self._pool.rows_as(NodePayee, "node_payees", list(node_ids))
        return {row.node_id: row for row in rows}

    async def accounts_at(self, addresses: Sequence[str]) -> dict[str, AccountId]:
        """Whose addresses they are, as far as the network knows."""
        rows = await self._pool.rows("accounts_at", list(addresses))
        return {row["address"]: AccountId(row["account_id"]) for row in rows}

    # eras

    async def close(self, era: int, draft_era: DraftEra, *, now_unix_s: float) -> EraRow | None:
        """Insert an era with its batch and postings. None, and nothing changes, if another gateway did it before."""
        await self._ledger.ensure_months([now_unix_s])
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_payouts"))
            last = await connection.fetchrow(sql("last_era"))
            if (last["era"] if last else 0) != era - 1:
                return None
            balances = {
                row["account"]: row["nano"] for row in await connection.fetch(sql("balances_of"), [FEES, REWARDS])
            }
            lease_fees = await connection.fetchval(sql("lease_fees"))
            money = EraMoney(balances.get(REWARDS, 0), balances.get(FEES, 0), lease_fees or 0)
            last_batch = await connection.fetchrow(sql("last_batch"), REWARD_POOL_ID)
            epoch = last_batch["epoch"] + 1 if last_batch else 1
            rows = await connection.fetch(sql("leaves_at"), epoch, "", LEAVES_MAX, REWARD_POOL_ID)
            draft = await asyncio.to_thread(draft_era, money, epoch, [PayoutLeafRow(**row) for row in rows])
            await connection.execute(sql("insert_era"), *_era_values(draft.row))
            await self._insert_nodes(connection, draft)
            await post_transfers_within(connection, draft.transfers)
            if draft.batch is not None:
                await insert_batch_within(connection, draft.batch, pool_id=REWARD_POOL_ID)
                await post_transfers_within(connection, draft.batch.transfers)
        return draft.row

    @staticmethod
    async def _insert_nodes(connection: PgConnection, draft: EraDraft) -> None:
        columns = to_columns(map(astuple, draft.nodes), width=13)
        await connection.execute(sql("insert_era_nodes"), draft.row.era, float(draft.row.until), *columns)
        tiers = list(draft.tiers), [tier.value for tier in draft.tiers.values()]
        await connection.execute(sql("put_node_tiers"), *tiers, float(draft.row.until))
        if draft.marks:
            marks = [
                (mark.node_id, mark.up_s, mark.known_s, mark.failed, mark.checks_passed, mark.checks_failed)
                for mark in draft.marks
            ]
            await connection.execute(sql("put_era_marks"), draft.marks[0].day, *to_columns(marks, width=6))

    async def last(self) -> EraRow | None:
        return await self._pool.row_as(EraRow, "last_era")

    async def find(self, era: int) -> EraRow | None:
        return await self._pool.row_as(EraRow, "find_era", era)

    async def list(self, *, before: int | None, limit: int) -> list[EraRow]:
        """Newest first, without their inputs."""
        return await self._pool.rows_as(EraRow, "eras", before, limit)

    async def rewards_of(self, account_id: AccountId, *, before: int | None, limit: int) -> Sequence[AccountRewardRow]:
        """Of an account's nodes, the newest era first."""
        return await self._pool.rows_as(AccountRewardRow, "rewards_of", account_id, before, limit)

    async def record_days(self, node_id: NodeId, *, since: float) -> Sequence[RecordDay]:
        """Oldest first."""
        return await self._pool.rows_as(RecordDay, "record_days", node_id, since, KEPT_DAYS)

    async def completion_sums(self, *, now_unix_s: float) -> Sequence[CompletionSum]:
        """Of all nodes, with forgetting."""
        values = (now_unix_s, float(HALF_LIFE_DAYS), WINDOW_DAYS, NODES_MAX)
        return await self._pool.rows_as(CompletionSum, "completion_sums", *values)

    async def last_era_of(self, node_id: NodeId) -> int | None:
        """The newest in which the node was counted."""
        era: int | None = await self._pool.value("last_reward_of", node_id)
        return era

    async def history_of(self, node_id: NodeId, *, since: int) -> NodeHistory | None:
        return (await self.histories(since=since)).get(node_id)

    async def forget_old(self, *, today: dt.date) -> None:
        await self._pool.execute("forget_old_eras", KEPT_DAYS)
        await self._pool.execute("forget_era_marks", today - dt.timedelta(days=DAYS_MAX))

    # where rewards go

    async def set_to_bond(self, node_id: NodeId, *, to_bond: bool) -> None:
        if to_bond:
            await self._pool.execute("put_reward_to_bond", node_id)
        else:
            await self._pool.execute("drop_reward_to_bond", node_id)


def _era_values(row: EraRow) -> tuple[object, ...]:
    return (
        *(row.era, float(row.since), float(row.until), row.inputs, row.inputs_hash),
        *(row.pool_micro, row.given_micro, row.carried_nano, row.epoch, row.fees_left_nano, row.lease_fees_micro),
    )
