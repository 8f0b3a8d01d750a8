"""The books agree with the chain to the unit, whatever happens: leases, bonds, exits, kills, reorgs, a new index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparewatt.chain.money.exits import ExitWorker
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ContractsOutdated, InsufficientCredits, InvalidField, UnprocessableContent
from sparewatt.core.money import Nano
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.address_proof import address_proof_digest
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.bookkeeping import EXIT_S, RECEIVER, Bookkeeping, quick_plan
from tests.integration.chain.money_walk import walk_with_mishaps
from tests.integration.chain.settling import OWNER, USER, open_settling
from tests.integration.chain.stepped_chain import DOLLAR

T = TypeVar("T")
OWN = SigningKey(bytes(31) + b"\x79")


@pytest.fixture
async def books(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Bookkeeping]:
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True, plan=quick_plan()) as settling:
        keeping = Bookkeeping(settling)
        await keeping.settling.post_snapshot()
        yield keeping


async def test_a_lease_that_is_cancelled_gives_its_money_back(books: Bookkeeping) -> None:
    await books.deposit(10, "one")
    await books.give(3)
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
    await check_that_a_quiet_chain_gets_its_block(books.settling.worker.exits)
    await books.until_paid_out()
    row = await books.until_ended(request_id)
    assert row.reason is None
    assert await books.settling.tokens_at(RECEIVER) == 15_000_000
    assert await books.balance(f"credits:{USER}") == 4 * DOLLAR
    await books.check()


class LateClock(SystemClock):
    unix_s = staticmethod(lambda: time.time() + EXIT_S + 10)


async def check_that_a_quiet_chain_gets_its_block(exits: ExitWorker) -> None:
    """Without blocks a chain's time stands still, and the exit would never be paid."""
    await exits.step()
    assert not exits.needs_block
    exits.clock = LateClock()
    await exits.step()
    assert exits.needs_block


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


# holds


async def test_an_exit_by_wallet_is_held_at_first_sight_and_released_when_the_chain_takes_it_back(
    books: Bookkeeping,
) -> None:
    await books.deposit(20, "one")
    await books.ask_exit_by_wallet(15)
    settling = books.settling
    await settling.follower.catch_up()
    await settling.worker.exits.step()
    assert await settling.database.ledger.reserved([f"credits:{USER}"]) == 15 * DOLLAR
    await books.settling.execute("UPDATE credit_holds SET at = now() - interval '1 minute'")
    await settling.client.request("anvil_rollback", 1)
    await settling.follower.catch_up()
    await settling.worker.exits.step()
    assert await settling.database.ledger.reserved([f"credits:{USER}"]) == 0


async def test_while_the_index_is_read_anew_holds_stay(books: Bookkeeping) -> None:
    await books.deposit(20, "one")
    await books.ask_exit(15, "e")
    await books.settling.round()
    await books.settling.execute("UPDATE credit_holds SET at = now() - interval '1 minute'")
    await books.settling.follower.begin(rebuild=True)
    await books.settling.execute("UPDATE chain_index SET head_number = block_number + 9")
    await books.settling.worker.exits.step()
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 15 * DOLLAR


async def test_what_was_spent_after_all_is_not_paid_out(books: Bookkeeping) -> None:
    """The lie: reserve at a gateway, ask for an exit of everything, spend the reserve."""
    await books.deposit(20, "one")
    ledger = books.settling.database.ledger
    await ledger.take_slice(f"credits:{USER}", instance="gateway", have=0, wanted=8 * DOLLAR)
    await books.ask_exit_by_wallet(20)
    await books.settling.round()
    assert await ledger.reserved([f"credits:{USER}"]) == 20 * DOLLAR
    await books.spend("answer", written=200_000_000)  # eight dollars
    await ledger.drop_slices("gateway")
    await books.until_paid_out()
    assert await books.balance(f"credits:{USER}") == 0
    assert await books.balance(f"wallet:{USER}") == 12 * DOLLAR
    await books.check()


async def test_an_exit_of_which_nothing_is_left_ends_and_leaves_later_deposits_alone(books: Bookkeeping) -> None:
    """The lie: a request that stays ready, so that the next deposit is spent here and taken out there."""
    await books.deposit(20, "one")
    ledger = books.settling.database.ledger
    await ledger.take_slice(f"credits:{USER}", instance="gateway", have=0, wanted=20 * DOLLAR)
    await books.ask_exit_by_wallet(20)
    await books.spend("answer", written=500_000_000)  # twenty dollars
    await ledger.drop_slices("gateway")
    await books.until_paid_out()
    assert (await books.balance(f"credits:{USER}"), await books.balance(f"wallet:{USER}")) == (0, 0)
    await books.deposit(10, "two")
    for _ in range(4):
        await books.settling.round()
    assert (await books.balance(f"credits:{USER}"), await books.balance(f"wallet:{USER}")) == (10 * DOLLAR, 0)
    assert await ledger.reserved([f"credits:{USER}"]) == 0
    await books.check()


async def test_a_request_that_fails_frees_its_credits(books: Bookkeeping) -> None:
    await books.deposit(10, "one")
    new = await books.hold_bond(4, "0x" + "00" * 20, "bad")  # no contract takes a bond for nobody
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 4 * DOLLAR
    await books.settling.database.chain_requests.insert(new)
    assert (await books.until_ended(new.id)).reason is not None
    for _ in range(4):
        await books.settling.round()
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 0
    await books.check()
    total = await books.balance(f"credits:{USER}") + await books.balance(f"wallet:{USER}")
    assert total == 10 * DOLLAR  # the faucet may have minted already: then it is in the wallet


async def test_credits_that_are_held_cannot_be_ordered_twice(books: Bookkeeping) -> None:
    await books.deposit(6, "one")
    await books.hold_bond(4, "0x" + "11" * 20, "first")
    with pytest.raises(InsufficientCredits):
        await books.order(5, "second")


# kills and reorgs


async def test_a_process_that_is_killed_between_any_two_steps_loses_and_invents_nothing(
    anvil: Anvil, dsn: str, tmp_path: Path
) -> None:
    await walk_with_mishaps(anvil, dsn, tmp_path / "chain", seed=3, kills=1)


# as gateways ask for it


async def while_it_works(books: Bookkeeping, asking: Coroutine[Any, Any, T]) -> T:
    """The chain's process works while a gateway waits."""
    task = asyncio.create_task(asking)

    async def is_done() -> bool:
        await asyncio.sleep(0.02)
        return task.done()

    await books.settling.until(is_done, "there is no answer")
    return task.result()


async def test_a_gateway_withdraws_collects_and_audits(books: Bookkeeping) -> None:
    await books.deposit(20, "one")
    service = books.service
    row = await while_it_works(books, service.withdraw(USER, Nano(4 * DOLLAR), receiver=RECEIVER, reference="w"))
    assert row.result["micro"] == 4_000_000
    holdings = await service.holdings(USER)
    assert (holdings.held_for_exits, holdings.exit_ready_at) == (4 * DOLLAR, row.result["ready_at"])
    with pytest.raises(UnprocessableContent, match="under way"):
        await service.withdraw(USER, DOLLAR, receiver=None, reference="another")
    report = await while_it_works(books, service.audit())
    assert report is not None
    assert report.in_order
    await books.until_paid_out()
    await books.until_ended(row.id)
    assert await books.settling.tokens_at(RECEIVER) == 4_000_000
    order_id = await books.order(5, "o")
    assert (await service.holdings(USER)).escrow == 5_000_000
    await books.cancel(order_id, "c")
    assert (await service.holdings(USER)).owed == 5_000_000
    await while_it_works(books, service.collect(USER, reference="back"))
    assert await books.balance(f"credits:{USER}") == 16 * DOLLAR


async def test_without_a_receiver_an_account_with_its_own_address_is_paid_there(books: Bookkeeping) -> None:
    """What came by the held address leaves by its key, and would stay at an address that the account has given up."""
    await books.deposit(5, "one")
    proof = OWN.sign(address_proof_digest(OWN.address, USER, chain_id=books.settling.chain_id))
    await books.service.set_own_address(USER, OWN.address, proof)
    asking = books.service.withdraw(USER, Nano(2 * DOLLAR), receiver=None, reference="w")
    row = await while_it_works(books, asking)
    await books.until_paid_out()
    await books.until_ended(row.id)
    assert await books.settling.tokens_at(OWN.address) == 2_000_000
    await books.check()


async def test_credits_that_never_were_on_the_chain_cannot_leave_by_it_and_stay_free(books: Bookkeeping) -> None:
    await books.pay_elsewhere(5)
    with pytest.raises(UnprocessableContent, match="deposited on this chain"):
        await while_it_works(books, books.service.withdraw(USER, Nano(DOLLAR), receiver=None, reference="w"))
    assert (await books.service.holdings(USER)).held_for_exits == 0
    assert "refused" not in await books.settling.database.chain.count_outbox()


async def test_a_withdrawal_that_contracts_of_another_release_prevent_holds_nothing(books: Bookkeeping) -> None:
    """Nobody would give it back: the process that does is the one that cannot work."""
    await books.deposit(2, "one")
    await books.settling.database.chain.set_problem("The contracts are of another release.")
    with pytest.raises(ContractsOutdated):
        await books.service.withdraw(USER, Nano(DOLLAR), receiver=None, reference="w")
    assert (await books.service.holdings(USER)).held_for_exits == 0


async def test_more_than_there_is_or_than_was_deposited_cannot_be_withdrawn(books: Bookkeeping) -> None:
    await books.deposit(2, "one")
    await books.give(30)
    with pytest.raises(InsufficientCredits, match="Free ones stay"):
        await books.service.withdraw(USER, Nano(3 * DOLLAR), receiver=None, reference="w")
    with pytest.raises(InvalidField, match="six decimals"):
        await books.service.withdraw(USER, Nano(1), receiver=None, reference="w")
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 0
