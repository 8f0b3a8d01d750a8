"""Three honest nodes of three owners and one that answers from another model, with real processes: it is found and gets
no more paid traffic within twenty of its jobs, its pay is forfeited, and honest newcomers are paid within the hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import ask
from tests.integration.databases import migrated_database
from tests.integration.hostile_nodes.honest import HonestNode
from tests.integration.networks import Network
from tests.integration.operated import MODEL, bare_environment, engine_argv, operated_gateway, process, sparewatt
from tests.integration.people import Person, give_credits, sign_up
from tests.processes import wait_until

HONEST, LIAR = ("ada", "ben", "cleo"), "mallory"
JOBS_MAX = 20
SETTLED_S = 60.0
FAST_TPS, HONEST_TPS = 2_000.0, 400.0


class CheckedNetwork:
    def __init__(self, network: Network, nodes: Sequence[HonestNode], client: Person) -> None:
        self.network, self.nodes, self.client = network, nodes, client

    def ids(self) -> dict[str, str]:
        return {node["name"]: node["id"] for node in ask(self.network, "GET", "/v1/nodes").json()["data"]}

    def checks(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = ask(self.network, "GET", f"/v1/nodes/{self.ids()[name]}/checks").json()
        return found

    def chat(self, number: int, **more: Any) -> str:
        """Answers the question and returns who served it."""
        messages = [{"role": "user", "content": f"Question {number}: what is new?"}]
        body = {"model": MODEL, "messages": messages, "max_tokens": 40, **more}
        reply = ask(self.network, "POST", "/v1/chat/completions", body, key=self.client.key)
        assert reply.status == 200, reply.json()
        return str(reply.headers["x-sparewatt-node"])

    def summary(self, owner: Person) -> dict[str, Any]:
        found: dict[str, Any] = ask(self.network, "GET", "/v1/earnings/summary", key=owner.key).json()["data"]
        return found


@contextmanager
def checked_network(folder: Path, *, database_url: str) -> Iterator[CheckedNetwork]:
    env = bare_environment(
        folder,
        SPAREWATT_GATEWAY_DATABASE_URL=database_url,
        SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR="100",
        SPAREWATT_GATEWAY_HEARTBEAT_S="1",
    )
    with ExitStack() as stack:
        network = stack.enter_context(operated_gateway(folder, env=env))
        nodes = [start_node(stack, network, folder, name, env=env) for name in (*HONEST, LIAR)]
        client = give_credits(network, sign_up(network, "client@example.org"), usd="20")
        wait_until(lambda: all(node.is_serving([MODEL]) for node in nodes), "not all serve", ceiling_s=120.0)
        yield CheckedNetwork(network, nodes, client)


def start_node(stack: ExitStack, network: Network, folder: Path, name: str, *, env: dict[str, str]) -> HonestNode:
    port, is_liar = free_port(), name == LIAR
    argv = engine_argv(port, decode_tps=FAST_TPS if is_liar else HONEST_TPS, weights=int(is_liar))
    stack.enter_context(process(argv, folder / f"engine-{name}.log", env=env))
    node = HonestNode(
        name=name,
        network=network,
        owner=sign_up(network, f"{name}@example.org"),
        backend_url=f"http://127.0.0.1:{port}",
        folder=folder,
        env=env,
    )
    node.start()
    stack.callback(node.stop)
    return node


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[CheckedNetwork]:
    url = asyncio.run(migrated_database(server))
    with checked_network(tmp_path_factory.mktemp("checked"), database_url=url) as found:
        yield found


def test_a_node_that_answers_from_another_model_is_out_within_twenty_jobs(checked: CheckedNetwork) -> None:
    liar, served = checked.ids()[LIAR], []
    for number in range(200):
        served.append(checked.chat(number, temperature=number % 2))
        if checked.checks(LIAR)["state"] in {"suspect", "barred"}:
            break
    assert checked.checks(LIAR)["state"] in {"suspect", "barred"}
    assert served.count(liar) <= JOBS_MAX
    after = [checked.chat(1_000 + number) for number in range(30)]
    assert liar not in after
    wait_until(lambda: checked.checks(LIAR)["state"] == "barred", "it is not barred", ceiling_s=SETTLED_S)


def test_honest_nodes_pass_and_their_pay_becomes_payable(checked: CheckedNetwork) -> None:
    def is_paid(node: HonestNode) -> bool:
        summary = checked.summary(node.owner)
        return int(summary["pending_nano"] + summary["promo_nano"]) > 0

    wait_until(lambda: all(map(is_paid, checked.nodes[:3])), "an honest node is not paid", ceiling_s=SETTLED_S)
    for node in checked.nodes[:3]:
        found = checked.checks(node.name)
        assert found["state"] == "passing", found
        assert not [verdict for verdict in found["verdicts"] if verdict["result"] == "failed"]


def test_the_liar_forfeits_what_it_earned(checked: CheckedNetwork) -> None:
    def has_lost() -> bool:
        summary = checked.summary(checked.nodes[3].owner)
        return bool(summary["pending_nano"] == summary["promo_nano"] == 0)

    wait_until(lambda: checked.checks(LIAR)["state"] == "barred", "it is not barred", ceiling_s=SETTLED_S)
    assert has_lost()
    audit = ask(checked.network, "GET", "/v1/ledger/audit").json()
    assert audit["in_order"], audit


def test_a_verdict_is_replayed_from_what_was_published(checked: CheckedNetwork) -> None:
    failed = [verdict for verdict in checked.checks(LIAR)["verdicts"] if verdict["result"] == "failed"]
    probe = next(verdict for verdict in failed if verdict["kind"] == "probe")
    key = {"SPAREWATT_API_KEY": checked.client.key, "SPAREWATT_BASE_URL": checked.network.base_url}
    env = bare_environment(checked.nodes[0].folder, **key)
    replayed = sparewatt("trust", "replay", probe["id"], env=env)
    assert replayed.returncode == 0, replayed.stderr
    assert "holds" in replayed.stdout
    shown = sparewatt("node", "why", LIAR, "--trust", env=env)
    assert shown.returncode == 0, shown.stderr
    assert "forfeited" in shown.stdout


def test_strangers_see_no_verdict_on_a_customers_request_and_no_text_of_it(checked: CheckedNetwork) -> None:
    honest, stranger = checked.nodes[0], checked.client
    path = f"/v1/nodes/{checked.ids()[honest.name]}/checks"
    kinds = {verdict["kind"] for verdict in ask(checked.network, "GET", path, key=stranger.key).json()["verdicts"]}
    assert kinds <= {"probe"}
    mine = ask(checked.network, "GET", path, key=honest.owner.key).json()["verdicts"]
    reruns = [verdict for verdict in mine if verdict["kind"] == "rerun"]
    assert all(answer["text"] is None for verdict in reruns for answer in verdict["answers"])
    assert all(verdict["seed"] is None and verdict["prompt"] is None for verdict in reruns)


def test_the_owner_gets_one_retrial_and_a_third_node_decides(checked: CheckedNetwork) -> None:
    owner = checked.nodes[3].owner
    verdicts = checked.checks(LIAR)["verdicts"]
    failed = next(verdict for verdict in verdicts if verdict["result"] == "failed" and verdict["kind"] == "probe")
    path = f"/v1/verdicts/{failed['id']}/retrial"
    refused = ask(checked.network, "POST", path, {}, key=checked.client.key)
    assert refused.status == 403, refused.body
    reply = ask(checked.network, "POST", path, {}, key=owner.key)
    # All three honest nodes were on the panel: nobody is left to ask, and the right to ask is kept.
    assert reply.status == 409, reply.body
    assert reply.error()["code"] == "retrial_refused"
    assert "No node that had no part" in reply.error()["message"]
