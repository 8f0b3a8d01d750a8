from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from itertools import islice

import pytest

from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel
from sparewatt.node.leases.runtime.naming import (
    POOLS,
    LeaseRange,
    bridge_name,
    candidate_ranges,
    container_name,
    label_of,
    labels_of,
    routed_networks,
)

LABEL = LeaseLabel("0x" + "Ab" * 32, 3, 2, "0x" + "Cd" * 20)
PLAN = ContainerPlan(label=LABEL, image="i", cpu_milli=1, memory_mib=1, disk_mib=9, egress=True)


def test_a_name_follows_from_node_lease_and_term_alone() -> None:
    same = replace(LABEL, attempt=9, node=LABEL.node.lower(), lease_id=LABEL.lease_id.upper().replace("0X", "0x"))
    assert container_name(same) == container_name(LABEL)
    others = [replace(LABEL, term=4), replace(LABEL, lease_id="0x1"), replace(LABEL, node="0x2")]
    assert len({container_name(label) for label in (LABEL, *others)}) == 4


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [
        ({}, "swle-"),
        ({"egress": False}, "swln-"),
        ({"agent_port": True}, "swlg-"),
        ({"egress": False, "agent_port": True}, "swlg-"),
    ],
)
def test_a_bridges_name_says_what_it_lets_through(changes: dict[str, bool], prefix: str) -> None:
    name = bridge_name(replace(PLAN, **changes))  # type: ignore[arg-type]
    assert name.startswith(prefix)
    assert len(name) == 15, "all that the kernel allows for an interface"


def test_labels_are_read_as_they_were_written() -> None:
    labels = labels_of(LABEL, disk_mib=7)
    assert label_of(labels) == LABEL
    assert label_of({}) is None
    assert label_of({**labels, "org.sparewatt.term": "soon"}) is None


def test_a_range_begins_where_the_label_says_and_goes_on_beside_it() -> None:
    first, second = islice(candidate_ranges(LABEL, []), 2)
    assert first == next(candidate_ranges(LABEL, []))
    assert first.network.subnet_of(POOLS[0])
    assert next(candidate_ranges(LABEL, [first.network])) == second
    assert next(candidate_ranges(replace(LABEL, term=4), [])) != first


def test_no_range_is_one_that_the_host_routes_elsewhere() -> None:
    taken = [IPv4Network("10.0.0.0/8"), IPv4Network("172.30.0.0/17"), IPv4Network("172.17.0.0/16")]
    found = next(candidate_ranges(LABEL, taken))
    assert found.network.subnet_of(IPv4Network("172.30.128.0/17"))


def test_where_everything_is_routed_there_is_no_range() -> None:
    assert list(candidate_ranges(LABEL, [IPv4Network("0.0.0.0/0")])) == []


def test_all_ranges_of_a_pool_are_tried_once() -> None:
    others = list(POOLS[1:])
    ranges = [each.network for each in candidate_ranges(LABEL, others)]
    assert len(ranges) == len(set(ranges)) == 1 << 14


def test_a_range_has_the_host_first_and_the_container_second() -> None:
    found = LeaseRange(IPv4Network("10.201.0.4/30"))
    assert (found.host, found.container) == ("10.201.0.5", "10.201.0.6")


def test_routes_are_read_without_the_default_one() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "broken\n"
    )
    assert routed_networks(table) == [IPv4Network("192.168.0.0/24")]
    assert routed_networks("") == []
