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
    assert set((await ask({}))[1]) == {"object", "data", "next"}


def test_a_node_without_models_has_facts() -> None:
    row = a_row(1)
    row.models = {}
    (facts,) = facts_of(row)
    assert (facts.model, facts.prompt_nano, facts.warm) == (None, None, False)
    assert facts.place == "EU"


# pages


def crowd(count: int, *, models: int = 1) -> NodeTable:
    table = NodeTable()
    for number in range(1, count + 1):
        reports = [a_model(id=f"m{each}") for each in range(models)]
        table.connect(node_id(number), some_specs(*reports, name=f"n{number % 7}"), now_s=NOW_S)
    return table


async def read_pages(table: NodeTable, query: dict[str, str]) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    async with running(make_services(table)) as client:
        while not pages or pages[-1]["next"] is not None:
            after = {"after": pages[-1]["next"]} if pages else {}
            reply = await client.get("/v1/nodes", params={**query, **after}, headers=bearer())
            assert reply.status == 200
            pages.append(await reply.json())
    return pages


@pytest.mark.parametrize("query", [{}, {"sort": "price"}, {"region": "EU", "sort": "throughput"}])
async def test_all_pages_together_have_every_node_once(query: dict[str, str]) -> None:
    table = crowd(25)
    pages = await read_pages(table, {**query, "limit": "10"})
    ids = [node["id"] for page in pages for node in page["data"]]
    allowed = pages[0].get("allowed", 25)
    assert (len(ids), len(set(ids))) == (allowed, allowed)
    assert [len(page["data"]) for page in pages][:-1] == [10] * (len(pages) - 1)


async def test_a_page_has_at_most_200_nodes() -> None:
    pages = await read_pages(crowd(201), {})
    assert [len(page["data"]) for page in pages] == [200, 1]


async def test_a_page_of_nodes_with_very_many_models_ends_earlier_and_loses_none() -> None:
    pages = await read_pages(crowd(25, models=200), {})
    assert [len(page["data"]) for page in pages] == [10, 10, 5]


async def test_a_filter_counts_the_nodes_of_all_pages() -> None:
    for page in await read_pages(crowd(25), {"gpu": "RTX 4090", "limit": "10"}):
        assert (page["total"], page["allowed"]) == (25, 25)


@pytest.mark.parametrize("query", [{"limit": "201"}, {"limit": "0"}, {"after": "nonsense"}])
async def test_a_page_that_cannot_be_is_refused(query: dict[str, str]) -> None:
    assert (await ask(query))[0] == 400


async def test_a_cursor_of_another_query_is_refused() -> None:
    async with running(make_services(crowd(3))) as client:
        first = await (await client.get("/v1/nodes", params={"limit": "1"}, headers=bearer())).json()
        query = {"limit": "1", "sort": "price", "after": first["next"]}
        assert (await client.get("/v1/nodes", params=query, headers=bearer())).status == 400
