"""The parent of several processes: the ports that it holds, and what it refuses before it starts anything."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sparewatt.cli.gateway import gateway
from sparewatt.core.errors import StartupError
from sparewatt.edge.listener import bind, listen
from sparewatt.gateway.processes import reserved_ports, run_processes
from sparewatt.gateway.settings import GatewaySettings


def test_every_process_has_ports_of_its_own_and_they_stay_reserved() -> None:
    with reserved_ports(GatewaySettings(port=0, processes=3)) as (public, links, peers, metrics):
        assert len({public, *links, *peers, *metrics}) == 10
        for port in (public, *links, *peers, *metrics):
            listen("127.0.0.1", port, shared=True).close()


def test_link_ports_follow_the_first() -> None:
    with bind("127.0.0.1", 0) as probe:
        first = probe.getsockname()[1]
    with reserved_ports(GatewaySettings(port=0, processes=1, link_port=first)) as ports:
        assert ports.links == (first,)


def test_metrics_ports_that_were_named_must_be_had() -> None:
    with listen("127.0.0.1", 0) as theirs:
        settings = GatewaySettings(port=0, processes=2, metrics_port=theirs.getsockname()[1] - 1)
        with pytest.raises(StartupError, match="Choose another --metrics-port"), reserved_ports(settings):
            pass
    with pytest.raises(StartupError, match="leaves no 2 ports"):
        reserved_ports(GatewaySettings(port=0, processes=2, metrics_port=65535)).__enter__()


def test_without_metrics_no_port_is_held_for_them() -> None:
    with reserved_ports(GatewaySettings(port=0, processes=2, metrics=False)) as ports:
        assert ports.metrics == ()


def test_a_port_that_another_program_has_is_not_joined() -> None:
    with listen("127.0.0.1", 0, shared=True) as theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(StartupError, match="Choose another --port"), reserved_ports(GatewaySettings(port=port)):
            pass


async def test_what_cannot_work_is_told_before_anything_starts() -> None:
    with pytest.raises(StartupError, match="without TLS"):
        await run_processes(GatewaySettings(host="192.0.2.1", processes=2))
    with pytest.raises(StartupError, match="--link-port"):
        await run_processes(GatewaySettings(behind_proxy=True, public_url="https://gpu.example", processes=2))


def test_a_process_is_not_for_people_to_start() -> None:
    result = CliRunner().invoke(gateway, ["process"], input="")
    assert isinstance(result.exception, StartupError)
    assert "\n  process" not in CliRunner().invoke(gateway, ["--help"]).output
