"""Lies about money on the chain, by accounts that have something to gain: nobody ends up with more than came in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.chain.money.settlement_contract import SETTLEMENT
from sparewatt.core.errors import InsufficientCredits, InvalidField, UnprocessableContent
from sparewatt.ledger.pockets import NOBODY
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.address_proof import address_proof_digest
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestState, NewChainRequest
from sparewatt.store.request_params import ChainRequestKind, ExitParams
from tests.integration.chain.bookkeeping import EXIT_S, RECEIVER, Bookkeeping, quick_plan
from tests.integration.chain.settling import USER, open_settling
from tests.integration.chain.stepped_chain import DEPTH, DOLLAR, DOLLAR_MICRO, STAKER

GATEWAY = "gateway"
OWN = SigningKey(bytes(31) + b"\x4f")
CREDITS = f"credits:{USER}"


@pytest.fixture
async def books(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Bookkeeping]:
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True, plan=quick_plan()) as settling:
        keeping = Bookkeeping(settling)
        await keeping.settling.post_snapshot()
        yield keeping


async def reserve(books: Bookkeeping, usd: int, *, have: int = 0) -> int:
    """As a gateway does it for requests."""
    ledger = books.settling.database.ledger
    return await ledger.take_slice(CREDITS, instance=GATEWAY, have=have * DOLLAR, wanted=usd * DOLLAR) // DOLLAR


async def pass_the_grace(books: Bookkeeping) -> None:
    await books.settling.execute("UPDATE credit_holds SET at = now() - interval '1 minute'")


# exits and what gateways have reserved


async def test_what_stays_reserved_during_an_exit_is_not_paid_out(books: Bookkeeping) -> None:
    """The lie: one long answer holds eight dollars until the chain has paid all twenty, and is paid with them then."""
    await books.deposit(20, "one")
    assert await reserve(books, 8) == 8
    await books.ask_exit_by_wallet(20)
    await books.settling.round()
    await pass_the_grace(books)
    await books.until_paid_out()
    assert await books.balance(f"wallet:{USER}") == 12 * DOLLAR
    await books.spend("answer", written=200_000_000)  # eight dollars
    await books.settling.database.ledger.drop_slices(GATEWAY)
    assert await books.balance(CREDITS) == 0
    await books.check()


async def test_what_was_reserved_and_not_spent_stays_in_credits(books: Bookkeeping) -> None:
    await books.deposit(20, "one")
    await reserve(books, 8)
    await books.ask_exit_by_wallet(20)
    await books.settling.round()
    await pass_the_grace(books)
    await books.until_paid_out()
    await books.settling.database.ledger.drop_slices(GATEWAY)
    assert (await books.balance(CREDITS), await books.balance(f"wallet:{USER}")) == (8 * DOLLAR, 12 * DOLLAR)
    await books.check()


async def test_a_slice_that_comes_back_is_for_the_exit_and_for_nobody_else(books: Bookkeeping) -> None:
    """The lie: the next request reserves again what a gateway has just returned."""
    await books.deposit(20, "one")
    await reserve(books, 8)
    await books.ask_exit_by_wallet(20)
    await books.settling.round()
    ledger = books.settling.database.ledger
    await ledger.return_slices([CREDITS], instance=GATEWAY)
    assert await ledger.list_leaving() == [USER]
    assert await reserve(books, 8) == 0
    with pytest.raises(InsufficientCredits):
        await books.order(1, "instead")
    await books.settling.round()
    assert await ledger.list_leaving() == []
    assert await ledger.reserved([CREDITS]) == 20 * DOLLAR
    await books.until_paid_out()
    assert await books.balance(f"wallet:{USER}") == 20 * DOLLAR
    await books.check()


async def test_what_an_exit_does_not_ask_for_stays_usable(books: Bookkeeping) -> None:
    await books.deposit(20, "one")
    await books.ask_exit_by_wallet(15)
    await books.settling.round()
    assert await reserve(books, 5) == 5
    assert await reserve(books, 1, have=5) == 0
    assert await books.settling.database.ledger.list_leaving() == []


# credits that were given


async def test_what_was_given_does_not_leave_with_an_exit(books: Bookkeeping) -> None:
    """The lie: free credits are tokens at the address when an exit pays less than it was asked for."""
    await books.deposit(10, "one")
    await books.give(5)
    new = await books.hold_bond(5, "0x" + "00" * 20, "refused")  # the tokens are minted, the bond is refused
    await books.settling.database.chain_requests.insert(new)
    await books.until_ended(new.id)
    assert await books.balance(f"wallet:{USER}") == 5 * DOLLAR
    request_id = await books.ask_exit(10, "e", receiver=RECEIVER)
    await books.settling.database.credit_holds.release(f"exit:{books.address}")
    await books.spend("answer", written=150_000_000)  # six dollars
    await books.until_paid_out()
    await books.until_ended(request_id)
    assert await books.settling.tokens_at(RECEIVER) == 4_000_000
    assert await books.balance(f"wallet:{USER}") == 5 * DOLLAR
    await books.check()
    await books.collect("back")
    assert (await books.balance(f"promo:{USER}"), await books.balance(CREDITS)) == (5 * DOLLAR, 0)
    await books.check()


async def test_a_deposit_is_paid_credits_while_given_ones_stand_in_a_bond(books: Bookkeeping) -> None:
    await books.give(5)
    provider = await books.make_provider()
    await books.bond(5, provider, "b")
    await books.deposit(7, "one")
    assert (await books.balance(f"promo:{USER}"), await books.balance(CREDITS)) == (0, 7 * DOLLAR)
    await books.unbond(5, provider, "u")
    assert (await books.balance(f"promo:{USER}"), await books.balance(CREDITS)) == (5 * DOLLAR, 7 * DOLLAR)
    await books.check()


# receivers, and two withdrawals at once


async def test_nothing_is_withdrawn_to_where_it_would_be_lost(books: Bookkeeping) -> None:
    await books.deposit(2, "one")
    lost = [NOBODY, *(books.settling.contracts[name].address.lower() for name in (SETTLEMENT, "escrow", "token"))]
    for receiver in lost:
        with pytest.raises(InvalidField, match="lost"):
            await books.service.withdraw(USER, DOLLAR, receiver=receiver, reference="w")
    assert await books.settling.database.ledger.reserved([CREDITS]) == 0


async def test_of_two_withdrawals_at_once_one_is_refused(books: Bookkeeping) -> None:
    """The lie: both pass the check before either holds, and the second replaces the first on the chain."""
    await books.deposit(20, "one")
    requests = [
        NewChainRequest(
            f"exit:{USER}:{name}", ChainRequestKind.EXIT, USER, books.address, micro, ExitParams("0x" + name * 20)
        )
        for name, micro in (("aa", 5 * DOLLAR_MICRO), ("bb", 15 * DOLLAR_MICRO))
    ]
    for new in requests:
        await books.settling.database.chain_requests.insert(new)
    refused = await books.until_ended(requests[1].id)
    assert refused.state is ChainRequestState.FAILED
    assert "under way" in str(refused.reason)
    await books.until_paid_out()
    await books.until_ended(requests[0].id)
    paid = [await books.settling.tokens_at("0x" + name * 20) for name in ("aa", "bb")]
    assert paid == [5_000_000, 0]
    assert await books.balance(CREDITS) == 15 * DOLLAR
    await books.check()


# addresses


async def test_an_address_with_deposits_of_its_own_is_not_taken_until_they_have_left(books: Bookkeeping) -> None:
    """The lie: deposit as nobody, become somebody, exit: the books pay out what they never had."""
    settling, settlement = books.settling, books.settling.contracts[SETTLEMENT]
    signature = OWN.sign(address_proof_digest(OWN.address, USER, chain_id=settling.chain_id))
    await settling.client.request("anvil_setBalance", OWN.address, hex(10**20))
    await settling.deposit_by_wallet(OWN.address, DOLLAR_MICRO, OWN)
    await books.check()
    with pytest.raises(UnprocessableContent, match="request_exit"):
        await books.service.set_own_address(USER, OWN.address, signature)
    await settling.send(settlement.encode_call("request_exit", DOLLAR_MICRO), OWN)
    await books.settling.pass_time(EXIT_S)
    await settling.send(settlement.encode_call("exit", OWN.address), OWN)
    await books.check()
    row = await books.service.set_own_address(USER, OWN.address, signature)
    assert row.chain_address == OWN.address
    await settling.deposit_by_wallet(OWN.address, 3 * DOLLAR_MICRO, OWN)
    await books.check()
    assert await books.balance(CREDITS) == 3 * DOLLAR


# exits whose payment the index has not seen


async def exit_by_anyone(books: Bookkeeping) -> None:
    settling = books.settling
    await settling.send(settling.contracts[SETTLEMENT].encode_call("exit", books.address), STAKER)


async def test_an_exit_stays_held_while_its_payment_is_not_indexed(books: Bookkeeping) -> None:
    """The lie: anyone may call `exit`, and a busy account reserves what looks free before the event is in the books."""
    await books.deposit(20, "one")
    await books.ask_exit_by_wallet(20)
    await books.settling.round()
    await books.settling.pass_time(EXIT_S)
    await pass_the_grace(books)
    await books.settling.follower.catch_up()
    await exit_by_anyone(books)
    await books.settling.worker.exits.step()  # the contract has nothing left for it, and the index does not know why
    assert await reserve(books, 20) == 0
    await books.until_paid_out()
    assert (await books.balance(CREDITS), await books.balance(f"wallet:{USER}")) == (0, 20 * DOLLAR)
    await books.check()


async def test_a_deposit_is_held_for_an_old_exit_before_anyone_can_reserve_it(books: Bookkeeping) -> None:
    """The lie: spend what an exit was asked for, deposit again, and call `exit` in the next block."""
    await books.deposit(20, "one")
    await books.ask_exit_by_wallet(20)
    settling = books.settling
    await settling.round()
    await settling.database.credit_holds.release(f"exit:{books.address}")
    await books.spend("answer", written=500_000_000)  # twenty dollars

    async def is_hopeless() -> bool:
        """Its end is decided, and not sent yet."""
        await books.settling.pass_time(10)
        await pass_the_grace(books)
        (seen,) = await settling.database.exits.list_seen()
        return await settling.database.chain.find(f"exit:{books.address}:{seen.ready_at}:0") is not None

    await settling.until(is_hopeless, "the exit is not ended")
    assert await settling.database.credit_holds.find(f"exit:{books.address}") is None
    await settling.deposit_by_wallet(books.address, 20 * DOLLAR_MICRO, STAKER)
    await exit_by_anyone(books)
    assert await reserved_between_events(books) == 0
    assert (await books.balance(CREDITS), await books.balance(f"wallet:{USER}")) == (0, 20 * DOLLAR)
    await books.check()


async def test_a_deposit_and_its_exit_that_nobody_watched_are_posted_with_nothing_in_between(
    books: Bookkeeping,
) -> None:
    """The lie: all of it happens while the chain's process is away, and a busy account waits for the deposit."""
    settling = books.settling
    await settling.deposit_by_wallet(books.address, 20 * DOLLAR_MICRO, STAKER)
    await settling.client.request("anvil_setBalance", books.address, hex(10**20))
    await books.ask_exit_by_wallet(20)
    await books.settling.pass_time(EXIT_S)
    await exit_by_anyone(books)
    assert await reserved_between_events(books) == 0
    assert (await books.balance(CREDITS), await books.balance(f"wallet:{USER}")) == (0, 20 * DOLLAR)
    await books.check()


async def reserved_between_events(books: Bookkeeping) -> int:
    """What a gateway got that tried between any two events of a catch-up."""
    settling, taken = books.settling, 0
    await settling.client.request("anvil_mine", hex(DEPTH))
    await settling.follower.catch_up()
    delivery = settling.worker.deliveries[0]

    async def handle(event: ChainEvent) -> None:
        nonlocal taken
        await delivery.handle(event)
        taken += await reserve(books, 20, have=taken)

    await replace(delivery, handle=handle).step()
    return taken
