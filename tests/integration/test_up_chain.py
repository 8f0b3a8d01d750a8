"""The chain of a whole network: up beside it, killed under it, kept over a restart, and done without."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.evm.log_reader import BlockBatch, LogReader
from sparewatt.localnet.anvil_binary import find_anvil
from sparewatt.market.chain_view import ChainView
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database
from tests.integration.asking import ask, stream_chat
from tests.integration.networks import Network, start_network
from tests.processes import alive, descendants_of, wait_until

SOMEBODY = "0x" + "5e" * 20
FLAGS = ("--engine=deterministic", "--nodes=1", "--validators=0")
"""Validators send transactions whenever they are due, which these tests would count."""


@pytest.fixture(scope="module", autouse=True)
def _anvil_is_there() -> None:
    from sparewatt.core.errors import StartupError

    try:
        asyncio.run(find_anvil(notify=print))
    except StartupError as error:
        pytest.skip(f"NO CHAIN TO TEST AGAINST: {error.message}")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with start_network(tmp_path_factory.mktemp("chain"), *FLAGS, chain=True) as started:
        wait_for_chain(started)
        yield started


def ready_of(network: Network) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((network.data / "ready.json").read_text())
    return found


def wait_for_chain(network: Network) -> None:
    """Until it is up, and has what the network sends by itself: the registration of its nodes."""
    wait_until(lambda: ready_of(network)["chain_url"] is not None, "ready.json names no chain")
    wait_until(lambda: "providers of leases" in network.output.read_text(), "its nodes are not registered")
    wait_until(lambda: set(outbox(network)) == {"final"}, "the registration is not final")


def rpc(network: Network, method: str, *params: object) -> Any:
    """Through the gateway's door; None while the chain is away."""
    reply = ask(network, "POST", "/v1/chain/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return reply.json().get("result") if reply.status == 200 else None


def child_pid(network: Network, *words: str) -> int:
    found = []
    for pid, _ in network.descendants():
        with suppress(OSError):  # it has ended by itself
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            if all(word in command for word in words):
                found.append(pid)
    assert len(found) == 1, found
    return found[0]


def decide(network: Network, first: int, count: int) -> None:
    async def do() -> None:
        database = await Database.connect(EmbeddedPostgres(network.data / "postgres").dsn)
        for number in range(first, first + count):
            name, data = f"test:{number}", number.to_bytes(4, "big")
            await database.chain.enqueue(business_id=name, sender=operator(network), recipient=SOMEBODY, data=data)
        await database.close()

    asyncio.run(do())


def operator(network: Network) -> str:
    return SigningKey.read(network.data / "chain" / "operator.key").address


def transactions_of(network: Network) -> int:
    """Of the operator."""
    return int(rpc(network, "eth_getTransactionCount", operator(network), "latest"), 16)


def outbox(network: Network) -> dict[str, int]:
    found: dict[str, int] = ask(network, "GET", "/v1/chain").json()["outbox"]
    return found


def test_a_network_comes_with_a_chain_and_says_where(network: Network) -> None:
    ready = ready_of(network)
    assert ready["chain_url"].startswith("http://127.0.0.1:")
    assert isinstance(ready["contracts"], dict)
    assert rpc(network, "eth_chainId") == hex(31337)
    assert rpc(network, "eth_accounts") is None
    assert "The chain is up" in network.output.read_text()


def test_the_command_line_shows_it(network: Network) -> None:
    env = {**os.environ, "SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", "chain", "status", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=30, check=True)
    assert json.loads(done.stdout)["chain_id"] == 31337


def market_providers(network: Network) -> list[dict[str, Any]]:
    reply = ask(network, "GET", "/v1/market/providers")
    found: list[dict[str, Any]] = reply.json()["data"] if reply.status == 200 else []
    return found


def test_the_market_shows_the_node_as_a_provider_also_after_the_index_was_rebuilt(network: Network) -> None:
    wait_until(lambda: [p["status"] for p in market_providers(network)] == ["active"], "no provider is registered")
    (before,) = market_providers(network)
    assert before["node_key"] == ask(network, "GET", "/v1/nodes").json()["data"][0]["id"]
    validators = ask(network, "GET", "/v1/market/validators").json()
    assert (validators["stake_version"], validators["data"], validators["snapshot"]) == (0, [], None)
    assert ask(network, "GET", "/v1/market/orders").json()["data"] == []
    rebuild_index(network)
    wait_until(lambda: [p["id"] for p in market_providers(network)] == [before["id"]], "the provider is gone")


def test_whoever_has_a_key_reads_the_market_from_the_chain_itself(network: Network) -> None:
    """As a node or a validator behind NAT does: through the gateway's proxy, without web3 and without Postgres."""
    wait_until(lambda: market_providers(network) != [], "no provider is registered")
    view = asyncio.run(read_market(network))
    told = {provider["id"]: provider["node_key"] for provider in market_providers(network)}
    assert {address: provider.node_key for address, provider in view.latest.providers.items()} == told


async def read_market(network: Network) -> ChainView:
    chain = ask(network, "GET", "/v1/chain").json()
    transport = HttpTransport(f"{network.base_url}/chain/rpc", api_key=network.api_key)
    try:
        client = EvmClient(RpcClient(transport, SystemClock()))
        contracts = Contracts(shipped_abis(), chain["contracts"])
        reader = LogReader(client, contracts, await client.identity(), chain["start_block"])
        view = ChainView(depth=1, start_block=chain["start_block"])
        while reader.block_number < chain["indexed_block"]:
            step = await reader.step()
            assert isinstance(step, BlockBatch)
            view.advance(step.events, to_block=step.block.number)
        return view
    finally:
        await transport.close()


def rebuild_index(network: Network) -> dict[str, Any]:
    env = {**os.environ, "CHAIN_URL": ready_of(network)["chain_url"]}
    argv = [sys.executable, "-m", "sparewatt", "chain", "sync", "--rebuild", "--json", f"--data={network.data}/chain"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_index_can_be_rebuilt_beside_a_running_network(network: Network) -> None:
    assert set(rebuild_index(network)) == {"indexed_block", "events"}


def test_anvil_and_its_follower_killed_in_the_middle_of_a_flow_lose_and_repeat_nothing(network: Network) -> None:
    """Everything recovers by itself: nobody is told to do anything."""
    before, sent = outbox(network)["final"], transactions_of(network)
    decide(network, 0, 10)
    os.kill(child_pid(network, "anvil", "--chain-id"), signal.SIGKILL)
    decide(network, 10, 10)
    wait_until(lambda: rpc(network, "eth_chainId") is not None, "the chain is not back")
    os.kill(child_pid(network, "chain\0run"), signal.SIGKILL)
    decide(network, 20, 10)
    os.kill(child_pid(network, "anvil", "--chain-id"), signal.SIGKILL)
    wait_until(lambda: outbox(network) == {"final": before + 30}, "not everything is final", ceiling_s=60)
    assert transactions_of(network) == sent + 30
    assert stream_chat(network, "answers go on").done


def test_a_restart_keeps_the_chain_and_kill_9_leaves_nothing_of_it(tmp_path: Path) -> None:
    with start_network(tmp_path, *FLAGS, chain=True) as one:
        wait_for_chain(one)
        before, sent = outbox(one)["final"], transactions_of(one)
        decide(one, 0, 3)
        wait_until(lambda: outbox(one) == {"final": before + 3}, "not everything is final")
        genesis = rpc(one, "eth_getBlockByNumber", "0x0", False)["hash"]
        below = descendants_of(one.pid)
        os.kill(one.pid, signal.SIGKILL)
        one.process.wait(10)
        wait_until(lambda: not alive(below), "all processes of the network gone")
    with start_network(tmp_path, *FLAGS, chain=True) as again:
        wait_for_chain(again)
        assert rpc(again, "eth_getBlockByNumber", "0x0", False)["hash"] == genesis
        assert sum(outbox(again).values()) == before + 3
        lost = "what was final, and lost with the last second, is not again"
        wait_until(lambda: outbox(again) == {"final": before + 3}, lost)
        assert transactions_of(again) == sent + 3


def test_without_a_chain_to_be_had_answers_work_and_the_lack_is_said(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text("#!/bin/sh\necho 'registry is away' >&2\nexit 1\n")
    npm.chmod(0o755)
    env = {"PATH": f"{npm.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with start_network(tmp_path, *FLAGS, chain=True, env=env) as network:
        assert stream_chat(network, "hello").done
        wait_until(lambda: "No chain: npm cannot fetch" in network.output.read_text(), "the lack is not said")
        assert ready_of(network)["chain_url"] is None
        assert ask(network, "POST", "/v1/chain/rpc", {"method": "eth_chainId"}).status == 503


def test_a_network_that_wants_no_chain_has_none(shared_network: Network) -> None:
    reply = ask(shared_network, "GET", "/v1/chain").json()
    assert (reply["rpc"], reply["chain_id"]) == (None, None)
    assert "--no-chain" in reply["note"]
    assert not (shared_network.data / "chain").exists()
    assert ask(shared_network, "GET", "/v1/network").json()["chain"] is False
    assert "leases, and payouts on a chain, are off" in shared_network.output.read_text()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/market/orders", None),
        ("GET", "/v1/market/validators", None),
        ("POST", "/v1/chain/rpc", {"method": "eth_chainId"}),
        ("POST", "/v1/payouts/claim", {}),
        ("POST", "/v1/credits/deposit", {"usd": "1", "adapter": "chain"}),
        ("POST", "/v1/credits/withdraw", {"usd": "1"}),
    ],
)
def test_what_needs_a_chain_says_that_there_is_none(
    shared_network: Network, method: str, path: str, body: object
) -> None:
    reply = ask(shared_network, method, path, body)
    assert (reply.status, reply.json()["error"]["code"]) == (409, "no_chain")
    assert "--no-chain" in reply.json()["error"]["message"]
