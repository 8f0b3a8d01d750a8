"""The contracts agree with the committed test vectors of a lease's match."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.protocol.contracts.match import BidLeaf, OrderTerms, Profile, Task
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.signing import keccak256
from tests.evm.machine import Contract, Reverted, deploy
from tests.evm.network import Network
from tests.vectors import make
from tests.vectors.encoding import from_json

VECTORS: dict[str, Any] = json.loads(make.FILE.read_text())
HASHES: dict[str, tuple[type[Any], str]] = {
    "Policy": (OrderTerms, "policy_hash"),
    "Profile": (Profile, "profile_hash"),
    "BidLeaf": (BidLeaf, "leaf_hash"),
}


@pytest.fixture
def window(network: Network) -> Contract:
    return deploy("rule_window")


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_messages_have_their_hashes(window: Contract) -> None:
    known = [case for case in VECTORS["types"] if case["type"] in HASHES]
    assert len(known) == 3 * len(HASHES)
    for case in known:
        kind, function = HASHES[case["type"]]
        hashed = getattr(window, function)(from_json(kind, case["fields"]).values())
        assert hashed == unhex(case["struct_hash"]), (case["type"], case["name"])


def test_statuses_are_the_same(window: Contract) -> None:
    for case in VECTORS["statuses"]:
        policy, profile = from_json(OrderTerms, case["policy"]), from_json(Profile, case["profile"])
        assert window.status(policy.values(), profile.values(), case["price_uusd"]) == case["status"]


@pytest.mark.parametrize("case", VECTORS["trees"], ids=lambda case: case["count"])
def test_paths_prove_their_leaves_and_no_others(window: Contract, case: dict[str, Any]) -> None:
    count, root = case["count"], unhex(case["root"])
    leaves = [keccak256(i.to_bytes(2, "big")) for i in range(count)]
    assert merkle_tree(leaves).root == root
    for place, siblings in case["paths"].items():
        index, path = int(place), [unhex(sibling) for sibling in siblings]
        leaf = leaves[index] if index < count else bytes(32)
        assert window.proves(root, count, leaf, index, path)
        assert not window.proves(root, count, keccak256(leaf), index, path)
        assert not window.proves(root, count, leaf, index, [*path, bytes(32)])


@pytest.mark.parametrize("case", VECTORS["books"], ids=lambda case: case["name"])
def test_books_are_judged_the_same(window: Contract, case: dict[str, Any]) -> None:
    policy = from_json(OrderTerms, case["policy"])
    leaves = [from_json(BidLeaf, leaf) for leaf in case["leaves"]]
    task = Task(
        order_id=keccak256(case["name"].encode()),
        attempt=0,
        policy_hash=bytes(32),
        snapshot_epoch=1,
        snapshot_root=bytes(32),
        stake_version=1,
        bid_root=unhex(case["bid_root"]),
        bid_count=len(leaves),
        first=0,
        second=0,
        third=0,
    )
    profiles = [from_json(Profile, profile).values() for profile in case["profiles"]]
    truths, best, pay = window.judge(task.values(), policy.values(), profiles, [leaf.values() for leaf in leaves])
    assert all(truths)
    assert list(best) == case["candidates"]
    assert pay == case["pay_uusd"]


def test_only_the_canonical_form_of_a_signature_is_accepted(window: Contract) -> None:
    case = VECTORS["signature"]
    digest = unhex(case["digest"])
    assert window.recover(digest, unhex(case["good"])).lower() == case["signer"].lower()
    for form in ("high_s", "v_from_0"):
        with pytest.raises(Reverted, match="BAD_SIGNATURE"):
            window.recover(digest, unhex(case[form]))
