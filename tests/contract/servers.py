"""The model servers that the contract is checked against, as real processes, and what each of them cannot do."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from _pytest.mark import ParameterSet

from sparewatt.localnet.demo_model import DEMO_MODEL
from sparewatt.machine.spawn import free_port
from sparewatt.node.serving_image.weights import installed_weights
from sparewatt.sim.servers.facts import ServerKind
from tests.processes import end_process, start_process, tail, wait_until

SLOTS = 2
CONTEXT = 8192
READY_S = 60.0
DECODE_TPS = 100
"""Of the deterministic engine: a context takes it longer to fill than any ceiling, as it does llama.cpp."""

Capability = Literal["tools", "json_schema", "logprobs", "embeddings"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of model server. `lacks` says why it cannot do what others can."""

    name: str
    module: str
    flags: tuple[str, ...]
    lacks: Mapping[Capability, str] = field(default_factory=dict)
    ready_path: str = "/health"

    def argv(self, port: int) -> list[str]:
        weights = [str(installed_weights(DEMO_MODEL))] if self.module == "sparewatt.node.backends.llama_server" else []
        return [sys.executable, "-m", self.module, *weights, f"--port={port}", f"--slots={SLOTS}", *self.flags]


DETERMINISTIC = Kind(
    name="deterministic",
    module="sparewatt.testing",
    flags=(f"--model={DEMO_MODEL}", f"--n-ctx={CONTEXT}", f"--decode-tps={DECODE_TPS}"),
)
LLAMA = Kind(
    name="llama.cpp",
    module="sparewatt.node.backends.llama_server",
    flags=(f"--alias={DEMO_MODEL}", f"--context={CONTEXT}"),
    lacks={
        "tools": "the-model's-template-knows-no-tools, and only its adapter makes up for it",
        "embeddings": "it-is-started-without-embeddings",
    },
)
KINDS = (DETERMINISTIC, LLAMA)


def dialect(speaks: ServerKind, *flags: str, ready_path: str = "/health") -> Kind:
    """The deterministic engine as a server of another kind, with steps of 10 ms."""
    common = (f"--model={DEMO_MODEL}", f"--n-ctx={CONTEXT}", f"--speaks={speaks}", f"--step-s={1 / DECODE_TPS}")
    return Kind(name=f"engine-as-{speaks}", module="sparewatt.testing", flags=(*common, *flags), ready_path=ready_path)


BATCHING = ("--engine-kind=batching", f"--max-num-seqs={SLOTS}")
SPEAKING: dict[ServerKind, Kind] = {
    "vllm": dialect("vllm", *BATCHING),
    "sglang": dialect("sglang", *BATCHING, "--separate-prefill"),
    "llama.cpp": dialect("llama.cpp", "--engine-kind=slots"),
    "ollama": dialect("ollama", "--engine-kind=slots", ready_path="/"),
}


def every_dialect() -> list[ParameterSet]:
    return [pytest.param(kind, id=speaks) for speaks, kind in SPEAKING.items()]


def every_kind() -> list[ParameterSet]:
    return [pytest.param(kind, id=kind.name) for kind in KINDS]


def having(capability: Capability) -> list[ParameterSet]:
    return [pytest.param(kind, id=kind.name) for kind in KINDS if capability not in kind.lacks]


def lacking(capability: Capability) -> list[ParameterSet]:
    """The others, each under a name that says why."""
    return [
        pytest.param(kind, id=f"{kind.name}-as-{kind.lacks[capability]}") for kind in KINDS if capability in kind.lacks
    ]


@dataclass(frozen=True, slots=True)
class Server:
    kind: Kind
    url: str
    model: str
    process: subprocess.Popen[bytes]


@contextmanager
def running_server(kind: Kind, folder: Path) -> Iterator[Server]:
    """A server that is ready; ended by its pid."""
    port = free_port()
    output = folder / f"{kind.name}-{port}.txt"
    process = start_process(kind.argv(port), output=output)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url + kind.ready_path, output)
        yield Server(kind, url, DEMO_MODEL, process)
    finally:
        end_process(process, signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, output: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"ended with status {process.returncode}: {tail(output)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 (our own loopback address)
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    wait_until(answers, f"the server is not ready: {tail(output)}", ceiling_s=READY_S)
