"""The local nodes become providers by the network's own API, step by step and as often as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.localnet import providers
from sparewatt.localnet.providers import BOND_USD, BONDS_MAX, TRIES_MAX, LocalProviders, OwnerApi
from tests.unit.cli.fake_network import running

NODES = [NodeId("0x" + digit * 40) for digit in "12"]


class FakeGateway:
    """Answers by a script: `bonds` is what each provider has; `refusals` are given first."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.bonds: dict[str, int] = {}
        self.refusals: list[tuple[int, dict[str, Any]]] = []
        self.bond_fails = 0

    async def register_all(self, node_ids: Sequence[NodeId]) -> None:
        await LocalProviders(self.send, self.said.append, "sparewatt").register_all(node_ids)

    def send(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.calls.append((path, body))
        if self.refusals:
            return self.refusals.pop()
        if path == "/providers":
            return 201, {"provider": self.provider(f"p{body['node'][2]}")}
        name = path.split("/")[2]
        if self.bond_fails:
            self.bond_fails -= 1
        else:
            self.bonds[name] = 10**10
        return 201, {"provider": self.provider(name)}

    def provider(self, name: str) -> dict[str, Any]:
        return {"id": name, "bond_nano": self.bonds.get(name, 0)}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "RETRY_S", 0.0)


async def test_each_node_is_registered_and_bonded() -> None:
    gateway = FakeGateway()
    await gateway.register_all(NODES)
    assert sorted(path for path, _ in gateway.calls) == [
        "/providers",
        "/providers",
        "/providers/p1/bond",
        "/providers/p2/bond",
    ]
    assert ("/providers/p1/bond", {"usd": BOND_USD, "id": "up-p1-0"}) in gateway.calls
    assert "2 nodes are registered" in gateway.said[0]


async def test_a_second_start_bonds_nothing_again() -> None:
    gateway = FakeGateway()
    gateway.bonds = {"p1": 1, "p2": 1}
    await gateway.register_all(NODES)
    assert [path for path, _ in gateway.calls] == ["/providers", "/providers"]


async def test_a_bond_of_an_earlier_chain_is_asked_for_under_another_id() -> None:
    gateway = FakeGateway()
    gateway.bond_fails = 1
    await gateway.register_all(NODES[:1])
    assert [body["id"] for path, body in gateway.calls if "bond" in path] == ["up-p1-0", "up-p1-1"]


async def test_a_bond_that_is_never_made_is_told() -> None:
    gateway = FakeGateway()
    gateway.bond_fails = 100
    await gateway.register_all(NODES[:1])
    assert len(gateway.calls) == 1 + BONDS_MAX
    assert "sparewatt providers register" in gateway.said[0]


@pytest.mark.parametrize("status", [0, 409, 429, 503])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    gateway = FakeGateway()
    gateway.refusals = [(status, {})] * 3
    await gateway.register_all(NODES[:1])
    assert "registered" in gateway.said[0]


async def test_a_refusal_is_told_in_the_gateways_words() -> None:
    gateway = FakeGateway()
    gateway.refusals = [(422, {"error": {"message": "the contract says KEY_TAKEN."}})]
    await gateway.register_all(NODES[:1])
    assert len(gateway.calls) == 1
    assert "KEY_TAKEN" in gateway.said[0]


async def test_a_gateway_that_never_answers_is_given_up() -> None:
    gateway = FakeGateway()
    gateway.refusals = [(503, {})] * 1_000
    await gateway.register_all(NODES[:1])
    assert len(gateway.calls) == TRIES_MAX


async def test_nothing_is_said_without_nodes() -> None:
    gateway = FakeGateway()
    await gateway.register_all([])
    assert gateway.said == []


def test_the_owners_api_is_called_with_the_owners_key() -> None:
    with running() as network:
        network.on("POST /v1/providers", {"provider": {}}, status=201)
        network.fail("POST /v1/providers/p/bond", 422, "unprocessable", "no")
        api = OwnerApi(network.base_url, "sk-sw-owner")
        assert api.send("/providers", {"node": "n"}) == (201, {"provider": {}})
        status, reply = api.send("/providers/p/bond", {"usd": "1"})
        assert (status, reply["error"]["message"]) == (422, "no")
    assert network.requests[0].headers["Authorization"] == "Bearer sk-sw-owner"
    assert network.requests[0].body == {"node": "n"}
    assert api.send("/providers", {}) == (0, {}), "nobody listens any more"
