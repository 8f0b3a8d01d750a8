"""Names of a lease's container and bridge, its labels, and its range of addresses. Pure, and the same at every start.

A bridge's name says what the egress table lets through, so the table needs no list of leases: `swln-` nothing, `swle-`
public addresses, `swlg-` these and the agent's port.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel

BRIDGE_PREFIX = "swl"
NO_EGRESS, PUBLIC_EGRESS, AGENT_EGRESS = "swln-", "swle-", "swlg-"
NAME_PREFIX = "sparewatt-lease-"
DIGEST_CHARS = 10
"""With a prefix of five, the 15 that the kernel allows for an interface."""
LABEL_LEASE, LABEL_TERM, LABEL_ATTEMPT, LABEL_NODE, LABEL_DISK, LABEL_CONTENT = (
    f"org.sparewatt.{name}" for name in ("lease", "term", "attempt", "node", "disk-mib", "content")
)
POOLS = tuple(map(IPv4Network, ("10.201.0.0/16", "172.30.0.0/16", "192.168.224.0/19", "198.18.0.0/16")))
"""Tried in this order: where a VPN has routed one away, the next is used."""
RANGE_PREFIX = 30
"""Four addresses: the network's, the host's, the container's, and the broadcast's."""


@dataclass(frozen=True, slots=True)
class LeaseRange:
    """The addresses of one bridge."""

    network: IPv4Network

    @property
    def host(self) -> str:
        return str(self.network[1])

    @property
    def container(self) -> str:
        return str(self.network[2])


def container_name(label: LeaseLabel) -> str:
    """Also the network's: one per node, lease and term. The attempt is told by the label."""
    return f"{NAME_PREFIX}{_digest(label)}"


def bridge_name(plan: ContainerPlan) -> str:
    prefix = AGENT_EGRESS if plan.agent_port else PUBLIC_EGRESS if plan.egress else NO_EGRESS
    return f"{prefix}{_digest(plan.label)[:DIGEST_CHARS]}"


def labels_of(label: LeaseLabel, *, disk_mib: int) -> dict[str, str]:
    return {
        LABEL_LEASE: label.lease_id,
        LABEL_TERM: str(label.term),
        LABEL_ATTEMPT: str(label.attempt),
        LABEL_NODE: label.node,
        LABEL_DISK: str(disk_mib),
    }


def label_of(labels: Mapping[str, str]) -> LeaseLabel | None:
    """None for what is not ours, or was made by somebody who only looks like us."""
    try:
        return LeaseLabel(labels[LABEL_LEASE], int(labels[LABEL_TERM]), int(labels[LABEL_ATTEMPT]), labels[LABEL_NODE])
    except (KeyError, ValueError):
        return None


def candidate_ranges(label: LeaseLabel, taken: Collection[IPv4Network]) -> Iterator[LeaseRange]:
    """Free ones, beginning at one that follows from the label, so that leases rarely meet."""
    start = int(_digest(label), 16)
    for pool in POOLS:
        if any(network.supernet_of(pool) for network in taken):
            continue
        within = [network for network in taken if network.overlaps(pool)]
        count = 1 << (RANGE_PREFIX - pool.prefixlen)
        first = start % count
        for number in itertools.chain(range(first, count), range(first)):
            network = IPv4Network((int(pool.network_address) + (number << (32 - RANGE_PREFIX)), RANGE_PREFIX))
            if not any(network.overlaps(other) for other in within):
                yield LeaseRange(network)


def routed_networks(route_table: str) -> list[IPv4Network]:
    """What this host routes anywhere but by default, from the text of /proc/net/route."""
    found = []
    for line in route_table.splitlines()[1:]:
        words = line.split()
        if len(words) < 8:
            continue
        address, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (words[1], words[7]))
        if mask:
            found.append(IPv4Network((address & mask, mask.bit_count())))
    return found


def _digest(label: LeaseLabel) -> str:
    text = f"{label.node.lower()}|{label.lease_id.lower()}|{label.term}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
