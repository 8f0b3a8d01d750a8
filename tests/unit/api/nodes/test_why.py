"""Why a node gets no jobs: explained to its owner and to operators, over the last matches."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.api.nodes.why import match_report_of
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import MATCHES_LOOKED_BACK_MAX
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.why import WhyReport
from tests.unit.api.matches.test_matches import fail_some
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, bearer, make_services, running
from tests.unit.inference.nodes import a_model, a_table, node_id, some_specs


async def why(services: Services, node: str, *, secret: str = LENDER, query: str = "") -> tuple[int, dict[str, Any]]:
    async with running(services) as client:
        reply = await client.get(f"/v1/nodes/{node}/why{query}", headers=bearer(secret))
        return reply.status, await reply.json()


@pytest.mark.parametrize(("secret", "status"), [(LENDER, 200), (ADMIN, 200), (USER, 403), ("sk-sw-unknown", 401)])
async def test_owners_and_operators_get_the_report(secret: str, status: int) -> None:
    assert (await why(make_services(a_table(1)), node_id(1), secret=secret))[0] == status


async def test_the_owner_of_other_nodes_is_refused() -> None:
    services = make_services(a_table(1))
    services.links.owners.clear()
    status, report = await why(services, node_id(1))
    assert (status, report["error"]["code"]) == (403, "not_owner")
    assert "another account" in report["error"]["message"]


async def test_the_report_has_numbers_and_sentences() -> None:
    services = make_services(a_table(1))
    fail_some(services, 3)
    status, report = await why(services, node_id(1).upper().replace("0X", "0x"))
    assert status == 200
    assert report == {
        "node": node_id(1),
        "name": "attic",
        "matches": 3,
        "chosen": 0,
        "outcomes": {},
        "lost": {"count": 0, "mean_gap_s": None, "worst_parts_s": {}},
        "rejected": {"model": 3},
        "ruled_out": 0,
        "unlisted": 0,
        "wanted": [],
        "sentences": ["The node got no job in the last 3 matches.", "It did not have the model in 3 of them."],
    }


async def test_a_node_is_named_by_its_name_if_no_other_has_it() -> None:
    table = a_table(2)
    table.connect(node_id(3), some_specs(a_model(), name="cellar"), now_s=0)
    services = make_services(table)
    assert (await why(services, "cellar"))[1]["node"] == node_id(3)
    status, report = await why(services, "attic")
    assert (status, "2 nodes" in report["error"]["message"]) == (404, True)
    assert (await why(services, "nobody"))[0] == 404


async def test_a_node_is_named_by_the_start_of_its_address_if_no_other_has_it() -> None:
    mine, other = node_id(1), NodeId("0xabcdef" + "0" * 34)
    table = a_table(1)
    table.connect(other, some_specs(a_model(), name="cellar"), now_s=0)
    services = make_services(table)
    assert (await why(services, "0xABCDEF00"))[1]["node"] == other
    assert (await why(services, mine[:10]))[1]["node"] == mine
    assert (await why(services, "0xab"))[0] == 404
    twice = NodeId("0xabcdef" + "1" * 34)
    table.connect(twice, some_specs(a_model(), name="cellar"), now_s=0)
    status, report = await why(make_services(table), "0xabcdef")
    assert (status, "2 nodes" in report["error"]["message"]) == (404, True)


async def test_matches_from_before_a_node_joined_do_not_count() -> None:
    services = make_services(a_table(1))
    fail_some(services, 3)
    services.links.joined_unix_s[node_id(1)] = services.clock.unix_s() + 1
    assert (await why(services, node_id(1)))[1]["matches"] == 0


async def test_only_the_last_matches_count() -> None:
    services = make_services(a_table(1))
    fail_some(services, 5)
    assert (await why(services, node_id(1), query="?last=2"))[1]["matches"] == 2


@pytest.mark.parametrize("last", ["0", "-1", "x", "", "1.5", str(MATCHES_LOOKED_BACK_MAX + 1), "9" * 5000, "²"])
async def test_a_count_out_of_range_or_no_number_is_refused(last: str) -> None:
    status, report = await why(make_services(a_table(1)), node_id(1), query=f"?last={last}")
    assert (status, report["error"]["param"]) == (400, "last")


def test_the_report_ends_with_what_the_owner_should_know_about_the_price() -> None:
    row = a_table(1).get(node_id(1))
    assert row is not None
    told = match_report_of(WhyReport(), row, price_notices=["Its price is above $2."])
    assert told.sentences == ["There was no match yet.", "Its price is above $2."]
    assert match_report_of(WhyReport(), row).sentences == ["There was no match yet."]
