"""Payout batches as pure functions: cumulative, never lower, the remainder carried, and provable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger import chart
from sparewatt.ledger.payouts import NANO_PER_MICRO, build_batch, changed_leaves, draft_batch, payout_tree
from sparewatt.protocol.contracts.merkle import verify_proof
from sparewatt.protocol.contracts.payouts import PayoutEntry
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.store.payouts import AccountStanding, HeldConversion, PayoutBatchDraft, PayoutLeafRow

ANN, BEN = AccountId("acc_ann"), AccountId("acc_ben")
HER, HIS, NEW = (f"0x{digit * 40}" for digit in "abc")


def standing(account: AccountId, address: str, *, unpaid: int = 0, spent: int = 0) -> AccountStanding:
    return AccountStanding(account, address, Nano(unpaid), Nano(spent))


def draw(last: list[PayoutLeafRow], *standings: AccountStanding, epoch: int = 1) -> PayoutBatchDraft | None:
    return draft_batch(epoch, last, standings, unix_s=0.0)


def test_whole_micro_dollars_are_paid_and_the_rest_is_carried() -> None:
    draft = draw([], standing(ANN, HER, unpaid=5_999))
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(HER, ANN, 5, 0, added_micro=5)]
    (payment,) = draft.transfers
    assert dict(payment.lines) == {chart.earned_by(ANN): -5_000, chart.PAYOUTS: 5_000}
    assert payment.cause == "payout:1:acc_ann:0.000"


def test_an_epoch_that_comes_again_on_a_new_chain_is_another_payment() -> None:
    first, second = (
        draft_batch(1, [], [standing(ANN, HER, unpaid=5_000)], unix_s=unix_s) for unix_s in (1_000.0, 2_000.0)
    )
    assert first is not None
    assert second is not None
    assert first.batch.root == second.batch.root
    assert first.transfers[0].cause != second.transfers[0].cause


def test_amounts_are_cumulative() -> None:
    draft = draw([PayoutLeafRow(HER, ANN, 5, 2)], standing(ANN, HER, unpaid=3_000, spent=2_000), epoch=2)
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(HER, ANN, 8, 2, added_micro=3)]
    assert (draft.batch.promised_micro, draft.batch.added_micro) == (8, 3)


def test_without_changes_there_is_no_batch() -> None:
    assert draw([PayoutLeafRow(HER, ANN, 5, 2)], standing(ANN, HER, unpaid=999, spent=2_999)) is None
    assert draw([]) is None


def test_an_address_without_new_earnings_stays_in_the_tree() -> None:
    last = [PayoutLeafRow(HIS, BEN, 7, 0)]
    draft = draw(last, standing(ANN, HER, unpaid=1_000), epoch=2)
    assert draft is not None
    assert draft.batch.leaves == 2
    whole = [PayoutLeafRow(HER, ANN, 1, 0), PayoutLeafRow(HIS, BEN, 7, 0)]
    assert draft.batch.root == payout_tree(whole).root


def test_spending_alone_makes_a_leaf_but_no_payment() -> None:
    draft = draw([], standing(ANN, HER, spent=4_500))
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(HER, ANN, 0, 4)]
    assert draft.transfers == []


def test_an_account_with_a_new_address_keeps_what_the_old_one_was_promised() -> None:
    last = [PayoutLeafRow(HER, ANN, 5, 10)]
    draft = draw(last, standing(ANN, NEW, unpaid=2_000, spent=11_000), epoch=2)
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(NEW, ANN, 2, 1, added_micro=2)]
    assert draft.batch.promised_micro == 7


def test_a_root_does_not_depend_on_the_order_of_accounts() -> None:
    one, two = standing(ANN, HER, unpaid=1_000), standing(BEN, HIS, unpaid=2_000)
    first, second = draw([], one, two), draw([], two, one)
    assert first is not None
    assert second is not None
    assert first.batch == second.batch


def test_a_proof_proves_its_leaf_and_an_unknown_address_has_none() -> None:
    leaves = [PayoutLeafRow(HER, ANN, 5, 0), PayoutLeafRow(HIS, BEN, 7, 1), PayoutLeafRow(NEW, BEN, 1, 0)]
    batch = build_batch(3, leaves)
    proof = batch.prove(HIS)
    assert proof is not None
    hashed = struct_hash(PayoutEntry(HIS, 7, 1))
    more = struct_hash(PayoutEntry(HIS, 8, 1))
    root = payout_tree(leaves).root
    assert verify_proof(root=root, count=3, leaf=hashed, index=proof.index, path=proof.path)
    assert not verify_proof(root=root, count=3, leaf=more, index=proof.index, path=proof.path)
    assert all(batch.prove(f"0x{digit * 40}") is None for digit in "19d")


rounds = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5_000), st.integers(0, 3_000)), max_size=6), max_size=8
)


@given(rounds=rounds)
def test_over_many_batches_nothing_is_lost_and_nothing_falls(rounds: list[list[tuple[int, int, int]]]) -> None:
    """Each round some accounts earn and spend; then a batch is drawn."""
    unpaid, spent, earned = dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 0)
    last: dict[str, PayoutLeafRow] = {}
    for epoch, news in enumerate(rounds, start=1):
        for who, earns, spends in news:
            unpaid[who] += earns
            earned[who] += earns
            spent[who] += spends
        draft = draft_batch(
            epoch, sorted(last.values(), key=lambda leaf: leaf.address), _all(unpaid, spent), unix_s=0.0
        )
        for leaf in draft.changed if draft else []:
            before = last.get(leaf.address)
            assert before is None or (
                leaf.earned_micro >= before.earned_micro and leaf.spent_micro >= before.spent_micro
            )
            unpaid[int(leaf.account_id[4:])] -= leaf.added_micro * NANO_PER_MICRO
            last[leaf.address] = leaf
    for who in range(5):
        leaf = last.get(f"0x{who:040x}", PayoutLeafRow("", AccountId(""), 0, 0))
        assert 0 <= unpaid[who] == earned[who] - leaf.earned_micro * NANO_PER_MICRO
        assert leaf.earned_micro == earned[who] // NANO_PER_MICRO if rounds else leaf.earned_micro == 0
        assert leaf.spent_micro == spent[who] // NANO_PER_MICRO


def _all(unpaid: dict[int, int], spent: dict[int, int]) -> list[AccountStanding]:
    return [
        standing(AccountId(f"acc_{who}"), f"0x{who:040x}", unpaid=unpaid[who], spent=spent[who]) for who in range(5)
    ]


def test_a_leaf_never_falls_even_if_the_ledger_does() -> None:
    assert changed_leaves({HER: PayoutLeafRow(HER, ANN, 5, 9)}, [standing(ANN, HER, unpaid=0, spent=3_000)]) == []


# credits that become tokens


def test_held_credits_are_earned_and_spent_at_once() -> None:
    held = HeldConversion("order:1", ANN, HER, Nano(4_000))
    draft = draft_batch(1, [], [], [held], unix_s=0.0)
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(HER, ANN, 4, 4, added_micro=4)]
    assert (draft.batch.promised_micro, draft.batch.added_micro) == (4, 4)
    (transfer,) = draft.transfers
    assert (transfer.kind, dict(transfer.lines)) == ("convert", {chart.credits_of(ANN): -4_000, chart.PAYOUTS: 4_000})


def test_held_credits_add_to_what_the_address_earned_before_and_now() -> None:
    last = [PayoutLeafRow(HER, ANN, 10, 3, added_micro=9)]
    held = [HeldConversion("order:1", ANN, HER, Nano(4_000)), HeldConversion("order:2", ANN, HER, Nano(1_000))]
    draft = draft_batch(2, last, [standing(ANN, HER, unpaid=2_000, spent=3_000)], held, unix_s=0.0)
    assert draft is not None
    assert draft.changed == [PayoutLeafRow(HER, ANN, 17, 8, added_micro=7)]
    assert sum(transfer.nano for transfer in draft.transfers) == 7_000


def test_what_became_tokens_is_not_counted_as_spent_a_second_time() -> None:
    first = draft_batch(1, [], [], [HeldConversion("order:1", ANN, HER, Nano(4_000))], unix_s=0.0)
    assert first is not None
    # the next time the books say that four were spent: the credits are gone
    assert draw(list(first.changed), standing(ANN, HER, spent=4_000), epoch=2) is None
