"""GET /v1/nodes with a policy as its query string."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.verdicts import facts_of
from tests.unit.gateway.small_gateway import bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_model, a_row, node_id, some_specs


def with_nodes() -> NodeTable:
    """An expensive GPU in Germany, a cheap one in America, and an offline node without a region."""
    table = NodeTable()
    dear = a_model(quantization="FP8", completion_price_nano=340_000_000)
    table.connect(node_id(1), some_specs(dear, name="berlin", region="DE", gpu="NVIDIA A100-SXM4-80GB"), now_s=NOW_S)
    cold = a_model(state="on_disk", measured=None)
    table.connect(node_id(2), some_specs(cold, name="austin", region="us-south"), now_s=NOW_S)
    table.remember(node_id(3), some_specs(a_model(), name="away", region="local"), last_seen_unix_s=5.0)
    return table


async def ask(query: dict[str, str]) -> tuple[int, dict[str, Any]]:
    async with running(make_services(with_nodes())) as client:
        reply = await client.get("/v1/nodes", params=query, headers=bearer())
        return reply.status, await reply.json()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"region": "EU"}, ["berlin"]),
        ({"q": "region=EU,NA", "sort": "price"}, ["austin", "berlin"]),
        ({"q": "region=EU,NA", "sort": "throughput"}, ["berlin", "austin"]),
        ({"gpu_class": ">=a100"}, ["berlin"]),
        ({"gpu": "RTX 4090"}, ["austin", "away"]),
        ({"warm": "require"}, ["berlin", "away"]),
        ({"quantizations": "fp8"}, ["berlin"]),
        ({"max_price": "0.1"}, ["austin", "away"]),
        ({"min_throughput": "50"}, ["berlin", "away"]),
        ({"only": node_id(2).upper()}, ["austin"]),
        ({"sort": "price"}, ["austin", "berlin", "away"]),
    ],
)
async def test_only_the_nodes_that_a_query_allows_are_listed_in_its_order(
    query: dict[str, str], names: list[str]
) -> None:
    status, body = await ask(query)
    assert status == 200
    assert [node["name"] for node in body["data"]] == names
    assert body["total"] == 3


async def test_when_no_node_is_left_the_reply_has_the_reasons_and_relaxations() -> None:
    _, body = await ask({"q": "region=EU max_price=0.3"})
    assert body["data"] == []
    assert body["policy"] == {"region": ["EU"], "max_price": "0.3"}
    assert body["funnel"] == [
        {"filter": "region", "dropped": 2, "left": 1},
        {"filter": "max_price", "dropped": 1, "left": 0},
    ]
    assert body["nearest_relaxations"] == ["region EU→EU,US adds 1 node", "max_price 0.3→0.34 adds 1 node"]


@pytest.mark.parametrize("query", [{"uptime": ">=0.5"}, {"reputation": ">=0"}, {"compliance": "gdpr"}])
async def test_an_unknown_fact_satisfies_no_filter(query: dict[str, str]) -> None:
    assert (await ask(query))[1]["data"] == []


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [({"regoin": "EU"}, "unknown_field", "regoin"), ({"q": "uptime>=2"}, "invalid_value", "uptime")],
)
async def test_a_bad_query_is_refused_and_the_field_named(query: dict[str, str], code: str, param: str) -> None:
    status, body = await ask(query)
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, code, param)


async def test_without_a_query_the_list_has_no_policy() -> None:
    assert set((await ask({}))[1]) == {"object", "data"}


def test_a_node_without_models_has_facts() -> None:
    row = a_row(1)
    row.models = {}
    (facts,) = facts_of(row)
    assert (facts.model, facts.prompt_nano, facts.warm) == (None, None, False)
    assert facts.place == "EU"
