"""A public gateway with TLS, a node elsewhere, and a home behind NAT where somebody copies the line that joins.

At home there is Python, a model server, and a way out to the gateway. What pip needs besides the gateway's own wheel
lies in a folder, since that way out leads nowhere else.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparewatt.machine.spawn import free_port
from sparewatt.testing import expected_text, render_chat
from tests.certificates import make_certificate
from tests.clients.wheels import node_wheels
from tests.integration.asking import Answer, ask, stream_chat
from tests.integration.networks import Network
from tests.integration.operated import (
    bare_environment,
    engine_argv,
    is_serving,
    joined_node,
    operated_gateway,
    process,
)
from tests.integration.people import sign_up
from tests.namespaces import Home, home_behind_nat
from tests.processes import tail, wait_until

LLAMA_PORT = 8080
"""Where llama.cpp listens: the node has to find the server by itself."""
JOIN_S = 300.0
"""A ceiling for busy machines; what it takes on a quiet one is in docs/measurements/home.md."""
VENV = "venv-home"
BACK = "Are you back?"
BACK_S = 90.0
"""A node that lost its gateway dials again after 30 s at the latest, and has 10 s for it."""


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
    """From the copied line to its first whole answer, an empty environment made in between."""

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in ask(self.gateway, "GET", "/v1/nodes").json()["data"]}

    def serves(self, name: str) -> bool:
        return is_serving(self.gateway, name)

    def answers(self, name: str) -> bool:
        """Not only believed to: after a cable came back the gateway may not know yet that it was gone."""
        return self.serves(name) and is_whole(self.chat(BACK, max_tokens=5, only=name), BACK, max_tokens=5)

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
def household(folder: Path, *, heartbeat_s: float, decode_tps: float, quick: bool = False) -> Iterator[Household]:
    """Yields once the node at home has answered. The main thread must call it.

    `quick` leaves out what pip compiles in advance, and makes the empty environment while the gateway starts.
    """
    wheels = node_wheels()
    with ExitStack() as stack:
        made = stack.enter_context(_empty_environment(folder)) if quick else None
        home = stack.enter_context(home_behind_nat())
        found = stack.enter_context(_gateway(folder, home, heartbeat_s=heartbeat_s))
        try:
            stack.enter_context(_at_home(found, engine_argv(LLAMA_PORT, decode_tps=decode_tps), "engine-home"))
            if made is not None:
                assert made.wait(JOIN_S) == 0
            began_s = time.monotonic()
            stack.enter_context(_at_home(found, _copied(found, wheels, quick=quick), "node-home"))
            wait_until(lambda: found.serves("home"), "the node at home does not serve", ceiling_s=JOIN_S)
            first = found.chat("Who is there?", max_tokens=20)
            assert is_whole(first, "Who is there?", max_tokens=20), first
            found.joined_s = time.monotonic() - began_s
            other = joined_node(found.gateway, folder, "elsewhere", decode_tps=decode_tps, env=found.environment)
            stack.enter_context(other)  # one that has nothing to do with the cable
            yield found
        except BaseException as error:
            error.add_note(found.said())
            raise


@contextmanager
def _empty_environment(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "venv", str(folder / VENV)]
    with process(argv, folder / "venv.log", env=bare_environment(folder)) as making:
        yield making


@contextmanager
def _gateway(folder: Path, home: Home, *, heartbeat_s: float) -> Iterator[Household]:
    port = free_port()
    root_url = f"https://{home.gateway_ip}:{port}"
    pair = make_certificate(folder, f"IP:{home.gateway_ip}")
    environment = bare_environment(folder, SSL_CERT_FILE=str(pair.cert))
    flags = [
        f"--host={home.gateway_ip}",
        f"--public-url={root_url}",
        f"--tls-cert={pair.cert}",
        f"--tls-key={pair.key}",
    ]
    flags += ["--signup=open", f"--heartbeat-s={heartbeat_s}"]
    with operated_gateway(folder, *flags, env=environment, root_url=root_url, port=port) as gateway:
        client = replace(gateway, api_key=sign_up(gateway, "ann@example.org").key)
        yield Household(home, gateway, client, pair.cert, folder, environment)


@contextmanager
def _at_home(found: Household, argv: list[str], name: str) -> Iterator[None]:
    log = found.folder / f"{name}.log"
    found.logs.append(log)
    with process(found.home.argv(*argv), log, env=found.environment):
        yield


def _copied(found: Household, wheels: Path, *, quick: bool) -> list[str]:
    """A shell at home: an empty environment, then the line as it was copied, and a name to know the node by."""
    line = ask(found.gateway, "POST", "/v1/join-tokens", {}).json()["join_line"]
    venv = found.folder / VENV
    quiet = f"PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels} PIP_CERT={found.ca}"
    quiet += " PIP_NO_COMPILE=1" if quick else ""
    node = f"SPAREWATT_NODE_NAME=home SPAREWATT_NODE_REGION=eu-west SPAREWATT_NODE_DATA_DIR={found.folder}/node-home"
    line = line.replace("&& sparewatt", "&& exec sparewatt")  # so that what ends the shell ends the node
    make = "" if quick else f"{sys.executable} -m venv {venv} && "
    return ["sh", "-c", f"{make}. {venv}/bin/activate && export {quiet} {node} && {line}"]
