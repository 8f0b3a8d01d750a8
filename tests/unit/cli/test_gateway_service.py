"""The unit that `sparewatt gateway service` prints."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparewatt.cli.gateway import GatewayUnit, render_unit, service
from sparewatt.core.errors import StartupError

PROXIED = ("--behind-proxy", "--public-url", "https://gateway.example")
OWN_TLS = ("--host", "0.0.0.0", "--port", "443", "--tls-cert", "c.pem", "--tls-key", "k.pem")  # noqa: S104


def run(*words: str) -> Result:
    return CliRunner().invoke(service, words)


def read(text: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser["Service"]


def test_the_options_of_the_gateway_are_those_of_its_unit() -> None:
    found = read(run(*PROXIED).output)
    assert found["ExecStart"].endswith(
        "gateway run --data /var/lib/sparewatt --behind-proxy --public-url https://gateway.example"
    )
    assert found["User"] == "sparewatt"
    assert found["StateDirectory"] == "sparewatt"
    assert found["CapabilityBoundingSet"] == ""
    assert "ExecReload" not in found


def test_a_low_port_and_a_certificate_bring_what_they_need() -> None:
    found = read(run(*OWN_TLS, "--public-url", "https://g.example", "--data", "/srv/gateway").output)
    assert found["AmbientCapabilities"] == "CAP_NET_BIND_SERVICE"
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert found["ReadWritePaths"] == "/srv/gateway"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("--host", "0.0.0.0"), "--tls-cert"),  # noqa: S104
        (("--host", "0.0.0.0", "--behind-proxy"), "--public-url"),  # noqa: S104
        (("--public-url", "http://gateway.example"), "https://"),
        (("--tls-cert", "c.pem"), "both"),
    ],
)
def test_a_gateway_that_would_refuse_to_start_gets_no_unit(words: tuple[str, ...], advice: str) -> None:
    told = run(*words)
    assert isinstance(told.exception, StartupError)
    assert advice in told.exception.message
    assert told.output == ""


def test_an_invalid_port_is_named_in_the_error() -> None:
    told = run("--port", "99999")
    assert told.exit_code == 2
    assert "'--port': 99999 is not in the range 0<=x<=65535" in told.output


def test_the_unit_waits_longer_than_the_gateway_drains() -> None:
    assert read(run("--drain-s", "100").output)["TimeoutStopSec"] == "130"


def test_a_mistyped_option_is_an_error_before_it_is_installed() -> None:
    told = run("--behind-prox")
    assert told.exit_code == 2
    assert "ExecStart" not in told.output


def test_what_systemd_would_take_for_its_own_is_quoted() -> None:
    text = render_unit(
        GatewayUnit("/opt/sparewatt/bin/sparewatt", "sw", Path("/srv/a b"), ("--route=100%", "$HOME"), 30, False, False)
    )
    assert "--data '/srv/a b' --route=100%% '$$HOME'" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "sparewatt-gateway.service"
    text = render_unit(GatewayUnit("/bin/true", "root", Path("/var/lib/sparewatt"), PROXIED, 30, False, True))
    file.write_text(text)
    checked = subprocess.run(["systemd-analyze", "verify", file], check=False, capture_output=True, text=True)
    assert file.name not in checked.stderr
