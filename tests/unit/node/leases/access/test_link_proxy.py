"""What a tenant gets through the one port of the host: a node's link to the agent's own gateway, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.node.leases.access.link_proxies import LinkProxies
from sparewatt.node.leases.access.link_proxy import (
    DIALS_AT_ONCE,
    HEAD_BYTES_MAX,
    GatewayAddress,
    LinkProxy,
    LinkUpgrade,
    RefusedUpgrade,
    read_upgrade,
)
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer, LeaseLabel

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = f"Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
HERE = "127.0.0.1"


def head(path: str = "/link/v1", *, rest: str = UPGRADE) -> bytes:
    return f"GET {path} HTTP/1.1\r\n{rest}".encode()


@pytest.mark.parametrize(
    ("path", "port"), [("/link/v1", None), ("/link/v1?port=443", 443), ("/link/v1?port=65535", 65535)]
)
def test_the_opening_of_a_link_is_taken_with_its_port(path: str, port: int | None) -> None:
    assert read_upgrade(head(path)) == LinkUpgrade(port, KEY)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/v1/models", "/v1/chat/completions", "/link/v1/traffic", "/link/v1/", "/link/v10", "//link/v1"),
        *("/link/v1?port=0", "/link/v1?port=22&x=1", "/link/v1#", "/link/v1?", "http://127.0.0.1:22/link/v1"),
    ],
)
def test_no_other_page_is_asked_for(path: str) -> None:
    with pytest.raises(RefusedUpgrade) as refused:
        read_upgrade(head(path))
    assert refused.value.status == 403


@pytest.mark.parametrize("method", ["POST", "CONNECT", "get", "OPTIONS"])
def test_no_other_method_is_asked_with(method: str) -> None:
    with pytest.raises(RefusedUpgrade):
        read_upgrade(head().replace(b"GET", method.encode(), 1))


@pytest.mark.parametrize(
    "rest",
    [
        "Host: x",
        UPGRADE.replace("websocket", "h2c"),
        UPGRADE.replace(KEY, "short"),
        UPGRADE.replace(KEY, KEY + "\x0bX-Forwarded-For: 1.2.3.4"),
        f"{UPGRADE}\r\nSec-WebSocket-Key: {KEY}",
        f"{UPGRADE}\r\nX: \u00e9",
    ],
)
def test_what_is_no_clean_upgrade_is_refused(rest: str) -> None:
    with pytest.raises(RefusedUpgrade) as refused:
        read_upgrade(head(rest=rest))
    assert refused.value.status == 400


def test_the_gateway_gets_a_request_of_the_agents_own_without_the_owners_password() -> None:
    gateway = GatewayAddress.of("https://owner:secret@gateway.example/v1")
    assert (gateway.url, gateway.port, gateway.has_tls) == ("https://gateway.example:443", 443, True)
    text = gateway.request(LinkUpgrade(8_485, KEY)).decode()
    assert text.startswith("GET /link/v1 HTTP/1.1\r\nHost: gateway.example:8485\r\n")
    assert text.endswith(f"Sec-WebSocket-Key: {KEY}\r\n\r\n")
    assert "secret" not in text
    assert GatewayAddress.of("http://[::1]:8484").url == "http://[::1]:8484"


@dataclass
class Gateway:
    """Stands for the gateway: keeps what it is sent, and answers with what a test gives it."""

    answer: bytes = SWITCHED
    heads: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            while data := await reader.read(1_000):
                self.after.append(data)
                writer.write(b"echo " + data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def proxied(
    gateway: Gateway, *, tenant: str = HERE, ports: tuple[int, ...] = ()
) -> AsyncIterator[tuple[LinkProxy, int]]:
    server = await asyncio.start_server(gateway.serve, HERE, 0)
    gateway.port = server.sockets[0].getsockname()[1]
    address = GatewayAddress(HERE, gateway.port, has_tls=False)
    proxy = LinkProxy(gateway=address, ports=lambda: ports, tenant=tenant, clock=SystemClock())
    port = await proxy.open(HERE, 0)
    try:
        yield proxy, port
    finally:
        await proxy.close()
        server.close()


async def asked(port: int, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HERE, port)
    writer.write(request)
    return reader, writer


async def answer_to(port: int, request: bytes) -> bytes:
    reader, writer = await asked(port, request)
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


async def test_a_link_is_relayed_both_ways_and_none_of_the_tenants_headers_pass() -> None:
    gateway = Gateway()
    lies = "\r\nX-Forwarded-For: 8.8.8.8\r\nAuthorization: Bearer sk-sw-x\r\nCookie: session=1\r\nContent-Length: 5"
    async with proxied(gateway) as (_, port), asyncio.timeout(10):
        reader, writer = await asked(port, head(rest=UPGRADE + lies) + b"\r\n\r\nhello")
        assert await reader.readuntil(b"\r\n\r\n") == SWITCHED
        assert await reader.readexactly(10) == b"echo hello"
        writer.write(b"more")
        assert await reader.readexactly(9) == b"echo more"
        writer.close()
    names = {line.partition(b":")[0].lower() for line in gateway.heads[0].split(b"\r\n")[1:] if line}
    assert names == {b"host", b"upgrade", b"connection", b"sec-websocket-key", b"sec-websocket-version"}


async def test_a_gateway_that_does_not_switch_reads_no_second_request() -> None:
    gateway = Gateway(answer=b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    async with proxied(gateway) as (_, port):
        reply = await answer_to(port, head() + b"\r\n\r\n" + smuggled)
    assert reply.startswith(b"HTTP/1.1 403 ")
    assert gateway.after == []


async def test_ports_other_than_the_gateways_are_refused_and_its_processes_are_reached() -> None:
    gateway, process = Gateway(), Gateway()
    async with proxied(process), proxied(gateway, ports=(process.port,)) as (_, port), asyncio.timeout(10):
        assert (await answer_to(port, head("/link/v1?port=22") + b"\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
        reader, writer = await asked(port, head(f"/link/v1?port={process.port}") + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == SWITCHED
        writer.close()
    assert (len(gateway.heads), len(process.heads)) == (0, 1)


async def test_only_the_leases_own_container_is_served() -> None:
    gateway = Gateway()
    async with proxied(gateway, tenant="10.201.0.2") as (_, port):
        assert await answer_to(port, head() + b"\r\n\r\n") == b""
    assert gateway.heads == []


async def test_a_tenant_that_dials_without_end_is_slowed_before_the_gateway_hears_of_it() -> None:
    gateway = Gateway(answer=b"HTTP/1.1 503 Busy\r\n\r\n")
    async with proxied(gateway) as (_, port):
        replies = [await answer_to(port, head() + b"\r\n\r\n") for _ in range(int(DIALS_AT_ONCE) + 10)]
    assert b"429" in replies[-1]
    assert len(gateway.heads) < len(replies)


async def test_an_endless_head_and_a_gateway_that_is_away_end_without_an_answer() -> None:
    async with proxied(Gateway()) as (proxy, port):
        assert await answer_to(port, b"GET /link/v1 HTTP/1.1\r\nX: " + b"y" * 3 * HEAD_BYTES_MAX) == b""
        proxy.gateway = GatewayAddress(HERE, 1, has_tls=False)
        assert await answer_to(port, head() + b"\r\n\r\n") == b"", "a node dials again"


def container(order: str, *, tenant: str | None = HERE) -> LeaseContainer:
    label = LeaseLabel(order, 1, 0, "0xa")
    return LeaseContainer(
        container_id="c", label=label, state=ContainerState.RUNNING, address=tenant, host_address=HERE
    )


async def test_a_lease_has_its_proxy_once_until_it_is_dropped(unused_tcp_port: int) -> None:
    gateway = GatewayAddress(HERE, 1, has_tls=False)
    proxies = LinkProxies(gateway=gateway, ports=tuple, clock=SystemClock(), port=unused_tcp_port)
    await proxies.keep(container("0x1", tenant=None))
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection(HERE, unused_tcp_port)
    await proxies.keep(container("0x1"))
    await proxies.keep(container("0x1"))
    (await asyncio.open_connection(HERE, unused_tcp_port))[1].close()
    await proxies.keep(container("0x2"))  # the port is taken: said, and tried again at the next look
    await proxies.drop("0x1")
    await proxies.drop("0x1")
    await proxies.keep(container("0x2"))
    (await asyncio.open_connection(HERE, unused_tcp_port))[1].close()
    await proxies.close()
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection(HERE, unused_tcp_port)
