"""The committed vectors of a lease's match, recomputed from their inputs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from sparewatt.market.bonds import bid_bond_uusd, forfeit_shares, wanted_lock_uusd
from sparewatt.market.coverage import first_shortfall
from sparewatt.market.quorum import is_quorum, is_some, leader_of_match, leader_of_snapshot, lower_median, most_stake
from sparewatt.market.rule import awards_of, book_of, leaf_of, status_of
from sparewatt.protocol.contracts.match import (
    Bid,
    BidTerms,
    Observations,
    OrderTerms,
    Profile,
    Specification,
    held_term,
    inputs_hash_of,
)
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, open_secret, seal_secret
from sparewatt.protocol.signing import BadSignature, SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import contract_domain, message_digest, struct_hash
from tests.vectors import make
from tests.vectors.encoding import KINDS, from_json, to_json

VECTORS: dict[str, Any] = json.loads(make.FILE.read_text())
KIND_OF = {kind.struct_name or kind.__name__: kind for kind in KINDS}


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_the_file_is_what_its_maker_makes() -> None:
    assert make.FILE.read_text() == make.text(), "run: python -m tests.vectors.make"


@pytest.mark.parametrize("case", VECTORS["types"], ids=lambda case: f"{case['type']}-{case['name']}")
def test_a_message_has_its_hash(case: dict[str, Any]) -> None:
    assert struct_hash(from_json(KIND_OF[case["type"]], case["fields"])) == unhex(case["struct_hash"])


def test_a_domain_has_its_separator() -> None:
    for case in VECTORS["domains"]:
        domain = contract_domain(chain_id=case["chain_id"], contract=case["contract"])
        assert domain.separator() == unhex(case["separator"])


def test_every_status_code_occurs() -> None:
    assert {case["status"] for case in VECTORS["statuses"]} == set(range(13))


def test_the_first_thing_that_is_wrong_counts() -> None:
    for case in VECTORS["statuses"]:
        policy, profile = from_json(OrderTerms, case["policy"]), from_json(Profile, case["profile"])
        assert status_of(policy, profile, price_uusd=case["price_uusd"]) == case["status"]


@pytest.mark.parametrize("case", VECTORS["books"], ids=lambda case: case["name"])
def test_bids_give_the_committed_bid_book(case: dict[str, Any]) -> None:
    policy = from_json(OrderTerms, case["policy"])
    profiles = [from_json(Profile, profile) for profile in case["profiles"]]
    bids = [from_json(Bid, bid) for bid in case["bids"]]
    leaves = [leaf_of(policy, bid, profile) for bid, profile in zip(bids, profiles, strict=True)]
    book = book_of(keccak256(case["name"].encode()), reversed(leaves))
    assert [to_json(leaf) for leaf in book.leaves] == case["leaves"]
    assert book.tree.root == unhex(case["bid_root"])
    assert list(book.candidates) == case["candidates"]
    assert awards_of(policy, book)[0].price_uusd == case["pay_uusd"]


def test_only_the_one_valid_form_of_a_signature_is_accepted() -> None:
    case = VECTORS["signature"]
    digest = unhex(case["digest"])
    domain = contract_domain(chain_id=make.CHAINS[1], contract=make.CONTRACT)
    assert message_digest(domain, from_json(KIND_OF[case["type"]], case["fields"])) == digest
    assert recover_address(digest, unhex(case["good"])) == case["signer"]
    for form in ("high_s", "v_from_0"):
        with pytest.raises(BadSignature):
            recover_address(digest, unhex(case[form]))


def test_every_type_has_a_smallest_a_largest_and_a_usual_message() -> None:
    names = [(case["type"], case["name"]) for case in VECTORS["types"]]
    assert sorted(names) == sorted((kind, name) for kind in KIND_OF for name in ("minimum", "maximum", "typical"))
    assert {"Specification", "Terms", "Heartbeat", "Observation", "Observations", "Accept", "Resign"} <= set(KIND_OF)


def test_terms_cover_a_specification_or_miss_it_by_one() -> None:
    for case in VECTORS["coverage"]:
        specification = read_message(Specification, case["specification"])
        terms = read_message(BidTerms, case["terms"])
        assert write_message(terms) == case["terms"]
        assert struct_hash(specification) == unhex(case["spec_hash"])
        assert struct_hash(terms) == unhex(case["terms_hash"])
        policy = dataclasses.replace(make.POLICY, reclaim_s=case["policy_reclaim_s"])
        assert first_shortfall(specification, terms, policy) == case["shortfall"]
    missed = [case["shortfall"] for case in VECTORS["coverage"]]
    assert missed == [None, "gpus", "cpu_milli", "memory_mib", "disk_mib", "egress", "reclaim_s", None]


def test_observations_have_their_median() -> None:
    for case in VECTORS["medians"]:
        observed = [(value, weight) for value, weight in case["observed"]]
        assert lower_median(observed) == case["lower_median"]
        assert most_stake(observed) == case["most_stake"]
    assert [case["lower_median"] for case in VECTORS["medians"]] == [7, 7, 9, 2, 2, 5, 1, 2, 6, 10**6]


def test_a_quorum_is_more_than_two_thirds() -> None:
    for case in VECTORS["quorums"]:
        assert (
            is_quorum(case["weight"], total=case["total"]) == case["quorum"] == (case["weight"] * 3 > case["total"] * 2)
        )
        assert is_some(case["weight"], total=case["total"]) == case["some"]


def test_rounds_have_their_leaders() -> None:
    case = VECTORS["leaders"]
    weights, order_id = case["weights"], unhex(case["order_id"])
    for round_ in range(6):
        leader = leader_of_match(weights, order_id=order_id, attempt=2, round_=round_)
        assert leader == case["match"][round_]
        assert leader_of_snapshot(weights, epoch=3, round_=round_) == case["snapshot"][round_]
        assert weights[leader] > 0


def test_bonds_have_their_amounts() -> None:
    for case in VECTORS["bonds"]:
        bond = bid_bond_uusd(case["max_price_uusd"])
        assert bond == case["bid_bond_uusd"]
        assert wanted_lock_uusd(case["pay_uusd"], max_price_uusd=case["max_price_uusd"]) == case["wanted_lock_uusd"]
        assert list(dataclasses.astuple(forfeit_shares(bond))) == case["forfeit_shares_uusd"]


def test_held_terms_and_inputs_have_their_hashes() -> None:
    case = VECTORS["hashes"]
    assert held_term(unhex(case["lease_id"]), case["term"]) == unhex(case["held_term"])
    inputs = [from_json(Observations, each) for each in case["observations"]]
    assert inputs_hash_of(1_000, inputs) == inputs_hash_of(1_000, reversed(inputs)) == unhex(case["inputs_hash"])
    assert inputs_hash_of(1_000, []) == unhex(case["inputs_hash_of_none"]) == keccak256((1_000).to_bytes(8, "big"))


def test_a_sealed_secret_has_its_bytes_and_opens() -> None:
    case = VECTORS["sealed_secret"]
    context = SecretContext(unhex(case["order_id"]), case["attempt"], case["provider"])
    node, ephemeral = SigningKey(unhex(case["node_key"])), SigningKey(unhex(case["ephemeral_key"]))
    plain = case["plain"].encode()
    sealed = seal_secret(plain, to_public_key=node.public_key, context=context, ephemeral=ephemeral)
    assert sealed == unhex(case["sealed"])
    assert open_secret(sealed, node_key=node, context=context) == plain
