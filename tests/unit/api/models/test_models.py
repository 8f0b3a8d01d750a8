"""`/v1/models`: one entry per model, whatever the servers call it."""

from __future__ import annotations

from sparewatt.core.ids import AccountId
from sparewatt.gateway.services import Services
from tests.unit.gateway.small_gateway import bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs

Q4, Q8 = 4_920_000_000, 8_540_000_000


def with_three_servers() -> Services:
    services = make_services()
    reports = [
        [a_model(id="llama3.1:8b", quantization="Q4_K_M", weights_bytes=Q4)],
        [a_model(id="meta-llama/Llama-3.1-8B-Instruct", quantization=None, weights_bytes=0, state="on_disk")],
        [
            a_model(id="Llama-3.1-8B-Instruct-Q4_K_M.gguf", quantization="Q4_K_M", weights_bytes=Q4),
            a_model(id="Llama-3.1-8B-Instruct-Q8_0.gguf", quantization="Q8_0", weights_bytes=Q8),
        ],
    ]
    for number, models in enumerate(reports, start=1):
        specs = services.catalog.named(node_id(number), AccountId("acc_lender"), some_specs(*models))
        services.table.connect(node_id(number), specs, now_s=NOW_S)
    return services


async def test_three_servers_ids_of_one_model_are_one_entry_with_all_its_names() -> None:
    services = with_three_servers()
    services.links.set_aliases({"ours": "llama-3.1-8b"})
    async with running(services) as client:
        (model,) = (await (await client.get("/v1/models", headers=bearer())).json())["data"]
    assert model["id"] == "llama-3.1-8b"
    assert (model["nodes_online"], model["warm"]) == (3, 2)
    assert model["quantizations"] == ["Q4_K_M", "Q8_0"]
    assert model["aliases"][0] == "meta-llama/Llama-3.1-8B-Instruct"
    assert model["aliases"][-1] == "ours"


async def test_a_model_is_shown_by_any_of_its_names() -> None:
    async with running(with_three_servers()) as client:
        for name in ("llama-3.1-8b", "llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"):
            reply = await client.get(f"/v1/models/{name}", headers=bearer())
            assert (await reply.json())["id"] == "llama-3.1-8b"
        assert (await client.get("/v1/models/llama3.1:70b", headers=bearer())).status == 404


async def test_a_node_s_model_has_both_names() -> None:
    async with running(with_three_servers()) as client:
        shown = await (await client.get(f"/v1/nodes/{node_id(3)}", headers=bearer())).json()
    assert [(model["id"], model["served_as"]) for model in shown["models"]] == [
        ("llama-3.1-8b", "Llama-3.1-8B-Instruct-Q4_K_M.gguf"),
        ("llama-3.1-8b:q8_0", "Llama-3.1-8B-Instruct-Q8_0.gguf"),
    ]


async def test_a_dry_run_says_which_quantization_and_which_id_each_candidate_has() -> None:
    async with running(with_three_servers()) as client:
        reply = await client.post("/v1/match", headers=bearer(), json={"model": "llama3.1:8b"})
        told = await reply.json()
    assert told["model"] == "llama-3.1-8b"
    ranked = {node["node"]: (node["quantization"], node["served_as"]) for node in told["ranked"]}
    assert ranked[node_id(1)] == ("Q4_K_M", "llama3.1:8b")
    assert ranked[node_id(2)] == (None, "meta-llama/Llama-3.1-8B-Instruct")


async def test_models_come_in_pages_and_made_up_names_push_none_of_several_owners_off_the_first() -> None:
    services = make_services()
    made_up = [a_model(id=f"0-made-up-{number:03}") for number in range(200)]
    services.table.connect(node_id(1), some_specs(*made_up), now_s=NOW_S)
    services.table.set_owner(node_id(1), AccountId("acc_crowd"))
    for number in (2, 3):
        services.table.connect(node_id(number), some_specs(a_model(id="zephyr")), now_s=NOW_S)
        services.table.set_owner(node_id(number), AccountId(f"acc_{number}"))
    async with running(services) as client:
        first = await (await client.get("/v1/models", headers=bearer())).json()
        rest = await (await client.get("/v1/models", params={"after": first["next"]}, headers=bearer())).json()
        assert (await client.get("/v1/models", params={"limit": "201"}, headers=bearer())).status == 400
    ids = [model["id"] for page in (first, rest) for model in page["data"]]
    assert (len(first["data"]), ids[0], rest["next"]) == (200, "zephyr", None)
    assert sorted(ids) == sorted({"zephyr", *(model.id for model in made_up)})


ANTHROPIC = {**bearer(), "anthropic-version": "2023-06-01"}


async def test_clients_of_anthropic_get_models_in_their_shape() -> None:
    async with running(with_three_servers()) as client:
        page = await (await client.get("/v1/models", headers=ANTHROPIC)).json()
        one = await (await client.get("/v1/models/llama3.1:8b", headers=ANTHROPIC)).json()
        gone = await client.get("/v1/models/other", headers=ANTHROPIC)
        assert (await gone.json())["error"]["type"] == "not_found_error"
    assert [(model["type"], model["id"]) for model in page["data"]] == [("model", "llama-3.1-8b")]
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("llama-3.1-8b", "llama-3.1-8b", False)
    assert (one["id"], one["display_name"]) == ("llama3.1:8b", "llama-3.1-8b")


async def test_pages_of_anthropic_continue_after_a_name() -> None:
    services = make_services()
    services.table.connect(node_id(1), some_specs(*(a_model(id=name) for name in "abc")), now_s=NOW_S)
    async with running(services) as client:
        first = await (await client.get("/v1/models?limit=2", headers=ANTHROPIC)).json()
        second = await (await client.get("/v1/models?limit=2&after_id=b", headers=ANTHROPIC)).json()
        assert (await client.get("/v1/models?limit=0", headers=ANTHROPIC)).status == 400
    assert ([model["id"] for model in first["data"]], first["has_more"]) == (["a", "b"], True)
    assert ([model["id"] for model in second["data"]], second["has_more"]) == (["c"], False)
