"""Lists of all validators: what is certified, and which contradictory lists are kept."""

from __future__ import annotations

import pytest

from sparewatt.market.match import list_book
from sparewatt.market.match.list_book import CommitListBook
from sparewatt.protocol.contracts.match import CommitList
from sparewatt.protocol.contracts.match_messages import SignedCommitList

A, B, C, D = ("0x" + digit * 40 for digit in "abcd")
EQUAL = {A: 1, B: 1, C: 1, D: 1}
X, Y, Z = (bytes([number]) * 32 for number in (1, 2, 3))


def naming(*bid_ids: bytes) -> SignedCommitList:
    return SignedCommitList(CommitList(bytes(32), 0, tuple(sorted(bid_ids))), bytes(65), ())


def book(*lists: tuple[str, SignedCommitList]) -> CommitListBook:
    made = CommitListBook(EQUAL)
    for signer, signed in lists:
        made.take(signed, signer=signer)
    return made


def test_a_bid_is_certified_by_more_than_two_thirds() -> None:
    made = book((A, naming(X, Y)), (B, naming(X)))
    assert made.certified == set()
    made.take(naming(X), signer=C)
    assert made.certified == {X}


def test_exactly_two_thirds_certify_nothing() -> None:
    made = CommitListBook({A: 2, B: 2, C: 2})
    made.take(naming(X), signer=A)
    made.take(naming(X), signer=B)
    assert made.certified == set()
    made.take(naming(X), signer=C)
    assert made.certified == {X}


def test_a_validator_counts_once_however_many_lists_it_signs() -> None:
    made = book((A, naming(X)), (A, naming(X, Y)), (B, naming(X)), (B, naming(X, Z)))
    assert made.certified == set()
    assert made.weight == 2


def test_all_lists_of_a_liar_count() -> None:
    made = book((A, naming(X)), (B, naming(X)), (D, naming(Y)), (D, naming(X)))
    assert made.certified == {X}


def test_the_same_list_is_kept_once() -> None:
    made = CommitListBook(EQUAL)
    assert made.take(naming(X), signer=A)
    assert not made.take(naming(X), signer=A)
    assert len(list(made.lists())) == 1


def test_a_third_list_is_kept_only_if_others_name_its_bid() -> None:
    made = book((D, naming(Y)), (D, naming(Z)))
    assert not made.take(naming(X), signer=D), "nobody else names it"
    made.take(naming(X), signer=A)
    assert not made.take(naming(X), signer=D), "one of four may be a liar too"
    made.take(naming(X), signer=B)
    assert made.take(naming(X), signer=D)
    assert made.certified == {X}
    assert not made.take(naming(X, Z), signer=D), "it names nothing new"


def test_two_liars_do_not_make_each_other_worth_keeping() -> None:
    weights = {A: 3, B: 3, C: 1, D: 1}
    made = CommitListBook(weights)
    for number in range(2, 40):
        for signer in (C, D):
            made.take(naming(bytes([number]) * 32), signer=signer)
    assert len(list(made.lists())) == 4


def test_there_is_an_end_to_lists_that_certify_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_book, "FURTHER_LISTS_MAX", 3)
    ids = [bytes([number]) * 32 for number in range(1, 20)]
    made = book((A, naming(*ids)), (B, naming(*ids)))
    kept = [made.take(naming(bid_id), signer=D) for bid_id in ids]
    assert kept.count(True) == 2 + 3


def test_a_bid_is_undecided_while_lists_are_to_come() -> None:
    made = book((A, naming(X, Y)), (B, naming(X)))
    assert list(made.undecided()) == [X, Y]
    made.take(naming(Z), signer=C)
    assert list(made.undecided()) == [X]
    made.take(naming(X), signer=D)
    assert list(made.undecided()) == []


def test_lists_come_in_the_order_of_vote_keys_without_commits() -> None:
    made = book((C, naming(X)), (A, naming(Y)), (B, naming()))
    assert [signed.list.bid_ids for _, signed in made.lists()] == [(Y,), (), (X,)]
    assert len({digest for digest, _ in made.lists()}) == 3
    assert made.signers() == [C, A, B]


def test_equal_lists_of_two_validators_have_different_digests() -> None:
    made = book((A, naming(X)), (B, naming(X)))
    assert len({digest for digest, _ in made.lists()}) == 2
