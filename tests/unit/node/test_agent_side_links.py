"""A gateway of several processes: the agent keeps one link to each, and each sees the others' jobs as foreign."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sparewatt.link.node_end import GatewayLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.link.sockets import Socket
from sparewatt.node import agent as agent_module
from sparewatt.node.agent import link_address, with_port
from sparewatt.protocol.link.frames import Opcode, Reject, decode_message, encode_message
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.node import test_agent
from tests.unit.node.rig import rigged
from tests.unit.node.test_agent import Gateway, running_agent, running_gateway, send_job
from tests.waiting import until


def port_of(process: Gateway) -> int:
    return urlsplit(process.url).port or 0


def list_ports(*processes: Gateway) -> None:
    """Each lists the ports of all in its welcome."""
    ports = tuple(map(port_of, processes))
    for process in processes:
        process.link_ports, process.link_port = ports, port_of(process)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Gateway, Gateway]]:
    monkeypatch.setattr(agent_module, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(test_agent, "HEARTBEAT_S", 30.0)  # these gateways never ping: silence must not end a link
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_gateway())
        second = await stack.enter_async_context(running_gateway())
        list_ports(first, second)
        yield first, second


def last_load(process: Gateway) -> NodeLoad:
    return decode_message(process.received(Opcode.LOAD)[-1].payload, NodeLoad)


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://gateway.example", "https://gateway.example:9001"),
        ("http://127.0.0.1:8484", "http://127.0.0.1:9001"),
        ("https://[::1]:443/", "https://[::1]:9001"),
        ("https://ann:secret@gateway.example", "https://ann:secret@gateway.example:9001"),
    ],
)
def test_with_port_keeps_the_host(url: str, same: str) -> None:
    assert with_port(url, 9001) == same


async def test_a_node_keeps_a_link_to_each_process(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    async with running_agent(pair[0], tmp_path):
        await until(lambda: all(process.received(Opcode.LOAD) and process.received(Opcode.SPECS) for process in pair))
        assert [process.connections for process in pair] == [1, 1]


async def test_a_job_of_one_process_is_foreign_to_the_other(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    first, second = pair
    async with running_agent(first, tmp_path) as node:
        await until(lambda: second.sockets and first.sockets)
        await node.rig.fault("stall_after_tokens", after_tokens=1)
        await send_job(second.sockets[0])
        await until(lambda: last_load(first).foreign == 1)
        assert (last_load(first).running, last_load(first).foreign_models) == (1, ("stub",))
        own = node.rig.jobs.load(str(port_of(second)))
        assert (own.running, own.foreign, own.foreign_models) == (1, 0, ())


async def test_a_lost_side_link_is_dialled_again_and_the_home_link_stays(
    pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    first, second = pair
    async with running_agent(first, tmp_path) as node:
        await until(lambda: second.sockets)
        second.sockets[0].close()
        await until(lambda: second.connections == 2 and len(second.sockets) == 2)
        assert first.connections == 1
        assert node.agent.joined_unix_s is not None


async def test_a_lost_home_link_is_dialled_at_its_own_port_while_a_side_link_is_up(
    pair: tuple[Gateway, Gateway], tmp_path: Path
) -> None:
    """The public port may lead to the process that has a link already, which would lose it by that."""
    first, second = pair
    async with running_gateway() as public:
        public.link_ports, public.link_port = (
            first.link_ports,
            first.link_port,
        )  # as if the public port had led to the first
        async with running_agent(public, tmp_path):
            await until(lambda: second.sockets)
            public.sockets[0].close()
            await until(lambda: first.sockets)
            assert (public.connections, second.connections) == (1, 1)


async def test_without_any_link_the_public_address_is_dialled(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    _, second = pair
    async with running_gateway() as public:
        public.link_ports, public.link_port = (1, port_of(second)), 1
        async with running_agent(public, tmp_path):
            await until(lambda: second.sockets)
            second.instead = refuse
            second.sockets[0].close()
            public.sockets[0].close()
            await until(lambda: public.connections == 2)


async def refuse(socket: Socket) -> None:
    socket.send(encode_message(Opcode.REJECT, Reject(reason="wrong_host", message="not here")))


async def test_a_refused_side_link_does_not_end_the_node(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    first, second = pair
    second.instead = refuse
    async with running_agent(first, tmp_path) as node:
        await until(lambda: second.connections > 1)
        assert not node.task.done()
        assert len(first.sockets) == 1


async def test_a_process_that_is_no_longer_listed_is_left(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    first, second = pair
    async with running_agent(first, tmp_path) as node:
        await until(lambda: second.sockets)
        list_ports(first)
        first.sockets[0].close()
        await until(lambda: len(first.sockets) == 2 and not node.agent._side_links)
        assert not node.rig.jobs.is_shared


async def test_every_process_gets_the_goodbye(pair: tuple[Gateway, Gateway], tmp_path: Path) -> None:
    async with running_agent(pair[0], tmp_path) as node:
        await until(lambda: all(process.sockets for process in pair))
        await node.agent.drain()
        await node.over()
        assert node.task.exception() is None
        await until(lambda: all(process.received(Opcode.GOODBYE) for process in pair))
        assert all(last_load(process).draining for process in pair)


async def test_the_owners_view_counts_no_job_as_foreign(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        rig.jobs.is_shared = True
        rig.link = GatewayLink(send_queue=SendQueue(), runner=rig.jobs, clock=rig.jobs.clock, name="8501")
        await rig.fault("stall_after_tokens", after_tokens=1)
        rig.send(1)
        await asyncio.sleep(0)
        assert (rig.jobs.load().running, rig.jobs.load().foreign) == (1, 0)
        assert rig.jobs.load("8502").foreign == 1
        assert rig.jobs.load("8501").foreign == 0


def test_a_node_in_a_lease_dials_its_machines_agent_and_names_the_gateways_port() -> None:
    via = "http://10.201.0.1:47821"
    assert link_address("http://127.0.0.1:8484", via=None) == "http://127.0.0.1:8484/link/v1"
    assert link_address("http://127.0.0.1:8485", via=via) == f"{via}/link/v1?port=8485"
    assert link_address("https://gateway.example", via=via) == f"{via}/link/v1?port=443"
