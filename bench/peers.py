"""Other routers to compare with, in pinned versions, each in a virtual environment that is created on first use."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparewatt.machine.spawn import free_port
from tests.processes import end_process, start_process

REPO = Path(__file__).parents[1]
INSTALL_S_MAX = 600.0
POLICIES = ("round_robin", "power_of_two", "cache_aware")


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    version: str
    module: str
    extra: str = ""
    extra_packages: tuple[str, ...] = ()
    """Further packages in its environment."""

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"{self.name}{self.extra}=={self.version}", *self.extra_packages)

    @property
    def python(self) -> Path:
        return REPO / f".venv-bench-{self.name}" / "bin" / "python"

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


PEERS = (
    Peer("vllm-router", "0.1.16", "vllm_router.launch_router"),
    Peer("sglang-router", "0.3.2", "sglang_router.launch_router"),
)

LITELLM = Peer(
    *("litellm", "1.106.2", "litellm"),
    extra="[proxy]",
    extra_packages=("httptools", "opentelemetry-sdk", "opentelemetry-exporter-otlp"),
)
"""With packages whose absence would make it search for them on every request, and with its server's faster parser."""


def install(peer: Peer) -> str | None:
    """Returns why it could not be installed; None if it is installed."""
    if _is_installed(peer):
        return None
    try:
        subprocess.run([sys.executable, "-m", "venv", peer.python.parents[1]], check=True, capture_output=True)
        subprocess.run(
            [
                *(peer.python, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
                *peer.requirements,
            ],
            check=True,
            capture_output=True,
            timeout=INSTALL_S_MAX,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return said[-1][:200] if said else f"status {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    return None


def _is_installed(peer: Peer) -> bool:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        argv = [str(peer.python), "-c", f"import importlib.metadata as m; print(m.version({peer.name!r}))"]
        found = subprocess.run(argv, check=True, capture_output=True, text=True)
        return str(found.stdout).strip() == peer.version
    return False


@contextmanager
def running_peer(peer: Peer, policy: str, folder: Path, engine_urls: Sequence[str]) -> Iterator[str]:
    """Runs the router in front of the engines; yields its address. It may not listen yet."""
    port = free_port()
    argv = [
        *(str(peer.python), "-m", peer.module),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        *("--policy", policy, "--log-level", "error"),
        *("--worker-urls", *engine_urls),
    ]
    process = start_process(argv, output=folder / f"{peer.name}-{policy}.txt")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=5.0)
