from __future__ import annotations

from tests.unit.api.models.test_models import Q8, with_three_servers
from tests.unit.gateway.small_gateway import bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs


async def test_the_version_needs_no_key() -> None:
    async with running(make_services()) as client:
        assert set(await (await client.get("/api/version")).json()) == {"version"}


async def test_a_model_of_three_servers_is_listed_once() -> None:
    async with running(with_three_servers()) as client:
        (model,) = (await (await client.get("/api/tags", headers=bearer())).json())["models"]
    assert (model["name"], model["model"], model["size"]) == ("llama-3.1-8b", "llama-3.1-8b", Q8)
    assert model["details"]["quantization_level"] == "Q4_K_M"


async def test_only_loaded_models_are_running() -> None:
    services = make_services()
    models = a_model(id="warm", state="warm"), a_model(id="cold", state="on_disk")
    services.table.connect(node_id(1), some_specs(*models), now_s=NOW_S)
    async with running(services) as client:
        running_models = (await (await client.get("/api/ps", headers=bearer())).json())["models"]
    assert [model["name"] for model in running_models] == ["warm"]


async def test_a_digest_is_shown_only_where_nodes_agree() -> None:
    services = make_services()
    for number, digest in enumerate(("sha256:aa", "sha256:aa", "sha256:bb"), start=1):
        model = a_model(id="m" if number < 3 else "other", weights_digest=digest)
        services.table.connect(node_id(number), some_specs(model), now_s=NOW_S)
    services.table.connect(node_id(4), some_specs(a_model(id="other", weights_digest="sha256:cc")), now_s=NOW_S)
    async with running(services) as client:
        listed = (await (await client.get("/api/tags", headers=bearer())).json())["models"]
    assert {model["name"]: model["digest"] for model in listed} == {"m": "aa", "other": ""}


async def test_a_model_is_shown_by_any_of_its_names_and_with_a_tag() -> None:
    async with running(with_three_servers()) as client:
        for body in ({"model": "llama-3.1-8b:latest"}, {"name": "meta-llama/Llama-3.1-8B-Instruct"}):
            shown = await (await client.post("/api/show", json=body, headers=bearer())).json()
            assert "completion" in shown["capabilities"]
            assert shown["model_info"]["general.architecture"] == "sparewatt"


async def test_an_unknown_or_missing_name_is_refused() -> None:
    async with running(with_three_servers()) as client:
        for body, status in (({"model": "other"}, 404), ({}, 400)):
            reply = await client.post("/api/show", json=body, headers=bearer())
            assert (reply.status, list(await reply.json())) == (status, ["error"])
