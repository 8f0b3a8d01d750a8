"""A node accepts another price, end or program of a running lease by the rules of its offer, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.offer_rules import LeaseRules, MachineFacts
from sparewatt.node.leases.placed.task_check import CheckedTask, check_task
from sparewatt.node.leases.placed.updates import is_acceptable, never_accepts
from sparewatt.protocol.contracts.lease_content import LeaseContent, content_hash_of, write_content
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.link.lease_tasks import ProposedUpdate, TaskState
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.node.leases.lease_world import market
from tests.unit.node.leases.placed.placed_world import task

MACHINE = MachineFacts(measured=LeaseCapacity(8, 64_000, 256_000, 1_000_000), hourly_uusd=8_000_000)
RULES = LeaseRules(cpu_hourly_uusd=1_000)
DAY_S = 86_400


def checked(**changes: Any) -> CheckedTask:
    return check_task(task(state=TaskState.ACTIVE, **changes), market())


def update(**changes: Any) -> ProposedUpdate:
    specification = checked().specification
    usual = ProposedUpdate(
        spec_hash="0x" + struct_hash(specification).hex(),
        rate_uusd=10**9,
        duration_s=DAY_S,
        seq=1,
        specification=write_message(specification),
        content="",
    )
    return msgspec.structs.replace(usual, **changes)


def test_a_longer_lease_at_the_offers_price_is_accepted() -> None:
    assert is_acceptable(update(), checked(), RULES, MACHINE)


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({"rate_uusd": 0}, RULES),
        ({"duration_s": RULES.longest_s + 1}, RULES),
        ({"spec_hash": "0x" + "77" * 32}, RULES),
        ({}, msgspec.structs.replace(RULES, longest_s=60)),
        ({}, msgspec.structs.replace(RULES, refused_tenants=(checked().task.renter.lower(),))),
    ],
)
def test_what_the_owner_would_not_bid_on_is_not_accepted(changes: dict[str, Any], rules: LeaseRules) -> None:
    assert not is_acceptable(update(**changes), checked(), rules, MACHINE)


def test_a_lease_under_notice_is_not_lengthened() -> None:
    assert not is_acceptable(update(), checked(may_close_at=5), RULES, MACHINE)


def test_a_node_without_rules_accepts_nothing() -> None:
    assert not never_accepts(checked(), update())


def test_the_checked_specification_is_what_is_compared() -> None:
    other = replace(checked().specification, cpu_milli=1)
    assert not is_acceptable(update(spec_hash="0x" + struct_hash(other).hex()), checked(), RULES, MACHINE)


def changed(*, image: str = "me/other:2", **sizes: Any) -> ProposedUpdate:
    """Another program, on the same part of the machine unless a test says otherwise."""
    content = write_content(LeaseContent(image=image))
    wanted = replace(checked().specification, content_hash=content_hash_of(content), **sizes)
    spec_hash = "0x" + struct_hash(wanted).hex()
    return update(spec_hash=spec_hash, specification=write_message(wanted), content=content)


def test_another_program_of_the_same_size_is_accepted() -> None:
    assert is_acceptable(changed(), checked(), RULES, MACHINE)


@pytest.mark.parametrize(
    "sizes", [{"memory_mib": 2**20}, {"gpus": 1}, {"cpu_milli": 1}, {"disk_mib": 1}, {"egress": 0}]
)
def test_another_size_is_not_what_was_promised(sizes: dict[str, Any]) -> None:
    assert not is_acceptable(changed(**sizes), checked(), RULES, MACHINE)


def test_a_refused_image_and_a_document_that_is_not_the_hashs_are_not_accepted() -> None:
    strict = msgspec.structs.replace(RULES, refused_images=("me/*",))
    assert not is_acceptable(changed(), checked(), strict, MACHINE)
    lie = msgspec.structs.replace(changed(), content=write_content(LeaseContent(image="me/miner:1")))
    assert not is_acceptable(lie, checked(), RULES, MACHINE)
    foreign = "not a document"
    wanted = replace(checked().specification, content_hash=content_hash_of(foreign))
    nothing = update(spec_hash="0x" + struct_hash(wanted).hex(), specification=write_message(wanted), content=foreign)
    assert not is_acceptable(nothing, checked(), RULES, MACHINE)
