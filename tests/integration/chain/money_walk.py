"""A walk of one account's money through all that it can do, and what may happen to the chain's process meanwhile.

`python -m … URL DSN FOLDER` is that process, killed as `killed_lives` says.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.bookkeeping import RECEIVER, Bookkeeping, quick_plan
from tests.integration.chain.killed_lives import OPERATIONS_MAX, kill_after, killed_process, live_and_die
from tests.integration.chain.settling import USER, open_settling
from tests.integration.chain.stepped_chain import DEPTH, DOLLAR, DOLLAR_MICRO


async def walk(books: Bookkeeping) -> None:
    """Deposit, order, refund, order again out of it, bond, unbond, withdraw, exit; the books are checked after each."""
    await books.deposit(20, "one")
    await books.check()
    order_id = await books.order(5, "first")
    await books.check()
    await books.cancel(order_id, "c")
    await books.check()
    order_id = await books.order(6, "second")
    await books.check()
    provider = await books.make_provider()
    await books.bond(3, provider, "b")
    await books.check()
    await books.unbond(3, provider, "u")
    await books.check()
    await books.cancel(order_id, "d")
    await books.collect("w")
    await books.check()
    assert await books.balance(f"credits:{USER}") == 20 * DOLLAR
    await books.spend("answer", written=25_000_000)  # one dollar
    request_id = await books.ask_exit(9, "e", receiver=RECEIVER)
    await books.check()
    await books.until_paid_out()
    await books.until_ended(request_id)
    await books.check()
    assert await books.settling.tokens_at(RECEIVER) == 9 * DOLLAR_MICRO
    assert await books.balance(f"credits:{USER}") == 10 * DOLLAR


async def rebuild_and_compare(books: Bookkeeping) -> None:
    """The index is dropped and read anew, its readers start over: the books stay as they are."""
    settling = books.settling
    before = await books.all_balances()
    await settling.follower.begin(rebuild=True)
    await settling.execute("DELETE FROM chain_readers")
    await settling.follower.catch_up()
    await books.check()
    assert await books.all_balances() == before


async def walk_with_mishaps(anvil: Anvil, dsn: str, folder: Path, *, seed: int, kills: int) -> None:
    """The walk, while the chain's process is killed and the chain reorganised in each of its steps."""
    rng = random.Random(seed)  # noqa: S311 (repeatable on purpose)
    async with (
        open_settling(anvil.url, dsn, folder, test_money=True, plan=quick_plan()) as settling,
        killed_process("tests.integration.chain.money_walk", anvil.url, dsn, folder) as kill_by_seed,
    ):

        async def kill() -> None:
            await kill_by_seed(rng.randrange(2**32), kills)
            if rng.random() < 0.5:
                await settling.client.request("anvil_reorg", rng.randint(1, DEPTH - 1), [])

        books = Bookkeeping(settling)
        await settling.post_snapshot()
        books.kill = kill
        await walk(books)
        await rebuild_and_compare(books)


def main(url: str, dsn: str, folder: str) -> None:
    """The process that is killed."""

    async def live(operations: int) -> None:
        async with open_settling(url, dsn, Path(folder), test_money=True, plan=quick_plan()) as settling:
            kill_after(operations)
            for _ in range(settling.rounds_max * OPERATIONS_MAX):
                await settling.round()

    live_and_die(live)


if __name__ == "__main__":
    main(*sys.argv[1:])
