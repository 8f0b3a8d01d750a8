"""The books agree with the chain to the unit, whatever happens: leases, bonds, exits, kills, reorgs, a new index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparewatt.core.money import Nano
from sparewatt.ledger.credits import CreditService
from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.bookkeeping import DOLLAR, RECEIVER, Bookkeeping, quick_plan
from tests.integration.chain.settling import OWNER, USER, open_settling
from tests.integration.money.samples import RULES


@pytest.fixture
async def books(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Bookkeeping]:
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True, plan=quick_plan()) as settling:
        keeping = Bookkeeping(settling)
        await keeping.post_snapshot()
        yield keeping


async def test_a_lease_that_is_cancelled_gives_its_money_back(books: Bookkeeping) -> None:
    await books.deposit(10, "one")
    credits_ = CreditService(books.settling.database.ledger, rules=RULES, clock=books.settling.worker.exits.payouts._clock)
    await credits_.grant(USER, Nano(3 * DOLLAR), reference="free")
    order_id = await books.order(5, "first")
    assert await books.balance(f"escrow:{USER}") == 5 * DOLLAR
    assert (await books.balance(f"promo:{USER}"), await books.balance(f"credits:{USER}")) == (0, 8 * DOLLAR)
    await books.check()
    await books.cancel(order_id, "c")
    assert (await books.balance(f"escrow:{USER}"), await books.balance(f"owed:{USER}")) == (0, 5 * DOLLAR)
    await books.check()
    await books.collect("back")
    assert await books.balance(f"owed:{USER}") == 0
    assert (await books.balance(f"promo:{USER}"), await books.balance(f"credits:{USER}")) == (3 * DOLLAR, 10 * DOLLAR)
    await books.check()


async def test_an_exit_is_held_shown_and_paid(books: Bookkeeping) -> None:
    await books.deposit(20, "one")
    await books.spend("answer", written=25_000_000)  # one dollar
    request_id = await books.ask_exit(15, "e", receiver=RECEIVER)
    await books.settling.round()
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 15 * DOLLAR
    await books.check()
    await books.until_paid_out()
    row = await books.until_ended(request_id)
    assert row.reason is None
    assert await books.settling.tokens_at(RECEIVER) == 15_000_000
    assert await books.balance(f"credits:{USER}") == 4 * DOLLAR
    await books.check()


async def test_a_bond_comes_back_to_credits(books: Bookkeeping) -> None:
    await books.deposit(10, "one")
    provider = await books.make_provider()
    await books.bond(4, provider, "b")
    assert (await books.balance(f"bond:{USER}"), await books.balance(f"credits:{USER}")) == (4 * DOLLAR, 6 * DOLLAR)
    await books.check()
    await books.unbond(4, provider, "u")
    assert (await books.balance(f"bond:{USER}"), await books.balance(f"credits:{USER}")) == (0, 10 * DOLLAR)
    await books.check()
    assert await books.balance(f"wallet:{OWNER}") == 0
