"""The settlement contract: roots within the funds, each amount claimed once, an exit for every depositor."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.protocol.signing import SigningKey
from tests.evm.machine import refused, wait
from tests.evm.network import BOOK_S, EXIT_S, GUARDIAN, OPERATOR, ROOT_DELAY_S, Network, key

CREDITS, REWARDS = 0, 1
PEOPLE = sorted((key(n) for n in range(21, 26)), key=lambda k: k.address)
ALICE, BOB, CAROL = PEOPLE[:3]


class Settlement:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.contract = network.settlement
        for person in PEOPLE:
            network.fund(person.address, 1000)

    def post(
        self, amounts: dict[SigningKey, tuple[int, int]], *, pool: int = CREDITS, promised: int | None = None
    ) -> int:
        """Post a root and wait until it is ripe."""
        epoch = self.post_now(amounts, pool=pool, promised=promised)
        wait(ROOT_DELAY_S)
        return epoch

    def post_now(
        self, amounts: dict[SigningKey, tuple[int, int]], *, pool: int = CREDITS, promised: int | None = None
    ) -> int:
        self.entries = [PayoutEntry(k.address, *amounts[k]) for k in PEOPLE if k in amounts]
        self.tree = settlement_tree(self.entries)
        epoch = int(self.contract.pools(pool)[3]) + 1
        total = sum(entry.earned for entry in self.entries) if promised is None else promised
        self.contract.post_root(pool, epoch, self.tree.root, len(self.entries), total, who=OPERATOR)
        return epoch

    def proof(self, who: SigningKey) -> tuple[Any, ...]:
        index = next(i for i, entry in enumerate(self.entries) if entry.account == who.address)
        return self.entries[index].values(), index, self.tree.path(index)


@pytest.fixture
def settlement(network: Network) -> Settlement:
    return Settlement(network)


def test_an_account_claims_what_it_earned_once(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({ALICE: (0, 100), BOB: (70, 0), CAROL: (30, 0)})
    settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    assert settlement.network.token.balanceOf(BOB.address) == 1070
    with refused("NOTHING_TO_CLAIM"):
        settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))


def test_a_later_root_pays_the_difference(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    first = settlement.post({BOB: (40, 0)})
    settlement.contract.claim(CREDITS, first, *settlement.proof(BOB))
    second = settlement.post({BOB: (60, 0)})
    settlement.contract.claim(CREDITS, second, *settlement.proof(BOB))
    assert settlement.network.token.balanceOf(BOB.address) == 1060


def test_a_root_that_leaves_an_account_out_does_not_take_its_money(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    first = settlement.post({CAROL: (10, 0)})
    carol = settlement.proof(CAROL)
    settlement.post({BOB: (60, 0)}, promised=70)
    settlement.contract.claim(CREDITS, first, *carol)
    assert settlement.network.token.balanceOf(CAROL.address) == 1010


def test_a_root_promises_no_more_than_the_pool_holds_and_never_less_than_before(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    with refused("NOT_FUNDED"):
        settlement.post({BOB: (101, 0)})
    settlement.post({BOB: (50, 0)})
    with refused("LOWERS_AMOUNTS"):
        settlement.post({BOB: (49, 0)})


def test_leaves_that_exceed_the_promised_total_are_not_paid(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({BOB: (60, 0), CAROL: (60, 0)}, promised=100)
    settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    with refused("ROOT_EXCEEDS_ITS_TOTAL"):
        settlement.contract.claim(CREDITS, epoch, *settlement.proof(CAROL))


def test_pools_do_not_mix(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    with refused("NOT_FUNDED"):
        settlement.post({BOB: (1, 0)}, pool=REWARDS)
    settlement.contract.fund(REWARDS, 5, who=ALICE.address)
    epoch = settlement.post({BOB: (5, 0)}, pool=REWARDS)
    with refused("NOT_IN_ROOT"):
        settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    settlement.contract.claim(REWARDS, epoch, *settlement.proof(BOB))
    assert settlement.network.token.balanceOf(BOB.address) == 1005


def test_only_the_operator_posts_and_only_well_formed_roots(settlement: Settlement) -> None:
    contract = settlement.contract
    with refused("NOT_OPERATOR"):
        contract.post_root(CREDITS, 1, b"\1" * 32, 1, 0, who=ALICE.address)
    with refused("UNKNOWN_POOL"):
        contract.post_root(2, 1, b"\1" * 32, 1, 0, who=OPERATOR)
    with refused("WRONG_EPOCH"):
        contract.post_root(CREDITS, 2, b"\1" * 32, 1, 0, who=OPERATOR)
    for root, count in ((bytes(32), 1), (b"\1" * 32, 0), (b"\1" * 32, 2**20 + 1)):
        with refused("BAD_ROOT"):
            contract.post_root(CREDITS, 1, root, count, 0, who=OPERATOR)
    with refused("UNKNOWN_POOL"):
        contract.fund(2, 1, who=ALICE.address)


@pytest.mark.parametrize("bend", ["amount", "index", "path", "short"])
def test_a_forged_proof_is_refused(settlement: Settlement, bend: str) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({ALICE: (1, 0), BOB: (2, 0), CAROL: (3, 0)})
    (account, earned, spent), index, path = settlement.proof(BOB)
    forged = {
        "amount": ((account, earned + 1, spent), index, path),
        "index": ((account, earned, spent), index ^ 1, path),
        "path": ((account, earned, spent), index, [path[0], bytes(32)]),
        "short": ((account, earned, spent), index, path[:1]),
    }[bend]
    with refused("NOT_IN_ROOT"):
        settlement.contract.claim(CREDITS, epoch, *forged)


def test_a_depositor_leaves_without_the_operator(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    settlement.contract.request_exit(100, who=ALICE.address)
    with refused("TOO_EARLY"):
        settlement.contract.exit(ALICE.address)
    wait(EXIT_S)
    settlement.contract.exit(ALICE.address)
    assert settlement.network.token.balanceOf(ALICE.address) == 1000
    with refused("NO_EXIT_REQUESTED"):
        settlement.contract.exit(ALICE.address)


def test_an_exit_covers_no_later_deposit(settlement: Settlement) -> None:
    """Else an account could request once, and later spend and exit within the same minute."""
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    settlement.contract.request_exit(2**256 - 1, who=ALICE.address)
    settlement.contract.deposit(ALICE.address, 50, who=ALICE.address)
    wait(EXIT_S)
    settlement.contract.exit(ALICE.address)
    assert settlement.contract.unspent(ALICE.address) == 50


def test_a_request_whose_money_was_spent_does_not_wait_for_the_next_deposit(settlement: Settlement) -> None:
    """It is ready for ever: a later deposit could be spent at the gateway and taken out in the same minute."""
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    contract.request_exit(100, who=ALICE.address)
    epoch = settlement.post({ALICE: (0, 100), BOB: (100, 0)})
    contract.record_spent(epoch, *settlement.proof(ALICE))
    with refused("TOO_EARLY"):
        contract.exit(ALICE.address)
    wait(EXIT_S)
    contract.exit(ALICE.address, who=OPERATOR)
    assert contract.exit_of(ALICE.address) == (0, 0)
    contract.deposit(ALICE.address, 50, who=ALICE.address)
    with refused("NO_EXIT_REQUESTED"):
        contract.exit(ALICE.address)
    assert contract.unspent(ALICE.address) == 50


def test_what_was_spent_or_promised_does_not_leave(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({ALICE: (0, 80), BOB: (60, 0)})
    settlement.contract.request_exit(100, who=ALICE.address)
    settlement.contract.record_spent(epoch, *settlement.proof(ALICE))
    with refused("NOTHING_NEW"):
        settlement.contract.record_spent(epoch, *settlement.proof(ALICE))
    wait(EXIT_S)
    settlement.contract.exit(ALICE.address)
    assert settlement.network.token.balanceOf(ALICE.address) == 920
    settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    assert settlement.contract.solvent()


def test_promised_money_stays_even_if_nobody_recorded_the_spending(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({BOB: (100, 0)})
    settlement.contract.request_exit(100, who=ALICE.address)
    wait(EXIT_S)
    with refused("NOTHING_FREE"):
        settlement.contract.exit(ALICE.address)
    settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))


def test_earnings_become_a_bond_if_their_owner_says_so(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post({BOB: (70, 0)})
    with refused("NOT_ACCOUNT"):
        settlement.contract.claim_to_bond(CREDITS, epoch, *settlement.proof(BOB), who=ALICE.address)
    settlement.contract.claim_to_bond(CREDITS, epoch, *settlement.proof(BOB), who=BOB.address)
    assert settlement.network.stakes.free_bond(BOB.address) == 70
    assert settlement.contract.held() == 30


def test_zero_amounts_and_the_zero_address_are_refused(settlement: Settlement) -> None:
    with refused("ZERO_AMOUNT"):
        settlement.contract.deposit(ALICE.address, 0, who=ALICE.address)
    with refused("NOTHING_UNSPENT"):
        settlement.contract.request_exit(1, who=ALICE.address)
    with refused("ZERO_ADDRESS"):
        settlement.contract.deposit("0x" + "0" * 40, 1, who=ALICE.address)


def test_the_operator_hands_over_in_two_steps(settlement: Settlement) -> None:
    with refused("NOT_OPERATOR"):
        settlement.contract.propose_operator(ALICE.address, who=ALICE.address)
    settlement.contract.propose_operator(ALICE.address, who=OPERATOR)
    with refused("NOT_OPERATOR"):
        settlement.contract.accept_operator(who=BOB.address)
    settlement.contract.accept_operator(who=ALICE.address)
    with refused("NOT_OPERATOR"):
        settlement.post({BOB: (0, 0)})


# The delay of roots, and the guardian


def test_a_root_pays_and_records_once_it_is_ripe(settlement: Settlement) -> None:
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    epoch = settlement.post_now({ALICE: (0, 30), BOB: (70, 0)})
    for seconds in (0, ROOT_DELAY_S - 1):
        wait(seconds)
        with refused("ROOT_NOT_RIPE"):
            settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
        with refused("ROOT_NOT_RIPE"):
            settlement.contract.claim_to_bond(CREDITS, epoch, *settlement.proof(BOB), who=BOB.address)
        with refused("ROOT_NOT_RIPE"):
            settlement.contract.record_spent(epoch, *settlement.proof(ALICE))
    wait(1)
    settlement.contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    settlement.contract.record_spent(epoch, *settlement.proof(ALICE))


def test_a_stolen_operator_key_takes_nothing(settlement: Settlement) -> None:
    """It promises the whole pool to itself; the guardian strikes it in its delay, and all is as before."""
    thief, contract = CAROL, settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    before = settlement.post({BOB: (10, 0)})
    proof, pool = settlement.proof(BOB), contract.pools(CREDITS)
    stolen = settlement.post_now({thief: (100, 0)})
    wait(ROOT_DELAY_S - 1)
    with refused("ROOT_NOT_RIPE"):
        contract.claim(CREDITS, stolen, *settlement.proof(thief))
    contract.strike_root(CREDITS, stolen, who=GUARDIAN)
    assert contract.events == ["RootStruck"]
    assert contract.pools(CREDITS) == pool
    wait(ROOT_DELAY_S)
    with refused("NOT_IN_ROOT"):
        contract.claim(CREDITS, stolen, *settlement.proof(thief))
    contract.claim(CREDITS, before, *proof)
    assert settlement.network.token.balanceOf(thief.address) == 1000
    assert settlement.post({BOB: (20, 0)}) == stolen  # the books' own root takes the number


def test_a_thief_that_posts_again_is_stopped_and_depositors_leave(settlement: Settlement) -> None:
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    ripe = settlement.post({BOB: (10, 0)})
    proof = settlement.proof(BOB)
    contract.request_exit(90, who=ALICE.address)
    stolen = settlement.post_now({CAROL: (100, 0)})
    contract.stop(CREDITS, who=GUARDIAN)
    contract.strike_root(CREDITS, stolen, who=GUARDIAN)
    with refused("POOL_STOPPED"):
        settlement.post_now({CAROL: (100, 0)})
    contract.claim(CREDITS, ripe, *proof)
    wait(EXIT_S)
    contract.exit(ALICE.address)
    assert settlement.network.token.balanceOf(ALICE.address) == 990
    contract.lift(CREDITS, who=GUARDIAN)
    assert settlement.post_now({BOB: (10, 0)}) == stolen


def test_a_root_that_holds_more_than_it_promises_does_not_use_the_next_ones_promise(settlement: Settlement) -> None:
    """The cheapest lie of a stolen key: a leaf of 100 in a root that promises 10, made good by a root under delay."""
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    harmless = settlement.post({CAROL: (100, 0)}, promised=10)
    proof = settlement.proof(CAROL)
    later = settlement.post_now({CAROL: (100, 0)}, promised=100)
    with refused("ROOT_EXCEEDS_ITS_TOTAL"):
        contract.claim(CREDITS, harmless, *proof)
    contract.strike_root(CREDITS, later, who=GUARDIAN)
    with refused("ROOT_EXCEEDS_ITS_TOTAL"):
        contract.claim(CREDITS, harmless, *proof)
    assert contract.pools(CREDITS) == (100, 10, 0, harmless)


def test_one_root_at_a_time_is_under_delay(settlement: Settlement) -> None:
    """So a strike undoes all that cannot be claimed yet. The pools wait apart."""
    settlement.contract.deposit(ALICE.address, 100, who=ALICE.address)
    settlement.post_now({BOB: (10, 0)})
    with refused("ROOT_UNDER_DELAY"):
        settlement.post_now({BOB: (20, 0)})
    settlement.contract.fund(REWARDS, 5, who=ALICE.address)
    settlement.post_now({BOB: (5, 0)}, pool=REWARDS)
    wait(ROOT_DELAY_S)
    settlement.post_now({BOB: (20, 0)})


def test_only_the_guardian_strikes_and_only_what_is_not_ripe(settlement: Settlement) -> None:
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    with refused("WRONG_EPOCH"):
        contract.strike_root(CREDITS, 0, who=GUARDIAN)
    epoch = settlement.post_now({BOB: (10, 0)})
    for call, arguments in (("strike_root", (CREDITS, epoch)), ("stop", (CREDITS,)), ("lift", (CREDITS,))):
        with refused("NOT_GUARDIAN"):
            contract.send(call, arguments, who=OPERATOR)
    with refused("NOT_OPERATOR"):
        contract.post_root(CREDITS, epoch + 1, b"\1" * 32, 1, 100, who=GUARDIAN)
    with refused("WRONG_EPOCH"):
        contract.strike_root(CREDITS, epoch + 1, who=GUARDIAN)
    wait(ROOT_DELAY_S)
    with refused("ROOT_IS_RIPE"):
        contract.strike_root(CREDITS, epoch, who=GUARDIAN)
    contract.claim(CREDITS, epoch, *settlement.proof(BOB))


def test_a_pool_is_stopped_and_lifted_once(settlement: Settlement) -> None:
    contract = settlement.contract
    with refused("NOT_STOPPED"):
        contract.lift(CREDITS, who=GUARDIAN)
    contract.stop(CREDITS, who=GUARDIAN)
    with refused("POOL_STOPPED"):
        contract.stop(CREDITS, who=GUARDIAN)
    assert (contract.stopped(CREDITS), contract.stopped(REWARDS)) == (True, False)
    with refused("UNKNOWN_POOL"):
        contract.stop(2, who=GUARDIAN)


def test_nobody_uses_up_an_exit_by_a_root_that_is_struck(settlement: Settlement) -> None:
    """Anyone may call `exit`: with a stolen root in its delay it would pay one unit and be over."""
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    contract.request_exit(100, who=ALICE.address)
    wait(EXIT_S)
    stolen = settlement.post_now({CAROL: (99, 0)})
    with refused("ROOT_UNDER_DELAY"):
        contract.exit(ALICE.address)
    contract.strike_root(CREDITS, stolen, who=GUARDIAN)
    contract.exit(ALICE.address)
    assert settlement.network.token.balanceOf(ALICE.address) == 1000


def test_an_exit_leaves_time_for_a_root_under_delay_and_one_more(settlement: Settlement) -> None:
    """A depositor that spends at the gateway and leaves on chain: what it spent is recorded before it is ready."""
    contract = settlement.contract
    contract.deposit(ALICE.address, 100, who=ALICE.address)
    settlement.post_now({ALICE: (0, 20), BOB: (20, 0)})
    contract.request_exit(80, who=ALICE.address)
    wait(ROOT_DELAY_S)
    epoch = settlement.post_now({ALICE: (0, 100), BOB: (100, 0)})
    wait(ROOT_DELAY_S + BOOK_S)
    contract.record_spent(epoch, *settlement.proof(ALICE))
    wait(EXIT_S)
    contract.exit(ALICE.address)
    assert contract.logged("Exited") == [{"account": ALICE.address, "amount": 0}]
    contract.claim(CREDITS, epoch, *settlement.proof(BOB))
    assert contract.held() == 0


def test_the_settlements_guardian_hands_over_in_two_steps(settlement: Settlement) -> None:
    contract = settlement.contract
    contract.propose_guardian(ALICE.address, who=GUARDIAN)
    with refused("NOT_GUARDIAN"):
        contract.accept_guardian(who=OPERATOR)
    contract.accept_guardian(who=ALICE.address)
    contract.stop(CREDITS, who=ALICE.address)
