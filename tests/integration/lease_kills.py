"""A network whose leases run in real containers, and whose parts are killed (SIGKILL): who is who, and what must hold.

Parts are found among the descendants of `sparewatt up`; conmon and programs by the word that a lease's command says.
What must hold is read from the machine (one program per lease that runs), from the chain itself (its money, its
seconds), and from `ledger audit`.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sparewatt.core.clock import SystemClock
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.evm.log_reader import BlockBatch, LogReader
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.egress_table import TABLE
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.integration.asking import Reply, ask
from tests.integration.networks import Network, start_network
from tests.podman import PodmanService, running_podman
from tests.processes import wait_until

HOUR_S = 3600
MARKET_S = 120.0
SETTLED_S = 180.0
"""How long everything may take to be as it should after a kill. The longest is a container whose lease ended while its
agent was away: it is compared every 30 s, and removed when a later block says the same. A quiet chain has one a minute.
"""
ENDS = frozenset({"closed", "expired", "failed"})
HIGHEST_USD = 0.1
"""An hour: said, since a gateway that has just started knows no offers to derive it from."""


@dataclass
class LeasingNetwork:
    network: Network
    engine: PodmanService
    names: list[str] = field(default_factory=list)
    """Of all leases that were ordered."""

    # a renter

    def ask(self, method: str, path: str, body: object = None) -> Reply | None:
        """None while the gateway is away."""
        with suppress(OSError, http.client.HTTPException):
            return ask(self.network, method, path, body)
        return None

    def order(self, name: str, *, image: str | None = None) -> None:
        """A lease whose program says its name and waits. Asked again by the same id until it is taken."""
        command = f"{probe_image.PROGRAM} say {name} wait 100000000"
        body = {
            "image": image or probe_image.image_tag(),
            "command": command,
            "name": name,
            "id": name,
            "duration": "1h",
            "resources": {"gpus": 0, "cpus": 0.1, "memory_gb": 0.1},
            "disk_gb": 0.1,
            "egress": "none",
            "policy": {"max_hourly": HIGHEST_USD},
        }
        self.names.append(name)
        self.insist("POST", "/v1/leases", body)

    def act(self, name: str, act: str) -> None:
        """`close`, `pause` or `resume`, by one id however often it is asked."""
        self.insist("POST", f"/v1/leases/{name}/{act}", {"id": f"{act}-{name}"})

    def insist(self, method: str, path: str, body: object) -> None:
        replies: list[Reply] = []

        def is_taken() -> bool:
            reply = self.ask(method, path, body)
            if reply is None or reply.status >= 500:
                return False
            replies.append(reply)
            return True

        wait_until(is_taken, f"{path} is not answered", ceiling_s=SETTLED_S)
        assert replies[0].status in {200, 201, 202}, (path, replies[0].body)

    def lease(self, name: str) -> dict[str, Any] | None:
        reply = self.ask("GET", f"/v1/leases/{name}")
        found: dict[str, Any] | None = reply.json() if reply is not None and reply.status == 200 else None
        return found

    def state(self, name: str) -> str:
        """Of the lease, else of its order; `unknown` while nobody answers."""
        lease = self.lease(name)
        if lease is None:
            return "unknown"
        placed = (lease["order"] or {}).get("lease")
        return str(placed["state"] if placed and not has_ended(lease) else lease["phase"])

    # parts

    def pids(self, *words: str) -> list[int]:
        """Of the network's processes whose command has all these words."""
        found = []
        for pid, _ in self.network.descendants():
            with suppress(OSError):  # it has ended
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if all(word in command for word in words):
                    found.append(pid)
        return sorted(found)

    def kill(self, *words: str, which: int = 0) -> bool:
        """False if it is just being started again."""
        found = self.pids(*words)
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(found[which % len(found)], signal.SIGKILL)
        return True

    def kill_postgres(self) -> bool:
        """The postmaster: its backends notice and end."""
        folder = str(self.network.data / "postgres")
        return self.kill("postgres\0", folder)

    def restart_engine(self) -> None:
        self.engine.kill()
        self.engine.start()

    def agent_of(self, name: str) -> int:
        """The process of the node whose provider has this lease."""
        lease, providers, nodes = self.lease(name), self._list("/v1/market/providers"), self._list("/v1/nodes")
        assert lease is not None
        (key,) = [each["node_key"] for each in providers if each["id"] == lease["order"]["lease"]["provider"]]
        (node,) = [each["name"] for each in nodes if each["id"] == key]
        (pid,) = self.pids("node\0join", f"/{node}\0")
        return pid

    def _list(self, path: str) -> list[dict[str, Any]]:
        reply = self.ask("GET", path)
        assert reply is not None
        found: list[dict[str, Any]] = reply.json()["data"]
        return found

    # programs in containers

    def programs(self, name: str) -> list[psutil.Process]:
        """Of this lease that run on this machine: whatever has its name, and is no command of the engine."""
        found = [each for each in psutil.process_iter(["cmdline", "status"]) if name in (each.info["cmdline"] or ())]
        return [each for each in found if each.info["cmdline"][0] == probe_image.PROGRAM]

    def monitor(self, name: str) -> psutil.Process | None:
        """The conmon of a lease's container."""
        programs = self.programs(name)
        parent = programs[0].parent() if programs else None
        return parent if parent is not None and parent.name() == "conmon" else None

    # what must hold

    def trouble(self) -> list[str]:
        """What of the leases is not as it should be now: one program each, or an end with a reason and no program."""
        found = []
        for name in self.names:
            lease, count = self.lease(name), len(self.programs(name))
            if lease is None:
                found.append(f"{name}: nobody answers")
            elif has_ended(lease):
                if count or (lease["phase"] == "closed" and lease["ending"] is None):
                    found.append(f"{name}: {lease['phase']} with {count} programs, ending {lease['ending']}")
            elif (state := self.state(name)) == "paused":
                found += [f"{name}: paused with {count} programs"] * (count > 1)
            elif state != "active" or count != 1:
                found.append(f"{name}: {state} with {count} programs")
        return found

    def wait_until_settled(self, *, ceiling_s: float = SETTLED_S) -> None:
        found: list[str] = []

        def is_settled() -> bool:
            found[:] = self.trouble()
            return not found

        try:
            wait_until(is_settled, "the leases are not as they should be", ceiling_s=ceiling_s)
        except AssertionError as error:
            error.add_note("\n".join(found))
            raise

    def audit(self) -> dict[str, Any]:
        reply = self.ask("GET", "/v1/ledger/audit")
        return reply.json() if reply is not None and reply.status == 200 else {"in_order": False}

    def wait_until_audited(self) -> None:
        """The books agree with the chain, to the unit."""
        report: dict[str, Any] = {}

        def agrees() -> bool:
            report.clear()
            report.update(self.audit())
            return bool(report["in_order"] and report.get("chain") and report["chain"]["in_order"])

        try:
            wait_until(agrees, "the books do not agree with the chain", ceiling_s=SETTLED_S)
        except AssertionError as error:
            error.add_note(str(report))
            raise

    def chain_events(self) -> list[ChainEvent]:
        return asyncio.run(_read_events(self.network))


def has_ended(lease: dict[str, Any]) -> bool:
    """Nothing happens to it any more: neither a provider nor a further auction."""
    order = lease["order"]
    is_last = order is not None and order["attempt"] >= order["max_attempts"]
    return lease["phase"] in ENDS or (lease["phase"] == "unmatched" and is_last)


def is_market_open(network: Network, *, nodes: int) -> bool:
    """Validators have a table of all nodes, each of which has tried containers."""
    with suppress(OSError, http.client.HTTPException):
        reply = ask(network, "GET", "/v1/market/validators")
        snapshot = reply.json()["snapshot"] if reply.status == 200 else None
        if snapshot is None or snapshot["count"] < nodes:
            return False
        logs = [path.read_text() for path in (network.data / "logs").glob("node-?.log")]
        return sum("Leases run in containers" in text for text in logs) == nodes
    return False


@contextmanager
def leasing_network(folder: Path, *, nodes: int) -> Iterator[LeasingNetwork]:
    (folder / "engine").mkdir(parents=True)
    try:
        with running_podman(folder / "engine") as engine:
            env, flags = {"DOCKER_HOST": f"unix://{engine.socket}"}, ("--engine=deterministic", f"--nodes={nodes}")
            with start_network(folder / "network", *flags, chain=True, env=env) as network:
                wait_until(lambda: is_market_open(network, nodes=nodes), "no market", ceiling_s=MARKET_S)
                yield LeasingNetwork(network, engine)
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


async def _read_events(network: Network) -> list[ChainEvent]:
    """All of the contracts, from the chain itself."""
    chain = ask(network, "GET", "/v1/chain").json()
    transport, events = HttpTransport(f"{network.base_url}/chain/rpc", api_key=network.api_key), list[ChainEvent]()
    try:
        client = EvmClient(RpcClient(transport, SystemClock()))
        contracts = Contracts(shipped_abis(), chain["contracts"])
        reader = LogReader(client, contracts, await client.identity(), chain["start_block"])
        while reader.block_number < chain["indexed_block"]:
            step = await reader.step()
            assert isinstance(step, BlockBatch)
            events += step.events
        return events
    finally:
        await transport.close()


# the money of leases, by the chain's events alone


@dataclass
class LeaseMeter:
    """What a lease paid, and the seconds that it ran by the times of its blocks."""

    deposited: int = 0
    compensated: int = 0
    settled: int = 0
    fees: int = 0
    refunded: int = 0
    due: int = 0
    """By the seconds between its starts and its stops, at the prices of these."""
    is_exact: bool = True
    """False where a provider was signed down: pay ended when it was last heard, which is before the block."""
    has_ended: bool = False
    _since: int | None = None
    _rate: int = 0

    @property
    def is_running(self) -> bool:
        return self._since is not None

    def start(self, at: int, rate: int) -> None:
        self.stop(at)
        self._since, self._rate = at, rate

    def stop(self, at: int) -> None:
        if self._since is not None:
            self.due += self._rate * (at - self._since) // HOUR_S
            self._since = None


def meters_of(events: Sequence[ChainEvent]) -> dict[str, LeaseMeter]:
    """By lease; of an escrow's events."""
    meters: dict[str, LeaseMeter] = defaultdict(LeaseMeter)
    for event in events:
        if event.contract == "escrow" and "lease_id" in event.args:
            meter, note = meters[event.args["lease_id"]], _METERED.get(event.event)
            if note is not None:
                note(meter, event)
        elif event.event == "LeaseHandedOver":
            meters[event.args["lease_id"]].is_exact = False
    return dict(meters)


def _add_deposit(meter: LeaseMeter, event: ChainEvent) -> None:
    meter.deposited += event.args["amount"]


def _add_compensation(meter: LeaseMeter, event: ChainEvent) -> None:
    meter.compensated += event.args["amount"]


def _add_settled(meter: LeaseMeter, event: ChainEvent) -> None:
    meter.settled += event.args["amount"]
    meter.fees += event.args["fee"]
    if not meter.is_running:  # what a renter owes for a start that it called off
        meter.due += event.args["amount"]


def _add_refund(meter: LeaseMeter, event: ChainEvent) -> None:
    meter.refunded += event.args["amount"]
    meter.has_ended = True


_METERED: dict[str, Callable[[LeaseMeter, ChainEvent], None]] = {
    "DepositChanged": _add_deposit,
    "Compensated": _add_compensation,
    "Settled": _add_settled,
    "Refunded": _add_refund,
    "StreamStarted": lambda meter, event: meter.start(event.unix_s, event.args["rate_uusd"]),
    "StreamStopped": lambda meter, event: meter.stop(event.unix_s),
}


def differences(meters: dict[str, LeaseMeter]) -> list[str]:
    """Of leases that have ended: money that came in and did not go out, or seconds that were not paid as they ran."""
    found = []
    for lease, meter in meters.items():
        if not meter.has_ended:
            continue
        left = meter.deposited + meter.compensated - meter.settled - meter.refunded
        if left:
            found.append(f"{lease}: {left} µUSD of its deposit are unaccounted for: {meter}")
        if meter.settled > meter.due or (meter.is_exact and meter.settled != meter.due):
            found.append(f"{lease}: paid {meter.settled} µUSD for seconds worth {meter.due}: {meter}")
    return found
