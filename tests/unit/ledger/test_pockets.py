"""Final events as moves between pockets, credits and the outside: every entry balances, nothing is counted twice."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.pockets import (
    MICRO_MAX,
    MONEY_EVENTS,
    NOBODY,
    ChainParties,
    addresses_of,
    entry_of,
    exit_hold_id,
    is_too_large,
    keys_of,
)
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.credit_holds import CreditHoldRow
from sparewatt.store.pockets import AddressOwner, Pocket, PocketEntry, PocketKey, PocketRow, PocketView

ANN, BEN = AccountId("acc_ann"), AccountId("acc_ben")
HER, HIS, OWN, STRANGER = "0x" + "a1" * 20, "0x" + "b2" * 20, "0x" + "c3" * 20, "0x" + "d4" * 20
TREASURY, ESCROW, POOL = "0x" + "e5" * 20, "0x" + "f6" * 20, "0x" + "07" * 20
LEASE = "0x" + "11" * 32
PARTIES = ChainParties(frozenset({ESCROW, POOL}), TREASURY)
OWNERS = {HER: AddressOwner(ANN, is_held=True), HIS: AddressOwner(BEN, is_held=True), OWN: AddressOwner(ANN, False)}


def event(name: str, **args: Any) -> ChainEvent:
    contract, _, short = name.partition(".")
    return ChainEvent(7, 0, b"b" * 32, b"t" * 32, 0, contract, short, args)


class Books:
    """Pockets and balances that events are posted to, as the store does it."""

    def __init__(self) -> None:
        self.rows: dict[PocketKey, PocketRow] = {}
        self.balances: dict[str, int] = {}
        self.hold: CreditHoldRow | None = None
        self.free: dict[AccountId, int] = {}

    def post(self, name: str, **args: Any) -> PocketEntry:
        each = event(name, **args)
        given = {account: self.balances.get(f"given:{account}", 0) for account in (ANN, BEN)}
        free = {account: self.free.get(account, self.balances.get(f"credits:{account}", 0)) for account in (ANN, BEN)}
        pockets = [pocket.value for pocket in Pocket]
        on_chain = {
            account: sum(self.balances.get(f"{name}:{account}", 0) for name in pockets) for account in (ANN, BEN)
        }
        view = PocketView(dict(self.rows), OWNERS, given, on_chain, free, self.hold)
        entry = entry_of(each, "id", view, PARTIES, unix_s=1.0)
        self.rows |= {row.key: row for row in entry.changed}
        for transfer in entry.transfers:
            assert sum(nano for _, nano in transfer.lines) == 0
            assert transfer.nano > 0
            for account, nano in transfer.lines:
                self.balances[account] = self.balances.get(account, 0) + nano
        return entry

    def micro(self, account: str) -> int:
        return self.balances.get(account, 0) // 1_000


@pytest.fixture
def books() -> Books:
    return Books()


def test_tokens_from_the_faucet_are_in_the_wallet_of_whoever_gets_them(books: Books) -> None:
    books.post("token.Transfer", sender=NOBODY, receiver=HER, amount=9)
    assert (books.micro("wallet:acc_ann"), books.micro("network:deposits")) == (9, -9)
    assert books.rows[Pocket.WALLET, HER].micro == 9


def test_tokens_at_an_address_of_ones_own_are_outside(books: Books) -> None:
    entry = books.post("token.Transfer", sender=NOBODY, receiver=OWN, amount=9)
    assert (entry.transfers, entry.changed) == ([], [])


def test_a_deposit_leaves_the_wallet_and_becomes_credits(books: Books) -> None:
    books.post("token.Transfer", sender=NOBODY, receiver=HER, amount=9)
    books.post("token.Transfer", sender=HER, receiver=POOL, amount=9)
    entry = books.post("settlement.Deposited", account=HER, payer=HER, amount=9)
    assert entry.transfers[0].cause == "deposit:chain:id"
    assert (books.micro("wallet:acc_ann"), books.micro("credits:acc_ann")) == (0, 9)
    assert books.micro("network:deposits") == -9


def test_a_deposit_by_a_stranger_for_an_account_is_its_credits(books: Books) -> None:
    books.post("token.Transfer", sender=STRANGER, receiver=POOL, amount=5)
    books.post("settlement.Deposited", account=OWN, payer=STRANGER, amount=5)
    assert books.micro("credits:acc_ann") == 5


def test_a_deposit_for_nobody_of_ours_posts_nothing(books: Books) -> None:
    assert books.post("settlement.Deposited", account=STRANGER, payer=STRANGER, amount=5).transfers == []


def test_the_life_of_a_lease_moves_money_from_the_renter_to_the_provider(books: Books) -> None:
    books.post("token.Transfer", sender=NOBODY, receiver=HER, amount=100)
    books.post("token.Transfer", sender=HER, receiver=ESCROW, amount=100)
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HER, amount=100, from_owed=0, deposit=100)
    assert books.micro("escrow:acc_ann") == 100
    books.post("escrow.Settled", lease_id=LEASE, payee=HIS, amount=40, fee=2, deposit=60)
    assert (books.micro("escrow:acc_ann"), books.micro("owed:acc_ben")) == (60, 38)
    books.post("escrow.Refunded", lease_id=LEASE, payer=HER, amount=60)
    assert (books.micro("escrow:acc_ann"), books.micro("owed:acc_ann")) == (0, 60)
    books.post("token.Transfer", sender=ESCROW, receiver=HER, amount=60)
    books.post("escrow.Withdrawn", account=HER, receiver=HER, amount=60)
    assert (books.micro("owed:acc_ann"), books.micro("wallet:acc_ann")) == (0, 60)
    assert books.micro("network:deposits") == -98  # the treasury has two of the hundred


def test_a_deposit_draws_on_what_the_payer_is_owed(books: Books) -> None:
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HER, amount=50, from_owed=0, deposit=50)
    books.post("escrow.Refunded", lease_id=LEASE, payer=HER, amount=50)
    other = "0x" + "22" * 32
    books.post("escrow.DepositChanged", lease_id=other, payer=HER, amount=70, from_owed=50, deposit=70)
    assert (books.micro("owed:acc_ann"), books.micro("escrow:acc_ann")) == (0, 70)


def test_a_top_up_by_another_is_the_renters_deposit(books: Books) -> None:
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HER, amount=50, from_owed=0, deposit=50)
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HIS, amount=5, from_owed=0, deposit=55)
    assert (books.micro("escrow:acc_ann"), books.micro("escrow:acc_ben")) == (55, 0)


def test_compensation_goes_from_the_bond_to_the_renter(books: Books) -> None:
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HER, amount=50, from_owed=0, deposit=50)
    books.post("stake_registry.BondChanged", provider=HIS, free=30, locked=0, unbonding=0)
    books.post("stake_registry.BondChanged", provider=HIS, free=20, locked=10, unbonding=0)
    assert books.micro("bond:acc_ben") == 30
    books.post("stake_registry.BondChanged", provider=HIS, free=20, locked=0, unbonding=0)
    books.post("escrow.Compensated", lease_id=LEASE, amount=10, deposit=60)
    assert (books.micro("bond:acc_ben"), books.micro("escrow:acc_ann")) == (20, 60)


def test_a_bond_that_is_unbonded_is_owed_and_then_in_the_wallet(books: Books) -> None:
    books.post("stake_registry.BondChanged", provider=HIS, free=0, locked=0, unbonding=30)
    books.post("stake_registry.BondChanged", provider=HIS, free=0, locked=0, unbonding=0)
    books.post("stake_registry.Owed", account=HIS, amount=30)
    assert (books.micro("bond:acc_ben"), books.micro("owed:acc_ben")) == (0, 30)
    books.post("token.Transfer", sender=ESCROW, receiver=HIS, amount=30)
    books.post("stake_registry.Withdrawn", account=HIS, receiver=HIS, amount=30)
    assert (books.micro("owed:acc_ben"), books.micro("wallet:acc_ben")) == (0, 30)


def test_what_a_bond_loses_to_strangers_leaves_the_books(books: Books) -> None:
    books.post("stake_registry.BondChanged", provider=HIS, free=30, locked=0, unbonding=0)
    books.post("stake_registry.BondChanged", provider=HIS, free=20, locked=0, unbonding=0)
    books.post("stake_registry.Owed", account=STRANGER, amount=10)
    assert (books.micro("bond:acc_ben"), books.micro("network:deposits")) == (20, -20)


def test_of_strangers_only_the_pockets_are_kept(books: Books) -> None:
    entry = books.post("escrow.DepositChanged", lease_id=LEASE, payer=STRANGER, amount=50, from_owed=0, deposit=50)
    assert entry.transfers == []
    assert books.rows[Pocket.ESCROW, LEASE] == PocketRow(Pocket.ESCROW, LEASE, STRANGER, 50)
    assert books.post("escrow.Settled", lease_id=LEASE, payee=HIS, amount=20, fee=0, deposit=30).transfers
    assert books.micro("owed:acc_ben") == 20


def test_a_claim_empties_payouts(books: Books) -> None:
    books.balances["network:payouts"] = 5_000
    books.post("settlement.Claimed", pool=0, account=HIS, amount=5, earned=5, to_bond=False)
    assert books.micro("network:payouts") == 0
    books.balances["network:reward_payouts"] = 7_000
    books.post("settlement.Claimed", pool=1, account=HIS, amount=5, earned=5, to_bond=False)
    books.post("settlement.Claimed", pool=1, account=NOBODY, amount=2, earned=2, to_bond=False)
    assert (books.micro("network:reward_payouts"), books.micro("network:payouts")) == (0, 0)


def test_an_exit_takes_the_credits_and_ends_its_hold(books: Books) -> None:
    books.balances["credits:acc_ann"] = 20_000
    entry = books.post("settlement.Exited", account=HER, amount=15)
    assert entry.uses_hold == exit_hold_id(HER)
    assert books.micro("credits:acc_ann") == 5


def test_what_the_chain_pays_beyond_the_credits_is_the_networks_loss(books: Books) -> None:
    books.balances["credits:acc_ann"] = 20_000
    books.free[ANN] = 12_000  # a gateway has reserved the rest
    books.post("settlement.Exited", account=HER, amount=15)
    assert (books.micro("credits:acc_ann"), books.micro("network:shortfall")) == (8, -3)


# free credits


def hold(*, promo: int, paid: int) -> CreditHoldRow:
    return CreditHoldRow("order:1", "request", ANN, HER, Nano(promo * 1_000), Nano(paid * 1_000))


def test_held_credits_become_tokens_when_the_faucet_has_minted_them(books: Books) -> None:
    books.balances |= {"credits:acc_ann": 10_000, "promo:acc_ann": 5_000}
    books.hold = hold(promo=5, paid=4)
    entry = books.post("token.Transfer", sender=NOBODY, receiver=HER, amount=9)
    assert entry.uses_hold == "order:1"
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann")) == (0, 6)
    assert (books.micro("wallet:acc_ann"), books.micro("given:acc_ann")) == (9, 5)


def test_of_a_hold_only_what_was_minted_is_taken(books: Books) -> None:
    books.balances |= {"credits:acc_ann": 10_000, "promo:acc_ann": 5_000}
    books.hold = hold(promo=5, paid=4)
    books.post("token.Transfer", sender=NOBODY, receiver=HER, amount=6)
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann")) == (0, 9)


def test_free_credits_that_come_back_are_free_credits(books: Books) -> None:
    books.balances["given:acc_ann"] = 5_000
    books.post("settlement.Deposited", account=HER, payer=HER, amount=9)
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann")) == (5, 4)
    assert books.micro("given:acc_ann") == 0


def test_a_deposit_is_no_free_credits_while_these_stand_in_a_bond(books: Books) -> None:
    books.balances |= {"given:acc_ann": 5_000, "bond:acc_ann": 5_000}
    books.post("settlement.Deposited", account=HER, payer=HER, amount=9)
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann"), books.micro("given:acc_ann")) == (0, 9, 5)


def test_free_credits_come_back_last_and_all_of_them(books: Books) -> None:
    books.balances |= {"given:acc_ann": 5_000, "bond:acc_ann": 3_000}  # of five and two, four have left the bond
    books.post("settlement.Deposited", account=HER, payer=HER, amount=4)
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann"), books.micro("given:acc_ann")) == (2, 2, 3)
    books.balances["bond:acc_ann"] = 0
    books.post("settlement.Deposited", account=HER, payer=HER, amount=3)
    assert (books.micro("promo:acc_ann"), books.micro("credits:acc_ann"), books.micro("given:acc_ann")) == (5, 2, 0)


def test_free_credits_that_paid_for_a_lease_are_used_up(books: Books) -> None:
    books.balances |= {"given:acc_ann": 5_000, "network:grants": -5_000}
    books.post("escrow.DepositChanged", lease_id=LEASE, payer=HER, amount=9, from_owed=0, deposit=9)
    books.post("escrow.Settled", lease_id=LEASE, payee=HIS, amount=3, fee=0, deposit=6)
    assert (books.micro("given:acc_ann"), books.micro("network:grants")) == (2, -2)


# bounds


def test_an_event_that_no_book_can_hold_is_known_as_such() -> None:
    assert is_too_large(event("token.Transfer", sender=NOBODY, receiver=HER, amount=MICRO_MAX + 1))
    assert not is_too_large(event("token.Transfer", sender=NOBODY, receiver=HER, amount=MICRO_MAX))


def test_an_event_names_its_pockets_and_addresses() -> None:
    settled = event("escrow.Settled", lease_id=LEASE, payee=HIS, amount=3, fee=1, deposit=6)
    assert keys_of(settled, PARTIES) == [
        (Pocket.ESCROW, LEASE),
        (Pocket.OWED, f"escrow:{HIS}"),
        (Pocket.OWED, f"escrow:{TREASURY}"),
    ]
    assert addresses_of(settled, PARTIES) == [HIS, TREASURY]


def test_every_event_is_one_that_the_contracts_have() -> None:
    from sparewatt.chain.contracts import shipped_artifacts

    known = {
        f"{name}.{entry.name}"
        for name, artifact in shipped_artifacts().items()
        for entry in artifact.abi
        if entry.type == "event"
    }
    assert set(MONEY_EVENTS) <= known
