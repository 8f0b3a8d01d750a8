"""The committed vectors of a lease's match, recomputed from their inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.market.rule import awards_of, book_of, leaf_of, status_of
from sparewatt.protocol.contracts.match import Bid, OrderTerms, Profile
from sparewatt.protocol.signing import BadSignature, keccak256, recover_address
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
