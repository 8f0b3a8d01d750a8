from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.chain.market.certificates import checked_certificate_call, is_wanted
from sparewatt.evm.contract_abi import Contract, shipped_abis
from sparewatt.evm.model import ContractCall
from sparewatt.market.match.model import QuorumCertificate
from tests.unit.leasing.relay.auction import DOMAIN, PROVIDERS, STRANGER, TASKS, VOTE_KEYS, Auction
from tests.unit.market.market_events import an_event

AUCTION = Auction()
STATE = AUCTION.state()
TASK_MANAGER = Contract("task_manager", TASKS, shipped_abis()["task_manager"].abi)
TRUE = AUCTION.certificate()


def call_of(certificate: QuorumCertificate) -> ContractCall | None:
    return checked_certificate_call(TASK_MANAGER, certificate, STATE, DOMAIN)


def test_a_certificate_becomes_a_call_with_the_history_hints_that_the_contract_wants() -> None:
    votes = [(AUCTION.vote(each).signature, 0) for each in VOTE_KEYS]
    parts = zip(TRUE.leaves, TRUE.paths, TRUE.commits, strict=True)
    candidates = [(leaf.values(), list(path), commit.signature) for leaf, path, commit in parts]
    values = (TRUE.task.values(), 0, AUCTION.terms.values(), candidates, votes)
    assert call_of(TRUE) == TASK_MANAGER.encode_call("accept_match", *values)


def test_votes_are_put_in_the_order_of_their_signers_and_strangers_are_left_out() -> None:
    shuffled = replace(TRUE, votes=(AUCTION.vote(STRANGER), *reversed(TRUE.votes)))
    assert call_of(shuffled) == call_of(TRUE)


def test_a_certificate_that_nobody_was_eligible_is_another_call() -> None:
    empty = Auction(prices={})
    found = checked_certificate_call(TASK_MANAGER, empty.certificate(), STATE, DOMAIN)
    votes = [(empty.vote(each).signature, 0) for each in VOTE_KEYS]
    assert found == TASK_MANAGER.encode_call("accept_no_match", empty.task.values(), 0, votes)


@pytest.mark.parametrize(
    "bad",
    [
        AUCTION.certificate(voters=2),
        replace(TRUE, round=1),
        replace(TRUE, leaves=(replace(TRUE.leaves[0], provider=PROVIDERS[2]), TRUE.leaves[1])),
        replace(TRUE, paths=TRUE.paths[:1]),
        replace(TRUE, task=replace(TRUE.task, stake_version=99)),
    ],
    ids=["no quorum", "another round", "another winner", "a path too few", "an unknown stake version"],
)
def test_what_the_contract_would_refuse_is_not_sent(bad: QuorumCertificate) -> None:
    assert call_of(bad) is None


def test_a_certificate_is_wanted_while_its_attempt_is_open() -> None:
    gone = an_event("deployment_order.OrderUnmatched", order_id=AUCTION.id_text, attempt=0, reason=98)
    assert is_wanted(STATE, TRUE)
    assert not is_wanted(AUCTION.state(gone), TRUE)
    assert not is_wanted(AUCTION.state(AUCTION.lookup_event(attempt=1)), TRUE)
    assert not is_wanted(Auction(attempt=5).state(), TRUE)
    assert not is_wanted(STATE, replace(TRUE, task=replace(TRUE.task, order_id=bytes(32))))
