"""Tries from inside a container what the egress table must not let through, and that it lets the agent's port through.

The open port shows that the way to the host works, so that silence at the others is the table's doing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT
from sparewatt.node.leases.runtime.engine import ContainerEngine
from sparewatt.node.leases.runtime.model import StartRefused
from sparewatt.node.leases.runtime.probe_container import ProbeContainer

SILENCE_MS, ANSWER_MS = 500, 3_000
"""How long a connection is waited for: one that must not come about, and one that must."""
METADATA = "169.254.169.254"
PEER_PORT = 7_000
CONNECT_TRIES, CONNECT_PAUSE_S, CONNECT_S = 40, 0.1, 2.0
ELSEWHERE = "203.0.113.1"
"""Nothing is sent to it: the system says by which address it would go there."""


async def try_egress(engine: ContainerEngine, rng: Rng) -> list[str]:
    """What a lease reaches and must not. Raises StartRefused if it cannot be tried."""
    peer = ProbeContainer(engine, rng, memory_mib=32, is_on_bridge=True)
    probe = ProbeContainer(engine, rng, memory_mib=32, is_on_bridge=True)
    async with (
        peer.running(["listen", str(PEER_PORT)]) as peer_range,
        probe.running(["wait", "600000"]) as probe_range,
        _listening("0.0.0.0", 0) as host_port,  # noqa: S104 (as the services that must not be reached)
        _listening(probe_range.host, AGENT_PORT) as agent_port,
    ):
        await _connect_from_host(peer_range.container, PEER_PORT)
        forbidden = {
            "the host's address on its bridge": (probe_range.host, host_port),
            "the host's address in its own network": (own_address(), host_port),
            "the host's address on another bridge": (peer_range.host, agent_port),
            "another lease": (peer_range.container, PEER_PORT),
            "the metadata address": (METADATA, 80),
        }
        tasks = [*("connect", str(ANSWER_MS), probe_range.host, str(agent_port))]
        for address, port in forbidden.values():
            tasks += ["connect", str(SILENCE_MS), address, str(port)]
        answers = read_connects(await probe.execute(tasks))
    if answers.get((probe_range.host, agent_port)) != "connected":
        raise StartRefused("a lease does not reach the port that the agent opens to it")
    return [what for what, target in forbidden.items() if answers.get(target) != "timeout"]


def read_connects(lines: list[str]) -> dict[tuple[str, int], str]:
    """By address and port: `connected`, `refused`, `timeout`, or the number of an error."""
    words = [line.split() for line in lines if line.startswith("connect ")]
    return {(address, int(port)): answer for _, address, port, answer in words}


def own_address() -> str:
    """By which this host goes out; loopback's if it goes nowhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))  # a datagram socket sends nothing by this
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


async def _connect_from_host(address: str, port: int) -> None:
    """The agent's own way into a lease. The program may just be starting. Raises StartRefused."""
    for _ in range(CONNECT_TRIES):
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return
        await asyncio.sleep(CONNECT_PAUSE_S)
    raise StartRefused("this host does not reach a container on its bridge")


@asynccontextmanager
async def _listening(address: str, port: int) -> AsyncIterator[int]:
    try:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), address, port)
    except OSError as error:
        raise StartRefused(f"the agent cannot listen on a bridge ({error.strerror})") from None
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
