"""The parent of several processes: reserved ports, refused settings, and the assignment that a child gets."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from sparewatt.cli.gateway import gateway
from sparewatt.cluster.peer_rpc import new_slots
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.edge.server import bind, listen
from sparewatt.gateway.processes import read_assignment, reserved_ports, run_processes, write_assignment
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


def test_without_metrics_no_port_is_reserved_for_them() -> None:
    with reserved_ports(GatewaySettings(port=0, processes=2, metrics=False)) as ports:
        assert ports.metrics == ()


def test_a_port_that_another_program_has_is_not_joined() -> None:
    with listen("127.0.0.1", 0, shared=True) as theirs:
        port = theirs.getsockname()[1]
        with pytest.raises(StartupError, match="Choose another --port"), reserved_ports(GatewaySettings(port=port)):
            pass


async def test_unusable_settings_are_reported_before_anything_starts() -> None:
    with pytest.raises(StartupError, match="without TLS"):
        await run_processes(GatewaySettings(host="192.0.2.1", processes=2))
    with pytest.raises(StartupError, match="--link-port"):
        await run_processes(GatewaySettings(behind_proxy=True, public_url="https://gpu.example", processes=2))


def test_a_process_is_not_for_people_to_start() -> None:
    result = CliRunner().invoke(gateway, ["process"], input="")
    assert isinstance(result.exception, StartupError)
    assert "\n  process" not in CliRunner().invoke(gateway, ["--help"]).output


def test_an_assignment_is_the_same_at_the_other_end_of_the_pipe() -> None:
    settings = GatewaySettings(data=Path("/somewhere"), tls_cert=Path("a.pem"), secret="ab" * 32, port=443)
    slot = new_slots(link_ports=(1, 2), peer_ports=(3, 4), rng=seeded(1))[1]
    assert read_assignment(write_assignment(settings, slot)) == (settings, slot)


def test_an_invalid_assignment_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_assignment(b"")
    with pytest.raises(StartupError):
        read_assignment(b'{"settings": {"prot": 1}, "slot": {}}')
