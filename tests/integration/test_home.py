"""A stranger's machine at home: behind NAT, dialling out alone, with a line copied from the gateway. And its cable.

The 60 s pull and the long counts are in tests/soak.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests import namespaces
from tests.integration.asking import ask
from tests.integration.cables import pull_under_streams
from tests.integration.homes import Household, household, is_whole

LACKS = namespaces.why_not()
pytestmark = pytest.mark.skipif(LACKS is not None, reason=f"NOT TESTED: a home behind NAT. {LACKS}")


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "gateway.crt"))
        with household(folder, heartbeat_s=1.0, decode_tps=40, quick=True) as found:
            yield found


def test_the_copied_line_joins_from_behind_nat_and_serves(joined: Household) -> None:
    answer = joined.chat("What is the time?", max_tokens=30, only="home")
    assert is_whole(answer, "What is the time?", max_tokens=30)
    assert joined.nodes()["home"]["models"][0]["measured"] is not None


def test_a_second_without_the_cable_costs_no_answer(joined: Household) -> None:
    pulled = pull_under_streams(joined, seconds=1.0)
    assert [stream.how for stream in pulled.streams if stream.how != "whole"] == []
    assert pulled.charged_once


def test_the_books_are_in_order_after_all_that(joined: Household) -> None:
    assert ask(joined.gateway, "GET", "/v1/ledger/audit").json()["in_order"]


def test_nothing_of_the_home_can_be_reached_from_outside(joined: Household) -> None:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        with pytest.raises(OSError, match=r"timed out|unreachable|refused"):
            probe.connect((joined.home.router_ip, 8080))
