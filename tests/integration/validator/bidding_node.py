"""A node's agent as a real process, and a small gateway that tells it of the market."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.errors import LinkLost
from sparewatt.core.rng import seeded
from sparewatt.link.handshake import authenticate_node, host_of
from sparewatt.link.sockets import Socket
from sparewatt.node.identity import KEY_FILE
from sparewatt.node.owner.control_socket import NodeNotRunning, ask
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.link.frames import Opcode, Welcome, decode_frames, decode_message, encode_message
from sparewatt.protocol.link.lease_frames import LeaseLookup, LeaseOutcome, MarketFacts, ValidatorPeer
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing import EngineSettings, running_engine
from tests.integration.chain.market_scene import MarketScene
from tests.unit.node.test_agent import Gateway, running_gateway

HEARTBEAT_S = 60.0


@dataclass
class MarketGateway:
    """Accepts the node, tells it of the market, and keeps the specs that it sends."""

    gateway: Gateway
    market: MarketScene
    provider: str
    attempt_s: int = 60
    specs: NodeSpecs | None = None
    joins: int = 0
    _socket: Socket | None = None

    async def serve(self, socket: Socket) -> None:
        hosts = {host_of(self.gateway.url)}
        await authenticate_node(socket, hosts=hosts, gateway_version="1", rng=seeded(self.joins))
        socket.send(encode_message(Opcode.WELCOME, Welcome(heartbeat_s=HEARTBEAT_S, gateway_version="1")))
        socket.send(encode_message(Opcode.MARKET, self.facts()))
        self._socket, self.joins = socket, self.joins + 1
        try:
            while True:
                for frame in decode_frames(await socket.receive()):
                    if frame.op is Opcode.SPECS:
                        self.specs = decode_message(frame.payload, NodeSpecs)
        except LinkLost:
            return

    def send(self, op: Opcode, message: msgspec.Struct) -> None:
        assert self._socket is not None
        self._socket.send(encode_message(op, message))

    def facts(self) -> MarketFacts:
        state, contracts = self.market.view.latest, self.market.contracts
        weights = self.weights(state.stake_version)
        peers = [
            ValidatorPeer(each.vote_key, each.url, weights.get(each.vote_key, 0)) for each in state.validators.values()
        ]
        return MarketFacts(
            chain_id=self.market.chain_id,
            task_manager=contracts["task_manager"].address,
            deployment_order=contracts["deployment_order"].address,
            stake_registry=contracts["stake_registry"].address,
            provider=self.provider,
            stake_version=state.stake_version,
            validators=tuple(peers),
            beat_ms=500,
            attempt_s=self.attempt_s,
            block_number=0,
        )

    def weights(self, version: int) -> dict[str, int]:
        return {each.vote_key: each.weight for each in self.market.view.latest.weights_at(version)}

    async def lookup(self, order_id: str, specification: Specification, content: str) -> LeaseLookup:
        """Of the newest order of its renter."""
        orders = self.market.view.latest.orders
        order = orders[order_id]
        head = await self.market.client.head()
        return LeaseLookup(
            order_id=order_id,
            attempt=order.attempt,
            renter=order.renter.lower(),
            renter_nonce=sum(each.renter == order.renter for each in orders.values()) - 1,
            policy=write_message(order.terms),
            specification=write_message(specification),
            content=content,
            stake_version=order.stake_version,
            weights=self.weights(order.stake_version),
            opened_at=order.opened_at[order.attempt],
            block_number=head.number,
        )

    def won(self, order_id: str) -> LeaseOutcome:
        return LeaseOutcome(order_id=order_id, attempt=0, result="won", provider=self.provider, term=1)


@dataclass
class NodeProcess:
    """One `sparewatt node join`."""

    folder: Path
    gateway_url: str
    backend_url: str
    chain_url: str
    process: Process | None = field(default=None)

    async def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            env = os.environ | {"SPAREWATT_NODE_LEASES_UNTRIED": "true"}  # the auction alone
            self.process = await asyncio.create_subprocess_exec(*self.argv(), stdout=log, stderr=log, env=env)

    def argv(self) -> list[str]:
        return [
            *(sys.executable, "-m", "sparewatt", "node", "join", self.gateway_url, "--leases", "--no-gpu-bench"),
            *("--backend", self.backend_url, "--data", str(self.data), "--chain-url", self.chain_url),
        ]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def bids(self) -> list[Path]:
        return sorted((self.data / "leases" / "bids").glob("*.json"))

    async def market_status(self) -> dict[str, Any]:
        """Empty while no agent answers."""
        try:
            answer = await asyncio.to_thread(ask, self.data, {"do": "status"})
        except NodeNotRunning:
            return {}
        found: dict[str, Any] = answer["status"]["lease_market"]
        return found

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await asyncio.wait_for(self.process.wait(), 20)


@asynccontextmanager
async def bidding_node(
    market: MarketScene, *, provider: SigningKey, node_key: SigningKey, chain_url: str, folder: Path
) -> AsyncIterator[tuple[NodeProcess, MarketGateway]]:
    (folder / "data").mkdir(parents=True, mode=0o700)
    (folder / "data" / KEY_FILE).write_text(node_key.secret_hex())
    (folder / "data" / KEY_FILE).chmod(0o600)
    async with running_gateway() as gateway, running_engine(EngineSettings(models=("stub",))) as backend_url:
        told = MarketGateway(gateway, market, provider.address.lower())
        gateway.instead = told.serve
        node = NodeProcess(folder, gateway.url, backend_url, chain_url)
        await node.start()
        try:
            yield node, told
        finally:
            await node.kill()
