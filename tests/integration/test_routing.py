"""Policies on a real network: network, account, key and request say who may serve, and an absurd price gets no jobs."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import Reply, ask, chat_body
from tests.integration.cascade import is_serving, nodes
from tests.integration.networks import Network, start_network
from tests.integration.people import Person, send, sign_up
from tests.processes import end_process, start_process, tail, wait_until

CHAT = "/v1/chat/completions"
ABSURD_USD = "1000000"
DEARER = "max_price.prompt<=1000000 max_price.completion<=1000000"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """Three ordinary nodes, a quick one with an absurd price, and a network that serves nobody in Brazil."""
    folder = tmp_path_factory.mktemp("routing")
    env = {"SPAREWATT_GATEWAY_ROUTE": "region!=BR"}
    with ExitStack() as open_ones:
        found = open_ones.enter_context(start_network(folder, "--engine=deterministic", env=env, server=server))
        port = free_port()
        _start(open_ones, folder / "engine.txt", "sparewatt.testing", f"--port={port}", f"--model={found.model}")
        prices = [f"--prompt-usd-per-mtok={ABSURD_USD}", f"--completion-usd-per-mtok={ABSURD_USD}"]
        join = ["sparewatt", "node", "join", found.root_url, f"--token={found.ready['join_token']}", "--name=absurd"]
        backend = f"--backend=http://127.0.0.1:{port}"
        _start(open_ones, folder / "node.txt", *join, backend, f"--data={folder / 'node'}", "--region=eu-west", *prices)
        wait_until(lambda: is_serving(found, "absurd"), f"not serving; it said: {tail(folder / 'node.txt')}")
        yield found


def _start(open_ones: ExitStack, output: Path, *argv: str) -> None:
    process = start_process([sys.executable, "-m", *argv], output=output)
    open_ones.callback(end_process, process, signal.SIGKILL)


def chat(network: Network, *, key: str | None = None, **more: object) -> Reply:
    body = chat_body(network, "who are you", **({"max_tokens": 5} | more))
    return ask(network, "POST", CHAT, body, key=key)


def served_by(network: Network, reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return next(name for name, node in nodes(network).items() if node["id"] == reply.headers["x-sparewatt-node"])


def error_of(reply: Reply) -> tuple[int, str, str | None]:
    error = reply.error()
    return reply.status, error["code"], error["param"]


def key_with(network: Network, policy: object) -> str:
    made = ask(network, "POST", "/v1/keys", {"scopes": ["inference"], "policy": policy})
    assert made.status == 201, made.body
    key: str = made.json()["key"]
    return key


@pytest.fixture
def ann(network: Network) -> Person:
    return sign_up(network, f"ann-{secrets.token_hex(6)}@example.org")


# keys, accounts, the network


def test_a_key_holds_its_requests_to_its_policy(network: Network) -> None:
    key = key_with(network, {"region": "US"})
    assert served_by(network, chat(network, key=key)) == "node-2"
    assert served_by(network, chat(network, key=key, provider={"max_price": 5})) == "node-2"
    assert error_of(chat(network, key=key, provider={"region": "EU"})) == (403, "key_policy_violation", "region")
    assert error_of(chat(network, key=key, model=f"{network.model}@eu")) == (403, "key_policy_violation", "region")
    assert served_by(network, chat(network, model=f"{network.model}@eu")) == "node-1"


def test_a_policy_that_cannot_be_read_makes_no_key(network: Network) -> None:
    made = ask(network, "POST", "/v1/keys", {"scopes": ["inference"], "policy": {"regoin": "EU"}})
    assert (made.status, made.error()["code"]) == (400, "unknown_field")


def test_an_accounts_policy_holds_for_its_keys_and_its_browser(network: Network, ann: Person) -> None:
    assert send(network, "PATCH", "/v1/me", {"policy": {"region": "EU"}}, ann.browser.headers()).status == 200
    asked = {"model": network.model, "provider": {"region": "US"}}
    by_key = ask(network, "POST", "/v1/match", asked, key=ann.key)
    by_browser = send(network, "POST", "/v1/match", asked, ann.browser.headers())
    for reply in (by_key, by_browser):
        assert error_of(reply) == (403, "key_policy_violation", "region")
        assert "The account policy" in reply.error()["message"]
    allowed = send(network, "POST", "/v1/match", {"model": network.model}, ann.browser.headers())
    assert allowed.json()["policy_effective"]["region"] == ["EU"]


def test_nobody_widens_what_the_network_says(network: Network) -> None:
    reply = chat(network, provider={"region": ["DE", "BR"]})
    assert error_of(reply) == (403, "key_policy_violation", "region")
    assert "The network policy" in reply.error()["message"]


def test_a_typo_is_told_and_so_is_a_policy_that_leaves_nobody(network: Network) -> None:
    assert error_of(chat(network, provider={"regoin": "EU"})) == (400, "unknown_field", "provider.regoin")
    nobody = chat(network, provider={"uptime": ">=0.99"})
    assert error_of(nobody) == (503, "no_eligible_node", None)
    assert "uptime" in nobody.error()["message"]


def test_an_order_comes_first_and_a_name_may_be_all(network: Network) -> None:
    told = explained(network, chat(network, provider={"order": ["node-3", "node-2"]}))
    assert [candidate["name"] for candidate in told["ranked"]] == ["node-3"]
    assert told["attempts"][0]["name"] == "node-3"
    assert funnel_of(told) == {"usual_price": 1, "order": 2}
    assert served_by(network, chat(network, provider={"only": ["node-2"]})) == "node-2"


# prices


def test_an_absurd_price_gets_no_jobs_and_makes_no_hold_absurd(network: Network) -> None:
    for _ in range(5):  # the operator's credits would not pay for one such hold
        assert served_by(network, chat(network, provider={"region": "EU"})) == "node-1"
    only = chat(network, provider={"only": ["absurd"]})
    assert error_of(only) == (503, "no_eligible_node", None)
    assert "usual_price (1)" in only.error()["message"]


def test_whoever_names_such_a_price_is_held_to_it(network: Network) -> None:
    reply = chat(network, provider={"only": ["absurd"], "max_price": ABSURD_USD}, max_tokens=500)
    assert error_of(reply) == (402, "insufficient_credits", None)


def test_a_price_that_is_named_bounds_what_is_charged(network: Network) -> None:
    price = float(nodes(network)["node-1"]["models"][0]["price"]["completion_usd_per_mtok"])
    less, enough = (
        chat(network, provider={"only": ["node-1"], "max_price": {"completion": f"{price * share:.9f}"}})
        for share in (0.5, 1.01)
    )
    assert error_of(less) == (503, "no_eligible_node", None)
    used = enough.json()["usage"]
    assert 0 < used["cost"] <= price * 1.01e-6 * (used["completion_tokens"] + used["prompt_tokens"])


# explanations and the command line


def run(network: Network, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPAREWATT_")}
    env |= {"HOME": str(network.data.parent), "SPAREWATT_BASE_URL": network.base_url}
    env |= {"SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def explained(network: Network, reply: Reply) -> dict[str, Any]:
    told: dict[str, Any] = ask(network, "GET", f"/v1/matches/{reply.headers['x-sparewatt-match-id']}").json()
    return told


def funnel_of(told: dict[str, Any]) -> dict[str, int]:
    steps = told["funnel"]
    assert told["candidates_total"] - sum(step["dropped"] for step in steps) == steps[-1]["left"] >= 0
    return {step["filter"]: step["dropped"] for step in steps if step["dropped"]}


def test_an_explanation_shows_who_was_ruled_out_by_what(network: Network) -> None:
    told = explained(network, chat(network, provider={"region": "EU"}))
    assert funnel_of(told) == {"region": 2, "usual_price": 1}
    assert [candidate["name"] for candidate in told["ranked"]] == ["node-1"]


def test_a_dry_run_takes_a_route_and_sends_nothing(network: Network) -> None:
    shown = run(network, "match", network.model, "--route", "region=EU")
    assert shown.returncode == 0, shown.stderr
    assert "usual_price" in shown.stdout
    assert "Would go to node-1" in shown.stdout
    told = json.loads(run(network, "match", network.model, "--route", f"only=absurd {DEARER}", "--json").stdout)
    assert told["chosen"] == nodes(network)["absurd"]["id"]
    nobody = run(network, "match", network.model, "--route", "only=absurd")
    assert nobody.returncode != 0
    assert "max_price" in nobody.stdout
