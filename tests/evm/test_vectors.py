"""The contracts agree with the committed test vectors of a lease's match."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eth_abi.exceptions import EncodingError

from sparewatt.protocol.contracts import match, meta_transactions, payouts
from sparewatt.protocol.contracts.match import (
    Bid,
    BidCommit,
    BidLeaf,
    CommitList,
    OrderTerms,
    Profile,
    RevealList,
    Task,
)
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import TypedMessage, type_text
from tests.evm.auction import place_order
from tests.evm.machine import Contract, Reverted, deploy
from tests.evm.network import Network
from tests.vectors import make
from tests.vectors.encoding import from_json

VECTORS: dict[str, Any] = json.loads(make.FILE.read_text())
Hasher = Callable[[Contract, Any], bytes]
HASHERS: dict[type[Any], Hasher] = {
    OrderTerms: lambda window, policy: window.policy_hash(policy.values()),
    Profile: lambda window, profile: window.profile_hash(profile.values()),
    BidLeaf: lambda window, leaf: window.leaf_hash(leaf.values()),
    Task: lambda window, task: window.task_hash(task.values()),
    Bid: lambda window, bid: window.bid_id(bid.order_id, bid.attempt, leaf_of_bid(bid).values()),
    BidCommit: lambda window, commit: window.bid_commit_hash(*commit.values()),
    CommitList: lambda window, each: window.list_hash(typehash(CommitList), *each.values()),
    RevealList: lambda window, each: window.list_hash(typehash(RevealList), *each.values()),
}
ROOT = Path(__file__).resolve().parents[2]
TYPE_TEXT = re.compile(r'"([A-Z]\w*\([a-z][^"]*\))"')
OFF_CHAIN = {"Specification", "Terms", "Heartbeat", "Observation", "Observations", "Decline", "RoundReached"}
"""Types that no contract reads."""


def typehash(kind: type[TypedMessage]) -> bytes:
    return keccak256(type_text(kind).encode())


def leaf_of_bid(bid: Bid) -> BidLeaf:
    return BidLeaf(bid.provider, bid.price_uusd, bid.terms_hash, bid.salt, 0, 0, 0, 0, 0)


@pytest.fixture
def window(network: Network) -> Contract:
    return deploy("rule_window")


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_messages_have_their_hashes(window: Contract) -> None:
    for kind, hasher in HASHERS.items():
        cases = [case for case in VECTORS["types"] if case["type"] == (kind.struct_name or kind.__name__)]
        assert len(cases) == 3
        for case in cases:
            hashed = hasher(window, from_json(kind, case["fields"]))
            assert hashed == unhex(case["struct_hash"]), (case["type"], case["name"])


def test_every_type_text_of_the_contracts_is_a_message_of_python() -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "contracts").rglob("*.vy")))
    kinds = [
        kind
        for module in (match, meta_transactions, payouts)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, TypedMessage) and kind is not TypedMessage
    ]
    texts = {type_text(kind) for kind in kinds}
    on_chain = {text for text in TYPE_TEXT.findall(sources) if not text.startswith("EIP712Domain")}
    assert on_chain - texts == set()
    assert {text.split("(")[0] for text in texts - on_chain} == OFF_CHAIN


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


@pytest.mark.parametrize("case", VECTORS["domains"], ids=lambda case: case["chain_id"])
def test_a_domain_binds_chain_and_contract(case: dict[str, Any]) -> None:
    """The separator as any contract computes it, from its type text and its five words."""
    words = [keccak256(b"Sparewatt"), keccak256(b"1"), case["chain_id"].to_bytes(32, "big")]
    words.append(bytes(12) + unhex(case["contract"]))
    text = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    assert keccak256(keccak256(text) + b"".join(words)) == unhex(case["separator"])


@pytest.mark.parametrize("span", VECTORS["policy_ranges"], ids=lambda span: span["member"])
def test_an_order_is_accepted_within_the_ranges_of_its_policy_only(network: Network, span: dict[str, Any]) -> None:
    member, least, most = span["member"], span["least"], span["most"]
    for number in (least, most):
        place_order(network, deposit=5 * 10**11, **{member: number})
    for number in (least - 1, most + 1):
        with pytest.raises((Reverted, EncodingError)):
            place_order(network, deposit=5 * 10**11, **{member: number})
