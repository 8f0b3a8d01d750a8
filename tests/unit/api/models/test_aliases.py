"""`/v1/model-aliases`: an operator's word for what an id means, from the request to the names of nodes' models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparewatt.gateway.services import Services
from tests.unit.gateway.small_gateway import ADMIN, USER, Client, make_services, running
from tests.unit.inference.fleet.test_alias_service import MemoryAliases
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs

PATH = "/v1/model-aliases"
OPERATOR = {"authorization": f"Bearer {ADMIN}"}


@asynccontextmanager
async def a_gateway() -> AsyncIterator[tuple[Client, Services]]:
    services = make_services()
    services.aliases.store = MemoryAliases()
    services.table.connect(node_id(1), some_specs(a_model(id="org/ours", weights_bytes=0)), now_s=NOW_S)
    async with running(services) as client:
        yield client, services


async def test_an_alias_holds_at_once_until_it_is_removed() -> None:
    async with a_gateway() as (client, services):
        made = await client.post(PATH, headers=OPERATOR, json={"name": "org/ours", "target": "llama3.1:8b"})
        assert (made.status, (await made.json())["target"]) == (201, "llama-3.1-8b")
        assert services.table.model_ids() == {"llama-3.1-8b"}
        listed = await (await client.get(PATH, headers=OPERATOR)).json()
        assert [(alias["name"], alias["target"]) for alias in listed["data"]] == [("org/ours", "llama-3.1-8b")]
        dropped = await client.delete(f"{PATH}/org/ours", headers=OPERATOR)
        assert (dropped.status, (await dropped.json())["name"]) == (200, "org/ours")
        assert services.table.model_ids() == {"org/ours"}
        assert (await client.delete(f"{PATH}/org/ours", headers=OPERATOR)).status == 404


async def test_a_name_that_is_none_is_refused() -> None:
    async with a_gateway() as (client, _):
        for body in (
            {"name": "a b", "target": "m"},
            {"name": "", "target": "m"},
            {"name": "m"},
            {"name": "m", "target": "m"},
        ):
            assert (await client.post(PATH, headers=OPERATOR, json=body)).status == 400


async def test_only_operators_decide_what_models_are_called() -> None:
    async with a_gateway() as (client, services):
        user = {"authorization": f"Bearer {USER}"}
        for reply in (
            await client.get(PATH, headers=user),
            await client.post(PATH, headers=user, json={"name": "org/ours", "target": "m"}),
            await client.delete(f"{PATH}/org/ours", headers=user),
        ):
            assert reply.status == 403
        assert services.table.model_ids() == {"org/ours"}
