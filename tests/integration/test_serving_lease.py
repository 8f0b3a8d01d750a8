"""A lease that serves: a real container joins the network as its renter's node, answers, earns, and leaves with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from sparewatt.node.leases.runtime.egress_table import AGENT_PORT, TABLE
from sparewatt.node.leases.runtime.egress_trial import own_address
from sparewatt.node.serving_image.image_files import python_program
from tests.integration.asking import Reply, ask
from tests.integration.networks import Network, start_network
from tests.integration.test_leased_container import market_is_ready, run, runs_containers, sparewatt
from tests.podman import podman_service, why_not
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
MARKET_S = 120.0
SERVES_S = 120.0
WS_TIMEOUT = aiohttp.ClientWSTimeout(ws_close=5)
MODEL = "smollm2-135m"
NAME = f"serve-{MODEL}"
TRIES = """
import json, os, socket, sys

def ask(address, port, data, wait_s=1.5):
    try:
        with socket.create_connection((address, port), timeout=wait_s) as it:
            it.sendall(data)
            return it.recv(4000).split(b"\\r\\n")[0].decode()
    except OSError as error:
        return type(error).__name__

host, port = os.environ["SPAREWATT_NODE_LINK_VIA"].removeprefix("http://").split(":")
gateway = int(sys.argv[1])
key = b"\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n"
get = b"GET %s HTTP/1.1\\r\\nHost: x"
print(json.dumps({
    "link": ask(host, int(port), get % b"/link/v1" + key),
    "api": ask(host, int(port), get % b"/v1/models" + b"\\r\\n\\r\\n"),
    "traffic": ask(host, int(port), get % b"/link/v1/traffic" + key),
    "ssh": ask(host, int(port), get % b"/link/v1?port=22" + key),
    "gateway_on_bridge": ask(host, gateway, get % b"/readyz" + b"\\r\\n\\r\\n"),
    "gateway_on_host": ask(sys.argv[2], gateway, get % b"/readyz" + b"\\r\\n\\r\\n"),
    "metadata": ask("169.254.169.254", 80, b"x"),
}))
"""
"""Run by the image's own Python, inside the lease."""
PLAIN = """
import os, socket, struct, sys
from aiohttp import web
(line,) = [line.split() for line in open("/proc/net/route") if line.split()[1] == "00000000"]
host = socket.inet_ntoa(struct.pack("<L", int(line[2], 16)))
try:
    socket.create_connection((host, int(sys.argv[1])), timeout=1.5)
    print("tried connected", flush=True)
except OSError as error:
    print("tried", type(error).__name__, os.environ.get("SPAREWATT_NODE_LINK_VIA"), flush=True)

async def echo(request):
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(f"{message.data} {request.headers.get('cookie')}")
    return ws

app = web.Application()
app.router.add_get("/live", echo)
web.run_app(app, port=8080, print=None)
"""
"""The same of a lease that does not serve: the way that the other has, at its own bridge. Then a WebSocket server."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            folder, env = tmp_path_factory.mktemp("serving"), {"DOCKER_HOST": f"unix://{socket}"}
            flags = ("--engine=deterministic", "--nodes=1", "--validators=4")
            started = start_network(folder, *flags, chain=True, env=env)
            with pytest.MonkeyPatch.context() as patch, started as network:
                patch.setenv("DOCKER_HOST", env["DOCKER_HOST"])
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def node_of_lease(network: Network) -> dict[str, Any] | None:
    found = [each for each in ask(network, "GET", "/v1/nodes").json()["data"] if each["name"] == NAME]
    return found[0] if found else None


def is_serving(network: Network) -> bool:
    found = node_of_lease(network)
    return found is not None and found["state"] == "online" and bool(found["models"])


def test_a_lease_serves_as_its_renters_node_and_takes_the_node_with_it(network: Network) -> None:
    missing = run(network, "lease", "create", "--serve", MODEL)
    assert missing.returncode == 4
    assert f"lease image {MODEL}" in missing.stderr.decode()
    made = sparewatt(network, "lease", "image", MODEL)
    assert made["model"] == MODEL
    wait_until(lambda: market_is_ready(network), "the market is not ready", ceiling_s=MARKET_S)
    wait_until(lambda: runs_containers(network), "containers were not proven", ceiling_s=MARKET_S)
    sparewatt(network, "lease", "create", "--serve", MODEL, "--duration=1h", "--disk-gb=0.2", "--yes")
    wait_until(lambda: is_serving(network), "the container has not joined", ceiling_s=SERVES_S)
    found = node_of_lease(network)
    assert found is not None

    replies: list[Reply] = []  # the first ones may come before it has measured its speed

    def is_answered() -> bool:
        replies.append(chat_of_another(network, found["id"]))
        return replies[-1].status == 200

    try:
        wait_until(is_answered, "it does not answer", ceiling_s=SERVES_S)
    except AssertionError as error:
        error.add_note(replies[-1].body.decode())
        raise
    assert replies[-1].json()["choices"][0]["message"]["content"]
    assert node_of_reply(replies[-1]) == found["id"]
    wait_until(lambda: node_earnings(network, found["id"]) > 0, "the renter has earned nothing", ceiling_s=30)

    check_what_is_reached(network)

    sparewatt(network, "lease", "close", NAME)
    wait_until(lambda: node_of_lease(network) is None, "the node is still listed", ceiling_s=SERVES_S)
    assert chat_of_another(network, found["id"]).status >= 400, "nobody else is asked instead"


def chat_of_another(network: Network, node: str) -> Reply:
    """By the account of the network's own nodes, which is not the renter's."""
    body = {
        "model": MODEL,
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "Say hello"}],
        "provider": {"only": [node]},
    }
    key = (network.data / "nodes.key").read_text().strip()
    return ask(network, "POST", "/v1/chat/completions", body, key=key)


def node_of_reply(reply: Reply) -> str | None:
    return {name.lower(): value for name, value in reply.headers.items()}.get("x-sparewatt-node")


def node_earnings(network: Network, node: str) -> int:
    """In nano-dollars, of the renter, whose key the network's own is."""
    listed = ask(network, "GET", f"/v1/earnings?node={node}").json()["data"]
    return sum(each["net_nano"] + each["net_promo_nano"] for each in listed)


def execute(network: Network, *words: str) -> bytes:
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", *words]
    done = subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def check_what_is_reached(network: Network) -> None:
    """By trying, from inside: a node's link and nothing else; and from a lease that does not serve, not even that."""
    gateway, python = network.root_url.rpartition(":")[2], str(python_program())
    tries = execute(network, "lease", "exec", NAME, "--", python, "-c", TRIES, gateway, own_address())
    seen: dict[str, str] = json.loads(tries)
    assert seen["link"].startswith("HTTP/1.1 101")
    assert {seen[name].split()[1] for name in ("api", "traffic", "ssh")} == {"403"}
    assert {seen[name] for name in ("gateway_on_bridge", "gateway_on_host", "metadata")} == {"TimeoutError"}

    image = f"--image=localhost/sparewatt-serve:{MODEL}"
    command = shlex.join([python, "-c", PLAIN, str(AGENT_PORT)])
    size = ("--gpus=0", "--cpus=0.5", "--memory-gb=0.3", "--disk-gb=0.1", "--public=8080")
    sparewatt(network, "lease", "create", image, "--command", command, *size, "--name=plain", "--yes")
    wait_until(lambda: b"tried" in run_quietly(network, "lease", "logs", "plain"), "it tried nothing", ceiling_s=60)
    assert execute(network, "lease", "logs", "plain").splitlines()[0] == b"tried TimeoutError None"
    check_public_socket(network)
    sparewatt(network, "lease", "close", "plain")


def check_public_socket(network: Network) -> None:
    """A visitor's WebSocket reaches the server in the container, without the dashboard's cookie."""
    site = ask(network, "POST", "/v1/leases/plain/site", {"port": 8080}).json()
    headers = {"host": urlsplit(site["url"]).netloc, "cookie": "sparewatt_session=ours; own=1"}
    heard: list[str] = []

    async def visit() -> None:
        url = f"{network.root_url}/live"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, headers=headers, timeout=WS_TIMEOUT) as socket,
        ):
            for number in range(3):
                await socket.send_str(f"hello {number}")
                heard.append((await socket.receive(10)).data)

    def is_heard() -> bool:
        heard.clear()
        with contextlib.suppress(aiohttp.ClientError):  # the server in the container is just starting
            asyncio.run(visit())
        return len(heard) == 3

    wait_until(is_heard, "no WebSocket reaches it", ceiling_s=60)
    assert heard == [f"hello {number} own=1" for number in range(3)]


def run_quietly(network: Network, *words: str) -> bytes:
    """Its output; nothing while it fails."""
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", *words]
    return subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False).stdout
