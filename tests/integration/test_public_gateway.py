"""A gateway as an operator puts it on a server: TLS, its own Postgres, its signals, and its refusals."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.machine.spawn import free_port
from tests.certificates import Pair, make_certificate
from tests.integration.asking import ask, stream_chat
from tests.integration.networks import Network
from tests.integration.operated import bare_environment, joined_node, operated_gateway, sparewatt
from tests.integration.people import sign_up
from tests.processes import alive, descendants_of, end_process, wait_until


def flags_for(pair: Pair) -> list[str]:
    return [f"--tls-cert={pair.cert}", f"--tls-key={pair.key}", "--signup=open"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        made = make_certificate(tmp_path, "IP:127.0.0.1")
        patch.setenv("SSL_CERT_FILE", str(made.cert))
        yield made


def _spent(network: Network) -> float:
    return float(ask(network, "GET", "/v1/credits").json()["data"]["total_usage"])


def test_tls_renewed_under_way_a_killed_gateway_and_its_database(pair: Pair, tmp_path: Path) -> None:
    """One gateway's life: used over TLS, its certificate renewed, killed with -9, started again with all it had."""
    env, port = bare_environment(tmp_path), free_port()
    root_url = f"https://127.0.0.1:{port}"
    with operated_gateway(tmp_path, *flags_for(pair), env=env, root_url=root_url, port=port) as gateway:
        ann = replace(gateway, api_key=sign_up(gateway, "ann@example.org").key)
        with joined_node(gateway, tmp_path, "near", decode_tps=200, env=env):
            assert stream_chat(ann, "Over TLS?", max_tokens=10).done
            told = sparewatt("models", "list", "--json", env=env | _as(ann))
            assert told.returncode == 0, told.stderr
            untrusting = sparewatt("models", env=env | _as(ann) | {"SSL_CERT_FILE": "/dev/null"})
            assert "SSL_CERT_FILE" in untrusting.stderr
            renewed = make_certificate(tmp_path / "renewed", "IP:127.0.0.1")
            before = _shown(port)
            renewed.cert.replace(pair.cert)
            renewed.key.replace(pair.key)
            gateway.process.send_signal(signal.SIGHUP)
            wait_until(lambda: _shown(port) != before, "the new certificate is not shown")
        wait_until(lambda: _spent(ann) > 0, "the answer is not in the books")
        spent = _spent(ann)
        below = descendants_of(gateway.pid)
        assert end_process(gateway.process, signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: not alive(below), "its Postgres outlived it")
    with operated_gateway(tmp_path, *flags_for(pair), env=env, root_url=root_url, port=port) as again:
        assert ask(again, "GET", "/v1/ledger/audit").json()["in_order"]
        assert _spent(replace(again, api_key=ann.api_key)) == spent


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        (["--host=0.0.0.0"], "--tls-cert"),
        (["--host=0.0.0.0", "--behind-proxy"], "--public-url"),
        (["--public-url=http://gateway.example"], "https://"),
        (["--tls-cert=nowhere.pem"], "both"),
    ],
)
def test_an_address_that_others_could_read_is_refused(flags: list[str], advice: str, tmp_path: Path) -> None:
    refused = sparewatt("gateway", "run", "--port=0", f"--data={tmp_path}", *flags, env=bare_environment(tmp_path))
    assert refused.returncode == 1
    assert advice in refused.stderr
    assert not (tmp_path / "postgres").exists()


@pytest.mark.parametrize(
    "words",
    [("node", "join", "http://gateway.example", "--token=join-sw-1"), ("models", "--base-url=http://g.example")],
)
def test_clients_and_nodes_refuse_plain_http_off_this_machine(words: tuple[str, ...], tmp_path: Path) -> None:
    env = bare_environment(tmp_path, SPAREWATT_API_KEY="sk-sw-1")
    refused = sparewatt(*words, env=env)
    assert refused.returncode in {1, 2}
    assert "--insecure" in refused.stderr


def _as(network: Network) -> dict[str, str]:
    return {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}


def _shown(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True) or b""
