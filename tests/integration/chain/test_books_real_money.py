"""Money that is worth something: a token of others, no faucet, roots that wait, credits that leave by payout roots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparewatt.chain.contracts import get_current_record, shipped_contracts
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.root_poster import RootAction, next_root_action
from sparewatt.chain.money.settlement_contract import SETTLEMENT, TOKEN
from sparewatt.core.errors import InvalidField, UnprocessableContent
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.address_proof import address_proof_digest
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.bookkeeping import Bookkeeping, quick_plan
from tests.integration.chain.money_walk import rebuild_and_compare
from tests.integration.chain.setting import GUARDIAN_KEY
from tests.integration.chain.settling import OWNER, USER, open_settling
from tests.integration.chain.stepped_chain import DOLLAR, DOLLAR_MICRO

WALLET = SigningKey(bytes(31) + b"\x77")


@pytest.fixture
async def books(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Bookkeeping]:
    """As on a public network. The token is others' too; its faucet stands for however they come by theirs."""
    async with open_settling(
        anvil.url, dsn, tmp_path / "chain", test_money=False, plan=quick_plan(), foreign_token=True
    ) as settling:
        keeping = Bookkeeping(settling)
        await keeping.settling.post_snapshot()
        await settling.deposit_by_wallet(keeping.address, 20 * DOLLAR_MICRO, WALLET)
        for _ in range(4):
            await settling.round()
        yield keeping


async def test_credits_become_a_lease_by_way_of_a_payout_root(books: Bookkeeping) -> None:
    request_id = await books.ask_order(5, "first")
    assert await books.settling.database.ledger.reserved([f"credits:{USER}"]) == 5 * DOLLAR
    for _ in range(3):
        await books.settling.round()
    assert await books.balance(f"credits:{USER}") == 15 * DOLLAR  # in a batch, under delay
    assert await books.balance("network:payouts") == 5 * DOLLAR
    await books.until_ended(request_id, pass_s=10)
    assert await books.balance(f"escrow:{USER}") == 5 * DOLLAR
    assert await books.balance("network:payouts") == 0
    await books.check()


async def test_free_credits_pay_for_no_lease(books: Bookkeeping) -> None:
    await books.give(30)
    with pytest.raises(Exception, match="do not cover"):
        await books.ask_order(21, "too much")


async def test_what_became_tokens_cannot_exit_a_second_time(books: Bookkeeping) -> None:
    """The lie: credits into a lease, and an exit of the deposit they came from."""
    request_id = await books.ask_order(15, "first")
    await books.until_ended(request_id, pass_s=10)
    await books.ask_exit_by_wallet(20)
    await books.until_paid_out()
    assert await books.balance(f"credits:{USER}") == 0
    assert await books.balance(f"wallet:{USER}") == 5 * DOLLAR
    await books.check()


async def test_a_struck_root_pays_nothing_until_a_person_has_decided(books: Bookkeeping) -> None:
    settling, payouts = books.settling, books.settling.database.payouts
    await books.spend("answer", written=25_000_000)
    batch = await settling.payouts.make_batch()
    assert batch is not None

    async def is_posted() -> bool:
        found = await payouts.find_batch(batch.epoch)
        return found is not None and found.posted_unix_s is not None

    await settling.until(is_posted, "the root is not posted")
    assert (await payouts.root_status()).delayed == batch.epoch
    assert await payouts.list_claimable(OWNER, limit=9) == []
    await settling.send(settling.contracts[SETTLEMENT].encode_call("strike_root", 0, batch.epoch), GUARDIAN_KEY)

    async def is_struck() -> bool:
        return (await payouts.root_status()).struck == batch.epoch

    await settling.until(is_struck, "nobody saw the strike")
    for _ in range(4):
        await settling.round()
    assert (await settling.pool()).epoch == batch.epoch - 1
    found = await payouts.find_batch(batch.epoch)
    assert found is not None
    assert next_root_action(found, await settling.pool(), test_money=False) is RootAction.STRUCK

    assert await payouts.undo_struck(batch.epoch, unix_s=batch.unix_s + 1) == 1
    assert await books.balance("network:payouts") == 0
    again = await settling.payouts.make_batch()
    assert again is not None
    assert (again.epoch, again.root) == (batch.epoch, batch.root)
    await settling.until(is_posted, "the new root is not posted")
    await books.check()


async def test_a_struck_root_may_be_posted_again_as_it_is(books: Bookkeeping) -> None:
    settling, payouts = books.settling, books.settling.database.payouts
    await books.spend("answer", written=25_000_000)
    batch = await settling.payouts.make_batch()
    assert batch is not None

    async def is_posted() -> bool:
        return (await payouts.root_status()).delayed == batch.epoch

    async def is_struck() -> bool:
        return (await payouts.root_status()).struck == batch.epoch

    await settling.until(is_posted, "the root is not posted")
    await settling.send(settling.contracts[SETTLEMENT].encode_call("strike_root", 0, batch.epoch), GUARDIAN_KEY)
    await settling.until(is_struck, "nobody saw the strike")
    assert await payouts.post_struck_again(batch.epoch)
    await settling.until(is_posted, "the root is not posted again")
    assert (await settling.pool()).epoch == batch.epoch


async def test_a_stopped_pool_takes_no_roots_and_says_so(books: Bookkeeping) -> None:
    settling = books.settling
    await settling.send(settling.contracts[SETTLEMENT].encode_call("stop", 0), GUARDIAN_KEY)
    await books.spend("answer", written=25_000_000)
    assert await settling.payouts.make_batch() is not None
    for _ in range(5):
        await settling.round()
    assert (await settling.pool()).epoch == 0
    assert (await settling.database.payouts.root_status()).is_stopped


# an address of one's own


async def prove(books: Bookkeeping, key: SigningKey) -> bytes:
    return key.sign(address_proof_digest(key.address, USER, chain_id=books.settling.chain_id))


async def test_an_account_takes_its_own_address_and_deposits_by_it(books: Bookkeeping) -> None:
    settling, own = books.settling, WALLET.address
    row = await books.service.set_own_address(USER, own, await prove(books, WALLET))
    assert row.chain_address == own
    assert not (await books.service.holdings(USER)).is_held
    await settling.deposit_by_wallet(own, 2 * DOLLAR_MICRO, WALLET)
    for _ in range(4):
        await settling.round()
    assert await books.balance(f"credits:{USER}") == 22 * DOLLAR
    await books.check()
    request_id = await books.ask_exit(12, "old", receiver=own)  # what came by the held address leaves by it
    before = await settling.tokens_at(own)
    await books.until_paid_out()
    await books.until_ended(request_id)
    assert await settling.tokens_at(own) == before + 12 * DOLLAR_MICRO
    await books.check()


async def test_an_address_without_its_signature_is_refused_with_the_text_to_sign(books: Bookkeeping) -> None:
    other = SigningKey(bytes(31) + b"\x78")
    with pytest.raises(InvalidField, match="Sign this text"):
        await books.service.set_own_address(USER, WALLET.address, await prove(books, other))
    assert (await books.service.holdings(USER)).is_held


async def test_an_address_of_another_account_is_refused(books: Bookkeeping) -> None:
    await books.service.set_own_address(USER, WALLET.address, await prove(books, WALLET))
    with pytest.raises(InvalidField, match="of its own already"):
        await books.service.set_own_address(USER, WALLET.address, await prove(books, WALLET))


async def test_while_money_stands_at_the_held_address_it_stays(books: Bookkeeping) -> None:
    settling = books.settling
    await settling.send(settling.contracts["token"].encode_call("faucet", books.address, 5), WALLET)
    for _ in range(4):
        await settling.round()
    with pytest.raises(UnprocessableContent, match="collect"):
        await books.service.set_own_address(USER, WALLET.address, await prove(books, WALLET))


# a token that is not ours


async def send_tokens(books: Bookkeeping, receiver: str, micro: int) -> None:
    token = books.settling.contracts[TOKEN]
    await books.settling.send(token.encode_call("faucet", WALLET.address, micro), WALLET)
    await books.settling.send(token.encode_call("transfer", receiver, micro), WALLET)


async def transfers_indexed(books: Bookkeeping) -> list[tuple[str, int]]:
    found = await books.settling.database.chain.events_after(
        (-1, 0), up_to_block=10**9, names=["token.Transfer"], limit=1_000
    )
    return [(event.args["receiver"], event.args["amount"]) for event in found]


async def test_transfers_of_held_addresses_are_in_the_books_and_those_of_strangers_are_not_even_read(
    books: Bookkeeping,
) -> None:
    await send_tokens(books, books.address, 3 * DOLLAR_MICRO)
    await send_tokens(books, "0x" + "99" * 20, 7)
    for _ in range(4):
        await books.settling.round()
    assert await transfers_indexed(books) == [(books.address, 3 * DOLLAR_MICRO)]
    assert await books.balance(f"wallet:{USER}") == 3 * DOLLAR
    await books.check()
    await books.collect("in")
    assert (await books.balance(f"wallet:{USER}"), await books.balance(f"credits:{USER}")) == (0, 23 * DOLLAR)
    await books.check()
    await rebuild_and_compare(books)


async def test_the_index_of_a_release_that_did_not_follow_it_is_read_anew(books: Bookkeeping, tmp_path: Path) -> None:
    """Also for the books: what they have already is not posted twice, what they lack is."""
    settling = books.settling
    contracts = shipped_contracts(get_current_record(tmp_path / "chain"))
    old = ChainFollower(settling.client, settling.database.chain, contracts, start_block=1)
    await old.begin()
    await send_tokens(books, books.address, 3 * DOLLAR_MICRO)
    await old.catch_up()
    assert await transfers_indexed(books) == []
    await settling.execute("UPDATE chain_readers SET name = 'books' WHERE name = 'books_and_transfers'")
    await settling.follower.begin()
    await books.check()
    assert await books.balance(f"wallet:{USER}") == 3 * DOLLAR
    assert await books.balance(f"credits:{USER}") == 20 * DOLLAR


# another chain


async def test_on_another_chain_what_stood_in_contracts_is_credits_again(books: Bookkeeping) -> None:
    request_id = await books.ask_order(5, "first")
    await books.until_ended(request_id, pass_s=10)
    assert await books.balance(f"escrow:{USER}") == 5 * DOLLAR
    await books.settling.database.chain.leave_chain()
    assert (await books.balance(f"escrow:{USER}"), await books.balance(f"credits:{USER}")) == (0, 20 * DOLLAR)
    assert (await books.settling.database.ledger.audit()).is_clean


# the audit


@pytest.mark.parametrize("pocket", ["wallet", "owed", "bond"])
async def test_a_difference_names_the_account_and_the_pocket(books: Bookkeeping, pocket: str) -> None:
    id_ = f"escrow:{books.address}" if pocket == "owed" else books.address
    await books.settling.execute("INSERT INTO chain_pockets VALUES ($1, $2, $3, 7)", pocket, id_, books.address)
    report = await books.audit()
    assert not report.in_order
    found = {(each.account, each.pocket, each.id, each.books_micro, each.chain_micro) for each in report.differences}
    assert (USER, pocket, id_, 7, 0) in found


async def test_the_pool_and_what_the_books_owe_are_compared(books: Bookkeeping) -> None:
    await books.check()
    await books.settling.execute("DELETE FROM chain_events WHERE event = 'Deposited'")
    index = await books.settling.database.chain.index()
    assert index is not None
    report = await books.settling.worker.auditor.compare(final_block=index.block_number - 1)
    assert [(each.pocket, each.books_micro) for each in report.differences] == [("pool", 0)]
    await books.settling.execute("INSERT INTO balances VALUES ('credits:acc_owner', 30000000000)")
    report = await books.settling.worker.auditor.compare(final_block=index.block_number - 1)
    assert report.uncovered_nano == 30 * DOLLAR
