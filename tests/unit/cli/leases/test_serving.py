"""What `--serve` makes of an order, and what it says where something is missing."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.leases import engine, serving
from sparewatt.cli.leases.order_options import OrderDraft
from sparewatt.cli.leases.serving import ServingOrder, find_served, memory_gb
from sparewatt.leasing.orders.order_fields import read_order
from sparewatt.node.leases.runtime.model import RuntimeTrouble
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.leases.lease_replies import NOBODY, a_lease, a_quote, created, details

MODEL = ServingOrder("smollm2-135m", "localhost/sparewatt-serve:smollm2-135m", 98_000_000)


def completed(served: ServingOrder = MODEL, **fields: Any) -> dict[str, Any]:
    draft = OrderDraft({"image": served.image, **fields})
    served.complete(draft)
    return draft.fields


def test_an_order_that_serves_has_a_way_in_a_sealed_token_and_room_for_the_weights() -> None:
    order = read_order(completed())
    assert (order.content.gateway, order.content.secrets) == (True, ("SPAREWATT_NODE_TOKEN",))
    assert (order.name, order.gpus) == ("serve-smollm2-135m", 0)
    assert order.content.env == {"SPAREWATT_NODE_NAME": "serve-smollm2-135m"}
    assert order.memory_mib == read_order({"image": "a", "resources": {"memory_gb": 1.2}}).memory_mib


def test_what_the_renter_says_goes_before() -> None:
    fields = completed(
        name="mine",
        secrets=["HF"],
        resources={"gpus": 2, "memory_gb": 8},
        env={"SPAREWATT_NODE_NAME": "attic", "X": 1},
    )
    assert (fields["secrets"], fields["resources"]) == (["HF", "SPAREWATT_NODE_TOKEN"], {"gpus": 2, "memory_gb": 8})
    assert read_order(fields).content.env == {"SPAREWATT_NODE_NAME": "attic", "X": "1"}
    assert "SPAREWATT_NODE_NAME" not in str(completed(count=2).get("env")), "two nodes cannot share a name"
    assert "memory_gb" not in completed(ServingOrder("a", "registry.example/a:1", None))["resources"]


def test_memory_grows_with_the_weights() -> None:
    assert (memory_gb(0), memory_gb(98_000_000), memory_gb(4_000_000_000)) == (1.0, 1.2, 7.0)


def test_an_image_of_a_registry_needs_no_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_with_engine", lambda _work: pytest.fail("the engine was asked"))
    assert find_served("smollm2:135m", "registry.example/a:1") == ServingOrder(
        "smollm2-135m", "registry.example/a:1", None
    )


def test_no_engine_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine_trouble", lambda *_: RuntimeTrouble("none is there", "install one"))
    monkeypatch.setattr(engine, "last_started_network", lambda: None)
    monkeypatch.setattr(engine, "podman_spec", lambda _folder: None)
    with pytest.raises(CliError, match="none is there") as refused:
        find_served("smollm2-135m", None)
    assert refused.value.next_step == "install one"


def test_no_image_and_a_model_that_is_not_known_are_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_nothing(work: Any) -> None:
        del work

    monkeypatch.setattr(serving, "_with_engine", finds_nothing)
    with pytest.raises(CliError, match="no image on this machine that serves nonesuch") as refused:
        find_served("nonesuch", None)
    assert "lease image nonesuch --weights MODEL.gguf" in refused.value.next_step
    assert refused.value.exit_code is ExitCode.NOT_FOUND
    with pytest.raises(CliError, match="no name of a model") as bad:
        find_served("a b", None)
    assert bad.value.exit_code is ExitCode.USAGE


def test_nothing_secret_is_made_before_the_match(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/dry-run", a_quote())
    network.on("POST /v1/leases", created(a_lease(phase="sending", order_id=None, order=None)), status=201)
    network.on("GET /v1/leases/0123456789abcdef", details(a_lease()))
    result = run("lease", "create", "--serve", "smollm2-135m", "--image", "registry.example/a:1", "--no-wait")
    assert result.exit_code == 0
    bodies = [request.body for request in network.requests if request.path == "/v1/leases"]
    assert (bodies[0]["gateway"], bodies[0]["secrets"]) == (True, ["SPAREWATT_NODE_TOKEN"])
    assert not [request for request in network.requests if request.path == "/v1/join-tokens"]
    assert "lease secrets" in result.stderr


def test_an_order_that_nobody_serves_makes_no_token(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/leases/dry-run", NOBODY)
    result = run("lease", "create", "--serve", "smollm2-135m", "--image", "registry.example/a:1")
    assert result.exit_code == ExitCode.NO_MATCH
    assert not [request for request in network.requests if request.path == "/v1/join-tokens"]


def test_an_image_needs_a_model(run: Run) -> None:
    result = run("lease", "image")
    assert (result.exit_code, "--weights FILE" in result.stderr) == (ExitCode.USAGE, True)
