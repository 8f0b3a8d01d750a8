"""The targets: each runs between the load generator and the same model server, on a core of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.gateway.processes import running
from bench.gateway.tools import LOAD_CORE, CannotMeasure, Tools
from bench.peers import LITELLM, PEERS, Peer, install

from sparewatt.machine.spawn import free_port
from tests.processes import wait_until

TARGET_CORE = 0
READY_S = 180.0
"""LiteLLM needs half a minute on an idle machine."""
PEER_KEY = "sk-bench-0123456789"
DIRECT, NGINX, SGLANG, VLLM, LITE, OURS = "direct", "nginx", "sglang-router", "vllm-router", "litellm", "sparewatt"
OURS_TWICE = "sparewatt-2"
"""With two processes, on both cores."""
NAMES = (DIRECT, NGINX, SGLANG, VLLM, LITE, OURS, OURS_TWICE)


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    version: str
    port: int
    key: str
    pids: tuple[int, ...]
    """Processes whose processor time and memory count."""
    helpers: tuple[int, ...] = ()
    """Further processes on the other core, without the model server."""
    database: tuple[int, ...] = ()
    dsn: str | None = None
    """Of its ledger, if it has one."""


@dataclass(frozen=True, slots=True)
class Backend:
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_backend(tools: Tools, folder: Path) -> Iterator[Backend]:
    port = free_port()
    with running([str(tools.backend), str(port)], cores=str(LOAD_CORE), output=folder / "backend.txt") as process:
        wait_until_answering(port, "/health", "the backend")
        yield Backend(port, process.pid)


def direct(backend: Backend) -> Target:
    return Target(DIRECT, "", backend.port, PEER_KEY, ())


def wait_until_answering(port: int, path: str, what: str, *, key: str = PEER_KEY) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {key}"})

    def answers() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except urllib.error.HTTPError:
            return False
        except OSError:
            return False

    wait_until(answers, f"{what} does not answer", ceiling_s=READY_S)


# nginx

NGINX_CONF = """
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.txt error;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_body_buffer_size 256k;
  keepalive_requests 1000000000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def find_nginx() -> str:
    """Also in sbin, which on Debian is only in root's PATH."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is not None:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "nginx-light"], check=False, capture_output=True)
        found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise CannotMeasure("nginx is missing. On Debian, as root: apt-get install nginx-light")
    return found


@contextmanager
def running_nginx(backend: Backend, folder: Path) -> Iterator[Target]:
    program, port = find_nginx(), free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX_CONF.format(folder=folder, backend=backend.port, port=port))
    said = subprocess.run([program, "-v"], check=True, capture_output=True, text=True).stderr
    argv = [program, "-c", str(config), "-p", str(folder), "-e", str(folder / "nginx-errors.txt")]
    with running(argv, cores=str(TARGET_CORE), output=folder / "nginx.txt") as process:
        wait_until_answering(port, "/health", "nginx")
        yield Target(NGINX, said.strip().rpartition("/")[2], port, PEER_KEY, (process.pid,))


# routers


@contextmanager
def running_router(name: str, backend: Backend, folder: Path) -> Iterator[Target]:
    peer = next(peer for peer in PEERS if peer.name == name)
    _need(peer)
    port = free_port()
    argv = [
        *(str(peer.python), "-m", peer.module, "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        *("--worker-urls", backend.url, "--policy", "round_robin", "--log-level", "error"),
    ]
    with running(argv, cores=str(TARGET_CORE), output=folder / f"{name}.txt") as process:
        wait_until_answering(port, "/v1/models", name)
        yield Target(name, peer.version, port, PEER_KEY, (process.pid,))


LITELLM_YAML = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: none}}
general_settings: {{master_key: {key}}}
litellm_settings: {{drop_params: false}}
"""


@contextmanager
def running_litellm(backend: Backend, folder: Path) -> Iterator[Target]:
    _need(LITELLM)
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(LITELLM_YAML.format(url=backend.url, key=PEER_KEY))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "HOME": str(folder)}
    program = str(LITELLM.python.with_name("litellm"))
    argv = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with running(argv, cores=str(TARGET_CORE), output=folder / "litellm.txt", env=env) as process:
        wait_until_answering(port, "/v1/models", LITE)
        yield Target(LITE, LITELLM.version, port, PEER_KEY, (process.pid,))


def _need(peer: Peer) -> None:
    if (why := install(peer)) is not None:
        raise CannotMeasure(f"{peer.title} cannot be installed: {why}")


def check_names(names: Sequence[str], *, among: Sequence[str], what: str) -> None:
    if unknown := [name for name in names if name not in among]:
        raise CannotMeasure(f"No such {what}: {', '.join(unknown)}. There are {', '.join(among)}.")
