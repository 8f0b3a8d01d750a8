"""A gateway that changes what is ordered is found out by the order's id."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.node.leases.lookup_check import FalseLookup, check_lookup
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.node.leases.lease_world import CONTENT, RENTER, lookup, market, policy, specification

FACTS = market()


def test_an_honest_lookup_is_read() -> None:
    given = lookup()
    checked = check_lookup(given, FACTS)
    assert "0x" + checked.order_id.hex() == given.order_id
    assert checked.order is not None
    assert (checked.order.image, checked.order.renter) == ("docker.io/library/nginx:1", RENTER)
    assert (checked.terms, checked.specification) == (policy(), specification())
    assert (checked.policy_hash, checked.spec_hash) == (struct_hash(policy()), struct_hash(specification()))


LIES: dict[str, dict[str, Any]] = {
    "a cheaper policy": {"policy": write_message(policy(max_price_uusd=1))},
    "a longer lease": {"policy": write_message(policy(duration_s=7_200))},
    "longer windows": {"policy": write_message(policy(commit_ms=60_000))},
    "a smaller machine": {"specification": write_message(specification(gpus=0))},
    "another image": {"content": CONTENT.replace("nginx", "xmrig")},
    "another content with its own hash": {
        "content": CONTENT + " ",
        "specification": write_message(specification(CONTENT + " ")),
    },
    "another renter": {"renter": "0x" + "1" * 40},
    "another nonce": {"renter_nonce": 1},
    "another order": {"order_id": "0x" + "5" * 64},
    "a policy out of range": {"policy": write_message(policy(max_price_uusd=1 << 41))},
    "a policy with a member more": {"policy": write_message(policy()) | {"sort": 1}},
    "a policy that is none": {"policy": {}},
    "no validators": {"weights": {}},
    "validators without weight": {"weights": {"0x" + "1" * 40: 0}},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_changed_lookup_is_false(lie: str) -> None:
    with pytest.raises(FalseLookup):
        check_lookup(msgspec.structs.replace(lookup(), **LIES[lie]), FACTS)


def test_an_order_of_another_chain_or_contract_is_false() -> None:
    for facts in (market(chain_id=1), market(deployment_order="0x" + "9" * 40)):
        with pytest.raises(FalseLookup):
            check_lookup(lookup(), facts)


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"image":7}', '{"image":""}', "{}", "[" * 40_000])
def test_a_renters_own_nonsense_is_a_true_order_without_an_image(content: str) -> None:
    assert check_lookup(lookup(spec=specification(content), content=content), FACTS).order is None


def test_content_beyond_the_limit_is_false() -> None:
    long = "ä" * 33_000  # within the characters of the frame, over the bytes of the protocol
    with pytest.raises(FalseLookup, match="content"):
        check_lookup(lookup(spec=specification(long), content=long), FACTS)
