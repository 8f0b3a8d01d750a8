"""A renter reaches a web server in a lease: its log, a shell, its port, at every process, also after its agent died."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from sparewatt.node.leases.runtime.egress_table import TABLE
from sparewatt.node.leases.runtime.probe_image import archive_of
from tests.integration.networks import Network, start_network
from tests.integration.people import sign_up
from tests.integration.test_leased_container import market_is_ready, run, runs_containers, sparewatt
from tests.podman import podman_service, why_not
from tests.processes import wait_until

BUSYBOX = shutil.which("busybox")
pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.skipif(BUSYBOX is None, reason="busybox-static is not installed"),
]
MARKET_S, RUNS_S, CALL_S = 90.0, 60.0, 60.0
IMAGE, NAME, PORT = "localhost/access-web:1", "web", 8080
PAGE, BIG_BYTES = "the page of the lease", 8 * 1024 * 1024
SERVER = f"echo serving; echo trouble >&2; echo '{PAGE}' > /data/index.html; exec /busybox httpd -f -p {PORT} -h /data"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("access")
    image = folder / "image.tar"
    image.write_bytes(archive_of({"/busybox": Path(BUSYBOX or "").read_bytes()}, tag=IMAGE))
    try:
        with podman_service(tmp_path_factory.mktemp("engine")) as socket:
            load = ["podman", "--remote", "--url", f"unix://{socket}", "load", "--input", str(image)]
            subprocess.run(load, capture_output=True, check=True, timeout=CALL_S)
            flags, env = ("--engine=deterministic", "--nodes=1", "--processes=2"), {"DOCKER_HOST": f"unix://{socket}"}
            with start_network(folder / "network", *flags, chain=True, env=env) as network:
                yield network
    finally:  # an agent leaves its table in place: leases outlive it
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def call(
    network: Network, *words: str, data: bytes = b"", key: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`sparewatt lease WORDS`, with these bytes as its input."""
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": key or network.api_key}
    argv = [sys.executable, "-m", "sparewatt", "lease", *words]
    return subprocess.run(argv, env=env, input=data, capture_output=True, timeout=CALL_S, check=False)


@contextmanager
def connected(network: Network) -> Iterator[str]:
    """`sparewatt lease connect` while the block lasts: the URL that it opens here. Ctrl-C ends it without a word."""
    env = os.environ | {"SPAREWATT_BASE_URL": network.base_url, "SPAREWATT_API_KEY": network.api_key}
    argv = [sys.executable, "-m", "sparewatt", "lease", "connect", NAME, str(PORT), "--local=0"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            found = re.match(r"127\.0\.0\.1:(\d+) leads to port 8080", line)
            assert found is not None, line
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=CALL_S)
    assert (process.returncode, errors) == (0, b"Ctrl-C ends it.\n")


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=CALL_S) as reply:  # noqa: S310 (loopback)
        return bytes(reply.read())


def order_web_server(network: Network) -> None:
    order = ("--image", IMAGE, "--command", f'/busybox sh -c "{SERVER}"', f"--port={PORT}", "--egress=none")
    size = ("--gpus=0", "--cpus=0.2", "--memory-gb=0.1", "--disk-gb=0.1", "--duration=1h")
    sparewatt(network, "lease", "create", *order, *size, f"--name={NAME}", "--yes")
    wait_until(lambda: is_serving(network), "the web server does not run", ceiling_s=RUNS_S)


def is_serving(network: Network) -> bool:
    done = call(network, "logs", NAME)
    return done.returncode == 0 and b"serving" in done.stdout


def kill_agent(network: Network) -> None:
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if "join" in words and any(str(network.data) in word for word in words):
            each.send_signal(signal.SIGKILL)
            return
    raise AssertionError("the network has no agent")


def test_a_renter_reaches_what_runs_in_a_lease_also_after_its_agent_died(network: Network) -> None:
    wait_until(lambda: market_is_ready(network), "the market is not ready", ceiling_s=MARKET_S)
    wait_until(lambda: runs_containers(network), "containers were not proven", ceiling_s=MARKET_S)
    early = call(network, "logs", NAME)
    assert (early.returncode, b"no lease" in early.stderr) == (4, True)
    order_web_server(network)
    _check_logs_and_commands(network)
    with connected(network) as url:
        for _ in range(8):  # connections go to either process of the gateway
            assert fetch(url).decode().strip() == PAGE
        assert len(fetch(f"{url}/big")) == BIG_BYTES
        kill_agent(network)
        assert fetch(url).decode().strip() == PAGE, "the next connection works, without a new command"
    again = call(network, "exec", NAME, "--", "/busybox", "cat", "/data/index.html")
    assert (again.returncode, again.stdout.decode().strip()) == (0, PAGE)
    _check_refusals(network)
    _check_site(network)
    sparewatt(network, "lease", "close", NAME)
    closed = call(network, "logs", NAME)
    assert (closed.returncode, b"closed" in closed.stderr) == (1, True)


def _check_logs_and_commands(network: Network) -> None:
    logs = call(network, "logs", NAME)
    assert (logs.stdout, logs.stderr) == (b"serving\n", b"trouble\n")
    assert call(network, "logs", NAME, "--tail=1").stdout in (b"serving\n", b"")
    piped = call(network, "exec", NAME, "--", "/busybox", "sh", "-c", "cat; echo no >&2; exit 7", data=b"in and out")
    assert (piped.returncode, piped.stdout, piped.stderr) == (7, b"in and out", b"no\n")
    write = f"/busybox dd if=/dev/zero of=/data/big bs=1M count={BIG_BYTES // 1024**2}"
    assert call(network, "exec", NAME, "--", *write.split()).returncode == 0


def _check_site(network: Network) -> None:
    """A public address has the tenant's page and nothing of the gateway; closed, it has nothing."""
    url = sparewatt(network, "lease", "publish", NAME, str(PORT))["url"]
    host = url.removeprefix("http://").rstrip("/")
    assert re.fullmatch(r"[0-9a-f]+\.localhost:\d+", host)

    def visit(path: str) -> bytes:
        asked = urllib.request.Request(network.root_url + path, headers={"host": host})  # noqa: S310 (loopback)
        with urllib.request.urlopen(asked, timeout=CALL_S) as reply:  # noqa: S310 (loopback)
            return bytes(reply.read())

    assert visit("/").decode().strip() == PAGE
    assert len(visit("/big")) == BIG_BYTES
    with pytest.raises(urllib.error.HTTPError, match="404"):
        visit("/v1/network")
    assert run(network, "lease", "publish", NAME, "--off").returncode == 0
    wait_until(lambda: _is_closed(visit), "the address is still there", ceiling_s=RUNS_S)


def _is_closed(visit: Callable[[str], bytes]) -> bool:
    try:
        visit("/")
    except urllib.error.HTTPError as error:
        return error.code == 404
    return False


def _check_refusals(network: Network) -> None:
    """Another account finds nothing; a port that was not ordered is not opened."""
    stranger = sign_up(network, "stranger@example.org").key
    for words in (("logs", NAME), ("exec", NAME, "--", "/busybox", "id")):
        refused = call(network, *words, key=stranger)
        assert (refused.returncode, refused.stdout) == (4, b"")
    unlisted = call(network, "connect", NAME, "22")
    assert (unlisted.returncode, b"its ports are: 8080" in unlisted.stderr) == (2, True)
    assert run(network, "lease", "show", NAME).returncode == 0
