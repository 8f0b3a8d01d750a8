"""A chain that is started over, in Postgres: all that refers to the contracts goes in one transaction, money stays.

What the postings are is decided by the caller. An interrupted start-over happened, or it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparewatt.core.ids import AccountId
from sparewatt.store.connection_pool import Store, sql
from sparewatt.store.ledger import Transfer, post_transfer_within
from sparewatt.store.migrations import PgConnection
from sparewatt.store.payouts import CREDIT_POOL_ID, REWARD_POOL_ID


@dataclass(frozen=True, slots=True)
class MoneyOnChain:
    """What accounts have on the chain that is left, as the books know it."""

    balances: Mapping[str, int]
    """Of the ledger's accounts for pockets and for payouts, in nano-USD."""
    unclaimed: Mapping[AccountId, int]
    """In payout batches, in micro-USD."""
    rewards: Mapping[AccountId, int]
    """Likewise, of era rewards."""
    unbooked: Mapping[AccountId, int]
    """Tokens at held addresses that have no account in the ledger, in micro-USD."""


DecideTransfers = Callable[[int, MoneyOnChain, float], Sequence[Transfer]]
"""From the number of the start-over, the money and the time: what is posted."""


class ChainRestartStore(Store):
    async def start_over(self, abandoned: str, decide: DecideTransfers) -> bool:
        """Leave the deployment that `abandoned` identifies. False, and nothing changes, if that was done before."""
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_payouts"))
            restart = await connection.fetchrow(sql("insert_restart"), abandoned)
            if restart is None:
                return False
            await connection.execute(sql("ensure_month"), restart["day"])
            money = await _money_on_chain(connection)
            for transfer in decide(restart["number"], money, restart["unix_s"]):
                await post_transfer_within(connection, transfer)
            for statement in (
                *(sql("forget_signed"), sql("forget_outbox")),
                *(sql("release_all_holds"), sql("forget_holds"), sql("fail_decided_requests")),
                *(sql("forget_chain"), sql("forget_leaves"), sql("forget_batches"), sql("clear_chain_problem")),
            ):
                await connection.execute(statement)
            await connection.execute(sql("note_events_removed"), -1)
        return True

    async def awaits_cover(self) -> bool:
        """Whether the pool of the new contracts is still to be covered for credits of before."""
        return bool(await self._pool.value("awaits_cover"))

    async def note_covered(self) -> None:
        await self._pool.execute("note_covered")


async def _money_on_chain(connection: PgConnection) -> MoneyOnChain:
    balances = await connection.fetch(sql("money_on_chain"))
    unclaimed = await connection.fetch(sql("unclaimed_payouts"), CREDIT_POOL_ID)
    rewards = await connection.fetch(sql("unclaimed_payouts"), REWARD_POOL_ID)
    unbooked = await connection.fetch(sql("unbooked_wallets"))
    return MoneyOnChain(
        balances={row["account"]: int(row["nano"]) for row in balances},
        unclaimed={AccountId(row["account_id"]): int(row["micro"]) for row in unclaimed},
        rewards={AccountId(row["account_id"]): int(row["micro"]) for row in rewards},
        unbooked={AccountId(row["account_id"]): int(row["micro"]) for row in unbooked},
    )
