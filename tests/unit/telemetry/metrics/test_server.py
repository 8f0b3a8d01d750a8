"""The second port: what it answers, and where it refuses to listen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from sparewatt.cluster.peer_rpc import ProcessSlot
from sparewatt.core.errors import StartupError
from sparewatt.gateway import process
from sparewatt.gateway.process import open_metrics_socket
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.telemetry.metrics.collector import LAG_PROBE_S, LoopLag
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import ADMIN, bearer, make_services, running
from tests.unit.telemetry.metrics.scraped import read


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def port_of(settings: GatewaySettings) -> int:
    found = open_metrics_socket(settings)
    assert found is not None
    with found:
        return int(found.getsockname()[1])


async def test_the_port_serves_prometheus_and_health_checks() -> None:
    services = make_services()
    async with TestClient(TestServer(services.metrics.app())) as client:
        reply = await client.get("/metrics")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "sparewatt_nodes" in read(await reply.read()).kinds
        targets = await (await client.get("/metrics/targets")).json()
        assert targets[0]["targets"] == [f"127.0.0.1:{client.port}"]
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 200
        services.drain.is_draining = True
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200


async def test_any_process_of_a_gateway_lists_all_of_them() -> None:
    slot = ProcessSlot(1, link_ports=(1, 2), peer_ports=(3, 4), metrics_ports=(9484, 9485))
    async with TestClient(TestServer(make_services(slot=slot).metrics.app())) as client:
        targets = await (await client.get("/metrics/targets")).json()
        assert targets[0]["targets"] == ["127.0.0.1:9484", "127.0.0.1:9485"]


async def test_the_public_port_has_none_of_it_not_even_for_operators() -> None:
    async with running(make_services()) as client:
        for path in ("/metrics", "/metrics/targets", "/v1/metrics"):
            assert (await client.get(path, headers=bearer(ADMIN))).status == 404


def test_a_port_that_is_named_must_be_had() -> None:
    with taken_port() as port, pytest.raises(StartupError, match="--metrics-port"):
        open_metrics_socket(GatewaySettings(metrics_port=port))


def test_a_second_network_takes_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_port() as port:
        monkeypatch.setattr(process, "METRICS_PORT", port)
        assert port_of(GatewaySettings()) not in {0, port}


def test_the_usual_port_is_taken_where_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_port() as port:
        pass
    monkeypatch.setattr(process, "METRICS_PORT", port)
    assert port_of(GatewaySettings()) == port


def test_it_can_be_switched_off() -> None:
    assert open_metrics_socket(GatewaySettings(metrics=False)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "8.8.8.8", "2a00:1450::1", "gateway.example"])  # noqa: S104
def test_it_does_not_listen_where_strangers_are(host: str) -> None:
    with pytest.raises(StartupError, match="metrics"):
        open_metrics_socket(GatewaySettings(metrics_host=host, metrics_port=0))


def test_how_late_timers_ring_is_counted() -> None:
    clock = ManualClock(now_s=0.0)
    lag = LoopLag(clock=clock)
    lag.watch()
    clock.advance(4 * LAG_PROBE_S)
    assert sum(lag.histogram.counts) == 4
    assert lag.histogram.total == pytest.approx(0.0)
