"""Which IP addresses a process may connect to because a stranger named them: those of the public internet. Pure.

Of IPv6 only global unicast is public, less the ranges in which an IPv4 address may be embedded: they lead to wherever a
translator or a tunnel leads, such as this machine's own network.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

NOT_PUBLIC_V4 = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # Azure's metadata and DNS, which has a public address
        ),
    )
)
_GLOBAL_V6 = ip_network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    map(
        ip_network,
        (
            "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)


def names_loopback(host: str) -> bool:
    """Whether a host of a URL is this machine, by its address or as `localhost`."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """False for what is no address."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in NOT_PUBLIC_V4)
    is_global = parsed in _GLOBAL_V6 and parsed.scope_id is None
    return is_global and not any(parsed in network for network in _NOT_PUBLIC_V6)
