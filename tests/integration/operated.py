"""A gateway as an operator runs it: `sparewatt gateway run` with its own Postgres, an operator's key, and nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparewatt.machine.spawn import free_port
from tests.integration.asking import ask
from tests.integration.networks import Network
from tests.processes import end_process, start_process, tail, wait_until

MODEL = "deterministic"
START_S = 60.0
STOP_S = 60.0
_KEPT = ("PATH", "PYTHONPATH", "LANG", "TMPDIR", "SSL_CERT_FILE")


def bare_environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the machine that the tests run on but where its programs are."""
    return {name: value for name, value in os.environ.items() if name in _KEPT} | {"HOME": str(home), **more}


def sparewatt(*words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """One command of ours, run to its end."""
    argv = [sys.executable, "-m", "sparewatt", *words]
    return subprocess.run(argv, env=env, check=False, capture_output=True, text=True, timeout=START_S)


@contextmanager
def operated_gateway(
    folder: Path, *flags: str, env: Mapping[str, str], root_url: str | None = None, port: int | None = None
) -> Iterator[Network]:
    """Yields once it answers, with a new operator's key; ends it with SIGTERM, which must succeed."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    data, log = folder / "gateway", folder / "gateway.log"
    argv = [sys.executable, "-m", "sparewatt", "gateway", "run", f"--port={port}", f"--data={data}", *flags]
    process = start_process(argv, output=log, env=env)
    found = Network(f"{root_url or f'http://127.0.0.1:{port}'}/v1", "", MODEL, {}, data, process, log)
    try:
        wait_until(lambda: _answers(found), "the gateway does not answer", ceiling_s=START_S)
        key = sparewatt("gateway", "operator-key", f"--data={data}", env=env)
        assert key.returncode == 0, key.stderr
        found = Network(found.base_url, key.stdout.strip(), MODEL, {}, data, process, log)
        wait_until(lambda: ask(found, "GET", "/v1/me").status == 200, "the operator's key is not known")
        yield found
    except BaseException as error:
        error.add_note(f"The gateway said:\n{tail(log)}")
        raise
    finally:
        was_running = process.poll() is None
        status = end_process(process, signal.SIGTERM, ceiling_s=STOP_S)
        assert not was_running or status == 0, tail(log)


def _answers(network: Network) -> bool:
    assert network.process.poll() is None, "the gateway ended"
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return ask(network, "GET", "/readyz", key="").status == 200
    return False


@contextmanager
def process(argv: Sequence[str], log: Path, *, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    running = start_process(argv, output=log, env=env)
    try:
        yield running
    finally:
        end_process(running, signal.SIGTERM)


def engine_argv(port: int, *, decode_tps: float, weights: int = 0) -> list[str]:
    argv = [sys.executable, "-m", "sparewatt.testing", f"--port={port}", f"--decode-tps={decode_tps}"]
    return [*argv, f"--weights={weights}"]


@contextmanager
def joining_node(
    gateway: Network, folder: Path, name: str, *, decode_tps: float, env: Mapping[str, str]
) -> Iterator[None]:
    """A node of the operator's on this machine, on its way."""
    port = free_port()
    token = ask(gateway, "POST", "/v1/join-tokens", {}).json()["token"]
    argv = [sys.executable, "-m", "sparewatt", "node", "join", gateway.root_url, f"--token={token}"]
    argv += [f"--backend=http://127.0.0.1:{port}", f"--name={name}", f"--data={folder / name}"]
    with (
        process(engine_argv(port, decode_tps=decode_tps), folder / f"engine-{name}.log", env=env),
        process(argv, folder / f"node-{name}.log", env=env),
    ):
        yield


@contextmanager
def joined_node(
    gateway: Network, folder: Path, name: str, *, decode_tps: float, env: Mapping[str, str]
) -> Iterator[None]:
    """The same, serving."""
    with joining_node(gateway, folder, name, decode_tps=decode_tps, env=env):
        wait_until(lambda: is_serving(gateway, name), f"{name} does not serve", ceiling_s=START_S)
        yield


def is_serving(gateway: Network, name: str) -> bool:
    for node in ask(gateway, "GET", "/v1/nodes").json()["data"]:
        if node["name"] == name:
            return node["state"] in {"online", "busy"} and any(model["measured"] for model in node["models"])
    return False
