"""A public gateway with TLS, a node elsewhere, and a home behind NAT where somebody copies the line that joins.

At home there is Python, a model server, and a way out to the gateway. What pip needs besides the gateway's own wheel
lies in a folder, since that way out leads nowhere else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparewatt.supervisor.spawn import free_port
from sparewatt.testing import expected_text, render_chat
from tests.certificates import make_certificate
from tests.clients.wheels import node_wheels
from tests.integration.asking import Answer, ask, stream_chat
from tests.integration.networks import Network
from tests.integration.people import Person, sign_up
from tests.namespaces import Home, home_behind_nat
from tests.processes import end_process, start_process, tail, wait_until

MODEL = "deterministic"
JOIN_S = 120.0
"""From the copied line to an answer."""
BACK_S = 90.0
"""A node that lost its gateway dials again after 30 s at the latest, and has 10 s for it."""
_KEPT = ("PATH", "LANG", "TMPDIR")


@dataclass(slots=True)
class Household:
    """All of it, running."""

    home: Home
    gateway: Network
    """Its key is the operator's."""
    client: Network
    """The same gateway, asked by somebody who pays."""
    ca: Path
    folder: Path
    environment: dict[str, str]
    logs: list[Path] = field(default_factory=list)
    joined_s: float = 0.0

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in ask(self.gateway, "GET", "/v1/nodes").json()["data"]}

    def serves(self, name: str) -> bool:
        found = self.nodes().get(name)
        return found is not None and found["state"] in {"online", "busy"} and bool(found["models"][0]["measured"])

    def chat(self, prompt: str, *, max_tokens: int, only: str | None = None, order: str | None = None) -> Answer:
        """At one node alone, or at that one first."""
        provider = ({"only": [only]} if only else {}) | ({"order": [order]} if order else {})
        more: dict[str, object] = {"provider": provider} if provider else {}
        return stream_chat(self.client, prompt, max_tokens=max_tokens, stream_options={"include_usage": True}, **more)

    def said(self) -> str:
        return "\n".join(f"--- {path.name}\n{tail(path)}" for path in self.logs)


def is_whole(answer: Answer, prompt: str, *, max_tokens: int) -> bool:
    return answer.done and answer.error is None and answer.text == expected(prompt, max_tokens=max_tokens)


def expected(prompt: str, *, max_tokens: int) -> str:
    return expected_text(render_chat([{"role": "user", "content": prompt}]), max_tokens=max_tokens)


@contextmanager
def household(folder: Path, *, heartbeat_s: float, decode_tps: float) -> Iterator[Household]:
    """Yields once the node at home has answered. The main thread must call it."""
    wheels = node_wheels()
    with ExitStack() as stack:
        home = stack.enter_context(home_behind_nat())
        found = stack.enter_context(_gateway(folder, home, heartbeat_s=heartbeat_s))
        try:
            stack.enter_context(_process(found, [*engine(0, decode_tps)], "engine-home", inside=True))
            began_s = time.monotonic()
            stack.enter_context(_process(found, _copied(found, wheels), "node-home", inside=True))
            wait_until(lambda: found.serves("home"), "the node at home does not serve", ceiling_s=JOIN_S)
            first = found.chat("Who is there?", max_tokens=20)
            assert is_whole(first, "Who is there?", max_tokens=20), first
            found.joined_s = time.monotonic() - began_s
            stack.enter_context(_elsewhere(found, decode_tps))
            yield found
        except BaseException as error:
            error.add_note(found.said())
            raise


def engine(port: int, decode_tps: float) -> list[str]:
    """On llama.cpp's own port where none is given: the node has to find it by itself."""
    return [sys.executable, "-m", "sparewatt.testing", f"--port={port or 8080}", f"--decode-tps={decode_tps}"]


@contextmanager
def _gateway(folder: Path, home: Home, *, heartbeat_s: float) -> Iterator[Household]:
    port, data = free_port(), folder / "gateway"
    root_url = f"https://{home.gateway_ip}:{port}"
    pair = make_certificate(folder, f"IP:{home.gateway_ip}")
    environment = {name: value for name, value in os.environ.items() if name in _KEPT} | {
        "HOME": str(folder),
        "SSL_CERT_FILE": str(pair.cert),
    }
    argv = [sys.executable, "-m", "sparewatt", "gateway", "run", f"--host={home.gateway_ip}", f"--port={port}"]
    argv += [f"--public-url={root_url}", f"--tls-cert={pair.cert}", f"--tls-key={pair.key}", f"--data={data}"]
    argv += ["--signup=open", f"--heartbeat-s={heartbeat_s}"]
    log = folder / "gateway.log"
    process = start_process(argv, output=log, env=environment)
    try:
        gateway = Network(f"{root_url}/v1", "", MODEL, {}, data, process, log)
        wait_until(lambda: _answers(gateway), f"the gateway does not answer:\n{tail(log)}", ceiling_s=60)
        gateway = Network(f"{root_url}/v1", _operator_key(data, environment), MODEL, {}, data, process, log)
        person: Person = sign_up(gateway, "ann@example.org")
        client = Network(f"{root_url}/v1", person.key, MODEL, {}, data, process, log)
        yield Household(home, gateway, client, pair.cert, folder, environment, [log])
    finally:
        assert end_process(process, signal.SIGTERM, ceiling_s=60) == 0, tail(log)


def _answers(network: Network) -> bool:
    assert network.process.poll() is None, f"the gateway ended:\n{tail(network.output)}"
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return ask(network, "GET", "/readyz", key="").status == 200
    return False


def _operator_key(data: Path, environment: dict[str, str]) -> str:
    argv = [sys.executable, "-m", "sparewatt", "gateway", "operator-key", f"--data={data}"]
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def _process(found: Household, argv: list[str], name: str, *, inside: bool) -> Iterator[None]:
    log = found.folder / f"{name}.log"
    found.logs.append(log)
    argv = found.home.argv(*argv) if inside else argv
    process = start_process(argv, output=log, env=found.environment)
    try:
        yield
    finally:
        end_process(process, signal.SIGTERM)


def _copied(found: Household, wheels: Path) -> list[str]:
    """A shell at home: an empty environment, then the line as it was copied, and a name to know the node by."""
    line = ask(found.gateway, "POST", "/v1/join-tokens", {}).json()["join_line"]
    venv = found.folder / "venv-home"
    quiet = f"PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels} PIP_CERT={found.ca}"
    node = f"SPAREWATT_NODE_NAME=home SPAREWATT_NODE_REGION=eu-west SPAREWATT_NODE_DATA_DIR={found.folder}/node-home"
    script = f"{sys.executable} -m venv {venv} && . {venv}/bin/activate && export {quiet} {node} && {line}"
    return ["sh", "-c", script]


@contextmanager
def _elsewhere(found: Household, decode_tps: float) -> Iterator[None]:
    """A node that has nothing to do with the cable."""
    port = free_port()
    token = ask(found.gateway, "POST", "/v1/join-tokens", {}).json()["token"]
    argv = [sys.executable, "-m", "sparewatt", "node", "join", found.gateway.root_url, f"--token={token}"]
    argv += [f"--backend=http://127.0.0.1:{port}", "--name=elsewhere", f"--data={found.folder / 'node-elsewhere'}"]
    with (
        _process(found, engine(port, decode_tps), "engine-elsewhere", inside=False),
        _process(found, argv, "node-elsewhere", inside=False),
    ):
        wait_until(lambda: found.serves("elsewhere"), "the node elsewhere does not serve", ceiling_s=60)
        yield
