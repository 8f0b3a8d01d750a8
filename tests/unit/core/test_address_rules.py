"""Addresses that a node may connect to for a stranger: every form of a private one is refused."""

from __future__ import annotations

import pytest

from sparewatt.core.address_rules import is_public


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:2800:220:1::1", "2a00:1450::1"]
)
def test_addresses_of_the_public_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.1", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    ],
)
def test_private_shared_local_and_reserved_ipv4_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("::", "::1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:8.8.8.8"),
        *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::1", "2002:808:808::1"),
        *("2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1"),
        "2606:2800:220:1::1%eth0",
    ],
)
def test_ipv6_that_is_local_or_may_lead_to_an_ipv4_address_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "1.1.1", "0x7f.0.0.1", "1.1.1.1:80", "[::1]", "127.0.0.1 "])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)
