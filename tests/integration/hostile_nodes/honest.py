"""The network that is attacked: a real gateway, and honest nodes of three owners with real agents and model servers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparewatt.machine.spawn import free_port
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, engine_argv, operated_gateway, process
from tests.integration.people import Person, give_credits, sign_up
from tests.processes import end_process, start_process, wait_until

OWNERS = ("ada", "ben", "cleo")
"""Each of one honest node."""
LANES = 8
MODELS = tuple(f"honest-stub-{lane}" for lane in range(LANES))
"""Attacked at the same time, one behaviour each."""
DECODE_TPS = 500.0
SERVING_S = 120.0
CREDITS_USD = "20"
"""Enough for all requests at honest prices, and for none at a million times that."""
PROMPT_USD, COMPLETION_USD = "0.5", "1"


@dataclass(slots=True, kw_only=True)
class HonestNode:
    """The agent of an honest node, whose model server runs on whatever happens to it."""

    name: str
    network: Network
    owner: Person
    backend_url: str
    folder: Path
    env: Mapping[str, str]
    _agent: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def start(self) -> None:
        token = ask(self.network, "POST", "/v1/join-tokens", {}, key=self.owner.key).json()["token"]
        argv = [sys.executable, "-m", "sparewatt", "node", "join", self.network.root_url, f"--token={token}"]
        argv += [f"--backend={self.backend_url}", f"--name={self.name}", f"--data={self.folder / self.name}"]
        argv += [f"--prompt-usd-per-mtok={PROMPT_USD}", f"--completion-usd-per-mtok={COMPLETION_USD}"]
        self._agent = start_process(argv, output=self.folder / f"node-{self.name}.log", env=self.env)

    def stop(self) -> None:
        if self._agent is not None:
            end_process(self._agent, signal.SIGTERM)

    def kill(self) -> None:
        if self._agent is not None:
            end_process(self._agent, signal.SIGKILL)

    def is_serving(self, models: Sequence[str]) -> bool:
        """Whether it is linked, and every model of these was measured."""
        found = ask(self.network, "GET", f"/v1/nodes?q=only%3D{self.name}").json()["data"]
        nodes = [node for node in found if node["name"] == self.name and node["state"] in {"online", "busy"}]
        return bool(nodes) and set(models) <= {model["id"] for model in nodes[0]["models"] if model["measured"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackedNetwork:
    network: Network
    honest: Sequence[HonestNode]
    clients: Sequence[Person]
    """With credits, and without nodes."""
    models: Sequence[str]

    def is_serving(self) -> bool:
        """Whether every honest node serves every model."""
        return all(node.is_serving(self.models) for node in self.honest)

    def restart_honest_nodes(self) -> None:
        """Kill all agents and start them again, from the main thread: they end with the thread that starts them."""
        for node in self.honest:
            node.kill()
        for node in self.honest:
            node.start()


@contextmanager
def attacked_network(
    folder: Path, *, models: Sequence[str] = MODELS, database_url: str | None = None
) -> Iterator[AttackedNetwork]:
    """Without an address of a database the gateway runs its own."""
    database = {} if database_url is None else {"SPAREWATT_GATEWAY_DATABASE_URL": database_url}
    env = bare_environment(
        folder,
        SPAREWATT_GATEWAY_SIGNUPS_PER_ADDRESS_HOUR="10000",
        SPAREWATT_GATEWAY_REQUESTS_PER_MIN="1000000",
        SPAREWATT_GATEWAY_ADDRESS_REQUESTS_PER_MIN="1000000",
        SPAREWATT_GATEWAY_TOKENS_PER_MIN="1000000000",
        SPAREWATT_GATEWAY_ADDRESS_TOKENS_PER_MIN="1000000000",
        SPAREWATT_GATEWAY_HEARTBEAT_S="1",
        SPAREWATT_GATEWAY_CHECKS="false",  # the other defences are measured without their help
        SPAREWATT_ENGINE_MODELS=" ".join(models),
        SPAREWATT_ENGINE_SLOTS="32",
        **database,
    )
    with ExitStack() as stack:
        network = stack.enter_context(operated_gateway(folder, env=env))
        honest = []
        for name in OWNERS:
            port = free_port()
            argv = engine_argv(port, decode_tps=DECODE_TPS)
            stack.enter_context(process(argv, folder / f"engine-{name}.log", env=env))
            node = HonestNode(
                name=f"honest-{name}",
                network=network,
                owner=sign_up(network, f"{name}@example.org"),
                backend_url=f"http://127.0.0.1:{port}",
                folder=folder,
                env=env,
            )
            node.start()
            stack.callback(node.stop)
            honest.append(node)
        clients = [
            give_credits(network, sign_up(network, f"client-{number}@example.org"), usd=CREDITS_USD)
            for number in range(len(OWNERS))
        ]
        attacked = AttackedNetwork(network=network, honest=honest, clients=clients, models=models)
        wait_until(attacked.is_serving, "not all honest nodes serve", ceiling_s=SERVING_S)
        yield attacked
