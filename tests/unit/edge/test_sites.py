from __future__ import annotations

import pytest

from sparewatt.edge.sites import is_site_host, site_label


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("0123abcd.localhost:8484", "0123abcd"),
        ("0123abcd-2.localhost", "0123abcd-2"),
        ("0123ABCD.LocalHost.:8484", "0123abcd"),
        ("a.b.localhost", None),
        (".localhost", None),
        ("-a.localhost", None),
    ],
)
def test_every_name_below_it_is_a_sites_also_one_that_no_lease_has(host: str, label: str | None) -> None:
    assert is_site_host(host, "localhost")
    assert site_label(host, "localhost") == label


@pytest.mark.parametrize(
    "host", ["localhost:8484", "127.0.0.1:8484", "notlocalhost", "localhost.evil.example", "[::1]:1", ""]
)
def test_the_gateways_own_names_are_none(host: str) -> None:
    assert not is_site_host(host, "localhost")


def test_without_names_for_sites_there_are_none() -> None:
    assert not is_site_host("a.localhost", None)
