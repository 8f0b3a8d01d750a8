"""What `bench.gpu` measures, step by step. A step that fails is reported, and those that do not need it go on.

`node doctor --measure`; a model server on the GPU, which first times itself; what a node's meter finds on it beside
timings by HTTP; a gateway with its database; the node that joins and is measured; `node status`; answers through the
gateway; and the predicted first token of some requests beside the real one, at concurrency 1 and 8.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from bench.gpu_report import report
from bench.measured_speed import measure, time_directly

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.backends.discovery import AutoDetectedBackend
from sparewatt.node.measurement.job_timing import JobTimer
from sparewatt.node.measurement.model_speed import SpeedMeter

REPO = Path(__file__).parents[1]
READY_S = 120.0
"""For each process to come up."""
SERVER_S = 180.0
"""For the model server, which compiles, captures and times itself first."""
FULL_S = 90.0
"""For the rest of the curve, which is measured after the node has joined."""
HEARTBEAT_S = 6.0
ANSWERS, ANSWER_TOKENS = 3, 200
REQUESTS, CONCURRENCIES = 30, (1, 8)
PROMPT_WORDS = (20, 2400)
REQUEST_TOKENS = (16, 128)
LOG_CHARS = 1500
_WORDS = ("river", "stone", "lamp", "paper", "seven", "green", "walk", "quiet")

Json = dict[str, Any]


class StepFailed(Exception):
    """Says why in words."""


class GpuRun:
    """The results, step by step, and the processes that end with the run."""

    def __init__(self, folder: Path, *, limit_s: float, json_file: Path | None) -> None:
        self.folder = folder
        self.network: Json = {}
        """The gateway's address and keys."""
        self.found: Json = {"python": platform.python_version(), "failed": {}, "seconds": {}}
        self._began_s = time.monotonic()
        self._limit_s = limit_s
        self._json_file = json_file
        self._logs = json_file.parent if json_file is not None else folder

    def step(self, name: str, work: Callable[[], Any], *, needs: Sequence[str] = ()) -> Any:
        """What the work returns is kept under the step's name; None if it failed or was left out."""
        why = self._left_out(needs)
        began_s = time.monotonic()
        if why is None:
            print(f"[{began_s - self._began_s:5.1f} s] {name} ...", flush=True)
            try:
                self.found[name] = work()
            except Exception as error:  # noqa: BLE001 (one broken step must not cost the others)
                why = str(error)
                if not isinstance(error, StepFailed):
                    why = f"{type(error).__name__}: {error}\n{traceback.format_exc()[-LOG_CHARS:]}"
        if why is not None:
            self.found["failed"][name] = why
            print(f"{name} FAILED: {why}", flush=True)
        self.found["seconds"][name] = round(time.monotonic() - began_s, 1)
        if self._json_file is not None:
            self._json_file.write_text(json.dumps(self.found, indent=1) + "\n")
        return self.found.get(name)

    def _left_out(self, needs: Sequence[str]) -> str | None:
        absent = [need for need in needs if self.found.get(need) is None]
        if absent:
            return f"left out, as it needs: {', '.join(absent)}"
        return "left out: no time" if time.monotonic() - self._began_s > self._limit_s else None

    def sparewatt(self, *words: str) -> str:
        """What it prints; `doctor` also ends with a status when something is missing."""
        argv = [sys.executable, "-m", "sparewatt", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=REPO, timeout=READY_S)
        if done.returncode != 0 and "doctor" not in words:
            raise StepFailed(f"sparewatt {' '.join(words)}: {(done.stderr or done.stdout)[-LOG_CHARS:]}")
        return done.stdout

    @contextmanager
    def process(self, name: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._logs / f"{name}.log").open("wb") as file:
            process = subprocess.Popen([sys.executable, "-m", *argv], stdout=file, stderr=file, cwd=REPO)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self, what: str, holds: Callable[[], Any], process: subprocess.Popen[bytes], *, ceiling_s: float) -> Any:
        deadline_s = time.monotonic() + ceiling_s
        while time.monotonic() < deadline_s and process.poll() is None:
            if (found := holds()) is not None:
                return found
            time.sleep(0.1)
        logs = {path.name: path.read_text(errors="replace")[-LOG_CHARS:] for path in self._logs.glob("*.log")}
        raise StepFailed(f"{what}: not within {ceiling_s:.0f} s.\n{json.dumps(logs, indent=1)}")


def get(url: str, key: str = "") -> Any:
    """JSON, or None while the server does not answer."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return json.load(reply)
    except (urllib.error.URLError, OSError, ValueError):
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# the steps


def run_steps(run: GpuRun, sizes: Sequence[str], slots: int) -> None:
    with ExitStack() as running:
        run.step("doctor", lambda: doctor(run))
        for size in sizes:
            if run.step(f"server_{size}", partial(start_server, run, running, size, slots)):
                run.found["server"] = run.found[f"server_{size}"]
                break
        server = run.found.get("server", "")
        run.step("direct", lambda: json.loads((run.folder / "timings.json").read_text()), needs=("server",))
        run.step("meter", lambda: asyncio.run(meter_and_timings(server)), needs=("server",))
        run.step("gateway", lambda: start_gateway(run, running))
        run.step("node", lambda: join(run, running, server), needs=("server", "gateway"))
        status = ("node", "status", "--data", str(run.folder / "node"))
        run.step("status", lambda: json.loads(run.sparewatt(*status, "--json")), needs=("node",))
        run.step("status_text", lambda: run.sparewatt(*status), needs=("node",))
        client = GatewayClient(run)
        run.step("answers", client.answers, needs=("node",))
        for concurrency in CONCURRENCIES:
            run.step(f"predictions_{concurrency}", partial(client.predictions, concurrency), needs=("node",))
        run.step("node_after", lambda: after_heartbeat(run.network), needs=("node",))


def doctor(run: GpuRun) -> Json:
    found = json.loads(run.sparewatt("node", "doctor", "--measure", "--json", "--data", str(run.folder / "node")))
    return {name: found.get(name) for name in ("gpus", "readings", "measured")}


def start_server(run: GpuRun, running: ExitStack, size: str, slots: int) -> str:
    """Its address. It answers after it has timed itself."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = (f"--port={port}", f"--size={size}", f"--slots={slots}", f"--timings={run.folder / 'timings.json'}")
    with ExitStack() as stack:
        server = stack.enter_context(run.process(f"server-{size}", "bench.torch_server", *words))
        run.wait("the model server", lambda: get(f"{url}/v1/models"), server, ceiling_s=SERVER_S)
        running.enter_context(stack.pop_all())
    return url


async def meter_and_timings(url: str) -> Json:
    """What a node's meter finds, and what a client times: medians that know nothing of the meter."""
    clock = SystemClock()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        backend = AutoDetectedBackend(url, session, clock=clock)
        [model] = await backend.models()
        slots = await backend.slots() or 1
        meter = SpeedMeter(backend=backend, clock=clock, rng=SystemRng())
        found = await measure(meter, model.id, slots=slots, context_length=model.context_length)
        timings = await time_directly(JobTimer(backend, clock), model.id, slots=slots)
    return {
        "kind": backend.kind,
        "slots": slots,
        "quick": msgspec.to_builtins(found.quick),
        "full": msgspec.to_builtins(found.full),
        "took_s": round(found.took_s, 2),
        "timings": [list(each) for each in timings],
    }


def start_gateway(run: GpuRun, running: ExitStack) -> str:
    """Its address."""
    data = run.folder / "network"
    words = ("up", f"--data={data}", f"--port={free_port()}", "--nodes=0", "--engine=deterministic", "--no-chain")
    up = running.enter_context(run.process("up", "sparewatt", *words))

    def ready() -> Json | None:
        try:
            found: Json = json.loads((data / "ready.json").read_text())
        except (OSError, ValueError):
            return None
        return found

    run.network = run.wait("the gateway", ready, up, ceiling_s=READY_S)
    return str(run.network["base_url"])


def join(run: GpuRun, running: ExitStack, server: str) -> Json:
    """The node as the gateway first shows it with a measured model, and when all of the curve was measured."""
    network = run.network
    root, data = network["base_url"].removesuffix("/v1"), run.folder / "node"
    words = (root, f"--token={network['join_token']}", f"--backend={server}", f"--data={data}", "--name=bench")
    began_s = time.monotonic()
    node = running.enter_context(run.process("node", "sparewatt", "node", "join", *words, "--region=here"))
    first = run.wait("the measured node", lambda: measured_node(network), node, ceiling_s=READY_S)
    found = {"model": first["models"][0]["id"], "first": first["models"][0], "first_s": time.monotonic() - began_s}
    try:
        whole = lambda: measured_node(network, has="prefill_pace")  # noqa: E731
        full = run.wait("the whole curve", whole, node, ceiling_s=FULL_S)
    except StepFailed as failure:
        return found | {"full": None, "why_not": str(failure)}
    return found | {"full": full["models"][0], "full_s": time.monotonic() - began_s}


def measured_node(network: Json, *, has: str = "decode_tps") -> Any:
    """Our node at the gateway, once its model has that figure."""
    listed = get(f"{network['base_url']}/nodes", network["api_key"])
    for node in (listed or {}).get("data", []):
        if node["state"] == "online" and any((model["measured"] or {}).get(has) for model in node["models"]):
            return node
    return None


def after_heartbeat(network: Json) -> Any:
    """The power draw is in the next heartbeat."""
    time.sleep(HEARTBEAT_S)
    return measured_node(network)


class GatewayClient:
    def __init__(self, run: GpuRun) -> None:
        self._run = run

    def answers(self) -> list[Json]:
        """Some streamed answers, one after the other."""

        async def ask() -> list[Json]:
            async with self._session() as session:
                return [await self._stream(session, "Tell me about rivers.", ANSWER_TOKENS) for _ in range(ANSWERS)]

        return asyncio.run(ask())

    def predictions(self, at_once: int) -> list[Json]:
        """Requests of many sizes, so many at a time: what the match predicted, and what came."""
        rng = random.Random(f"predictions {at_once}")  # noqa: S311 (repeatable)
        low, high = PROMPT_WORDS
        sizes = [(round(low * (high / low) ** rng.random()), rng.randint(*REQUEST_TOKENS)) for _ in range(REQUESTS)]
        prompts = [" ".join(rng.choices(_WORDS, k=words)) for words, _ in sizes]

        async def ask() -> list[Json]:
            few = asyncio.Semaphore(at_once)
            async with self._session() as session:

                async def one(prompt: str, tokens: int) -> Json:
                    async with few:
                        return await self._stream(session, prompt, tokens)

                jobs = [one(prompt, tokens) for prompt, (_, tokens) in zip(prompts, sizes, strict=True)]
                found = await asyncio.gather(*jobs)
                return [each | await self._match(session, each["match"]) for each in found]

        return asyncio.run(ask())

    def _session(self) -> aiohttp.ClientSession:
        headers = {"authorization": f"Bearer {self._run.network['api_key']}"}
        return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=READY_S))

    async def _stream(self, session: aiohttp.ClientSession, prompt: str, tokens: int) -> Json:
        body = {
            "model": self._run.found["node"]["model"],
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began_s, events_s, usage = time.monotonic(), list[float](), dict[str, Any]()
        async with session.post(f"{self._run.network['base_url']}/chat/completions", json=body) as reply:
            if reply.status != 200:
                raise StepFailed(f"status {reply.status}: {(await reply.text())[:LOG_CHARS]}")
            async for line in reply.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("error"):
                    raise StepFailed(f"the answer broke off: {event['error']}")
                usage = event.get("usage") or usage
                if any(choice["delta"].get("content") for choice in event["choices"]):
                    events_s.append(time.monotonic() - began_s)
            match = reply.headers.get("x-sparewatt-match-id")
        writing_s = max(1e-6, events_s[-1] - events_s[0])
        return {
            "match": match,
            "first_token_s": events_s[0],
            "tokens_per_s": (usage["completion_tokens"] - 1) / writing_s,
            "prompt_tokens": usage["prompt_tokens"],
            "tokens": usage["completion_tokens"],
            "cost_usd": usage.get("cost"),
        }

    async def _match(self, session: aiohttp.ClientSession, match_id: str | None) -> Json:
        async with session.get(f"{self._run.network['base_url']}/matches/{match_id}") as reply:
            match = await reply.json() if reply.status == 200 else {}
        ranked = {each["node"]: each for each in match.get("ranked", ())}
        chosen = ranked.get(match.get("chosen"), {})
        estimate = match.get("job") or {}
        return {"predicted_s": chosen.get("predicted_ttft_s"), "estimated_tokens": estimate.get("prompt_tokens")}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    parser.add_argument("--sizes", nargs="+", required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    run = GpuRun(given.folder, limit_s=given.limit_s, json_file=given.json)
    run_steps(run, given.sizes, given.slots)
    page = report(run.found)
    print(page)
    if given.report is not None:
        given.report.write_text(page)
    return int(bool(run.found["failed"]))


if __name__ == "__main__":
    sys.exit(main())
