"""Two gateways of one network: what one changes about keys and accounts, the other knows within seconds."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from sparewatt.core.errors import JoinRefused, LinkLost
from sparewatt.core.rng import SystemRng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.signing import SigningKey
from tests.integration.asking import ask
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.people import Person, send, sign_up
from tests.integration.test_nodes import SPECS
from tests.processes import end_process, start_process, tail

REVOKED_WITHIN_S = 5.0


def gateway_argv(network: Network, folder: Path, *flags: str) -> list[str]:
    database = EmbeddedPostgres(network.data / "postgres").dsn
    port_file = folder / "second.port"
    return [
        *(sys.executable, "-m", "sparewatt", "gateway", "run", "--port=0"),
        *(f"--database-url={database}", f"--port-file={port_file}", *flags),
    ]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with start_network(tmp_path_factory.mktemp("first"), "--engine=deterministic", "--nodes=0") as network:
        yield network


@pytest.fixture(scope="module")
def second(first: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Another gateway on the same database, with the same secret."""
    folder = tmp_path_factory.mktemp("second")
    argv = gateway_argv(first, folder, f"--data={first.data / 'gateway'}")
    process = start_process(argv, output=folder / "second.txt")
    port_file = folder / "second.port"
    try:
        wait_until(port_file.exists, "the second gateway listens")
        yield replace(first, base_url=f"http://127.0.0.1:{port_file.read_text()}/v1")
    finally:
        end_process(process, signal.SIGTERM)


@pytest.fixture
def ann(first: Network) -> Person:
    return sign_up(first, f"ann-{secrets.token_hex(6)}@example.org")


def becomes(network: Network, key: str, status: int, *, path: str = "/v1/me") -> None:
    wait_until(
        lambda: ask(network, "GET", path, key=key).status == status,
        f"the other gateway answers {status}",
        ceiling_s=REVOKED_WITHIN_S,
    )


def test_a_new_key_and_its_revocation_reach_the_other_gateway(first: Network, second: Network, ann: Person) -> None:
    made = ask(first, "POST", "/v1/keys", {"name": "app"}, key=ann.key).json()
    becomes(second, made["key"], 200)
    ask(first, "DELETE", f"/v1/keys/{made['id']}", key=ann.key)
    becomes(second, made["key"], 401)


def test_a_role_and_a_closed_account_reach_the_other_gateway(first: Network, second: Network, ann: Person) -> None:
    becomes(second, ann.key, 403, path="/v1/accounts")
    assert ask(first, "PATCH", f"/v1/accounts/{ann.account_id}", {"role": "operator"}).status == 200
    becomes(second, ann.key, 200, path="/v1/accounts")
    assert ask(first, "POST", f"/v1/accounts/{ann.account_id}/close", {}).status == 200
    becomes(second, ann.key, 401)


def test_a_cookie_works_at_both_and_a_logout_ends_it_at_both(first: Network, second: Network, ann: Person) -> None:
    assert send(second, "GET", "/v1/me", headers=ann.browser.headers()).status == 200
    assert send(first, "POST", "/v1/logout", {}, ann.browser.headers()).status == 200
    wait_until(
        lambda: send(second, "GET", "/v1/me", headers=ann.browser.headers()).status == 401,
        "the other gateway knows of the logout",
        ceiling_s=REVOKED_WITHIN_S,
    )


async def hold_a_link(network: Network, key: SigningKey, token: str | None) -> None:
    """Join as a node and stay until the gateway ends it."""
    async with aiohttp.ClientSession() as session:
        host = host_of(network.root_url)
        socket = await dial(network.root_url + LINK_PATH, session=session)
        try:
            await authenticate_to_gateway(
                socket, key=key, host=host, token=token, specs=SPECS, agent_version="0.1.0", rng=SystemRng()
            )
            with suppress(LinkLost):
                while True:
                    await socket.receive()
        finally:
            socket.close()
            await socket.wait_closed()


async def test_the_nodes_of_a_closed_account_leave_and_stay_out(first: Network, second: Network, ann: Person) -> None:
    token = ask(first, "POST", "/v1/join-tokens", {}, key=ann.key).json()["token"]
    node = SigningKey.generate(rng=SystemRng())
    held = asyncio.create_task(hold_a_link(second, node, token))
    path = f"/v1/nodes/{node.address}/why"
    await asyncio.to_thread(becomes, second, ann.key, 200, path=path)
    other = await asyncio.to_thread(sign_up, first, f"ben-{secrets.token_hex(6)}@example.org")
    await asyncio.to_thread(becomes, second, other.key, 403, path=path)
    assert ask(first, "POST", f"/v1/accounts/{ann.account_id}/close", {}).status == 200
    async with asyncio.timeout(30):
        await held
    with pytest.raises(JoinRefused) as refused:
        await hold_a_link(second, node, None)
    assert refused.value.reason == "closed"


@pytest.mark.parametrize(("given", "said"), [("", "has a secret"), ("ab" * 32, "another secret")])
def test_a_gateway_without_the_network_s_secret_does_not_start(
    first: Network, tmp_path: Path, given: str, said: str
) -> None:
    elsewhere, output = tmp_path / "elsewhere", tmp_path / "third.txt"
    env = {**os.environ, "SPAREWATT_SECRET": given}
    process = start_process(gateway_argv(first, tmp_path, f"--data={elsewhere}"), output=output, env=env)
    assert process.wait(30) == 1
    assert said in tail(output)
    assert (first.data / "gateway" / "secret").read_text().strip() not in tail(output)
    assert not (elsewhere / "secret").exists()  # one of its own would only get in the way


def test_whoever_has_the_database_can_make_an_operator_s_key(first: Network, second: Network) -> None:
    database = EmbeddedPostgres(first.data / "postgres").dsn
    argv = [sys.executable, "-m", "sparewatt", "gateway", "operator-key", f"--database-url={database}"]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    for network in (first, second):
        becomes(network, made.stdout.strip(), 200, path="/v1/accounts")
