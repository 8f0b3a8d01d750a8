"""Money all the way on a network of real processes: in by the chain, spent, earned, and out by the chain.

The chain and the process that follows it are killed in the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.anvil_binary import find_anvil
from tests.integration.asking import Reply, ask, chat_body
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import Person, sign_up
from tests.integration.test_up_chain import FLAGS, child_pid, ready_of, rpc, wait_for_chain

LOCAL_NODES = "acc_local_nodes"
TRIES_MAX = 5


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")
    env = {"SPAREWATT_GATEWAY_SIGNUP_CREDIT_USD": "0"}
    with start_network(tmp_path_factory.mktemp("money"), *FLAGS, chain=True, env=env) as started:
        wait_for_chain(started)
        yield started


def command(network: Network, *words: str, key: str) -> Any:
    env = {**os.environ, "SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": key}
    argv = [sys.executable, "-m", "sparewatt", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kill_the_chain(network: Network) -> None:
    """Both at once, as a machine that dies would."""
    for words in (("chain\0run",), ("anvil", "--chain-id")):
        os.kill(child_pid(network, *words), signal.SIGKILL)


def deposit_through_a_crash(network: Network, person: Person) -> list[Reply]:
    """Asked for once, then again by the same name for as long as the answer is that the chain is slow."""
    body, replies = {"usd": "2", "adapter": "chain", "id": "through"}, list[Reply]()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, network, "POST", "/v1/credits/deposit", body, key=person.key)
        wait_until(lambda: sum(outbox(network).values()) > 0, "nothing was decided")
        kill_the_chain(network)
        replies.append(asked.result(90))
    while replies[-1].status == 503 and len(replies) < TRIES_MAX:
        replies.append(ask(network, "POST", "/v1/credits/deposit", body, key=person.key))
    return replies


def outbox(network: Network) -> dict[str, int]:
    found: dict[str, int] = ask(network, "GET", "/v1/chain").json()["outbox"]
    return found


def spend(network: Network, person: Person) -> None:
    body = chat_body(network, "how much is the fish", max_tokens=200)
    assert ask(network, "POST", "/v1/chat/completions", body, key=person.key).status == 200
    wait_until(lambda: credits_of(network, person)["total_usage"] > 0, "the answer is not in the books")


def credits_of(network: Network, person: Person) -> dict[str, Any]:
    found: dict[str, Any] = ask(network, "GET", "/v1/credits", key=person.key).json()["data"]
    return found


def tokens_at(network: Network, address: str) -> int:
    data = "0x70a08231" + address.removeprefix("0x").rjust(64, "0")
    answer = rpc(network, "eth_call", {"to": ready_of(network)["contracts"]["token"], "data": data}, "latest")
    return int(answer or "0x0", 16)


def test_money_comes_in_is_spent_earned_and_goes_out_though_the_chain_is_killed(network: Network) -> None:
    person = sign_up(network, "ann@example.org")
    replies = deposit_through_a_crash(network, person)
    assert replies[-1].status in {200, 201}, replies[-1].body
    again = command(network, "credits", "deposit", "2", "--by", "chain", "--id", "through", key=person.key)
    assert not again["posted"]
    assert credits_of(network, person)["paid_nano"] == 2 * 10**9

    spend(network, person)
    batch = command(network, "payouts", "make", key=network.api_key)["batch"]
    wait_until(
        lambda: ask(network, "GET", f"/v1/payouts/batches/{batch['epoch']}").json()["state"] == "posted",
        "the root is not posted",
    )
    claimed = command(network, "payouts", "claim", "--account", LOCAL_NODES, key=network.api_key)
    (line,) = claimed["data"]
    assert (line["state"], line["amount_micro"]) == ("claimed", batch["added_micro"])
    assert tokens_at(network, line["address"]) == batch["added_micro"] > 0
    assert command(network, "payouts", "claim", "--account", LOCAL_NODES, key=network.api_key)["data"] == []
    (paid,) = command(network, "payouts", "list", "--account", LOCAL_NODES, key=network.api_key)["data"]
    assert paid["state"] == "claimed"
    assert command(network, "ledger", "audit", key=network.api_key)["in_order"]


def test_a_deposit_by_chain_is_refused_where_there_is_none(shared_network: Network) -> None:
    reply = ask(shared_network, "POST", "/v1/credits/deposit", {"usd": "1", "adapter": "chain"})
    assert (reply.status, reply.error()["code"]) == (409, "no_chain")
    assert ask(shared_network, "POST", "/v1/payouts/claim", {}).status == 409
