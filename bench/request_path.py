"""How much code one streamed chat runs in the gateway: files, classes and functions, counted by a profiler.

    python -m bench.request_path [--json FILE] [--list]

A real gateway (keys, limits, books on a real Postgres, three nodes on real links) runs in this process under a profile
hook; a client on another thread sends one streamed chat. Counted is every function of `sparewatt` that runs between the
first byte of the request and the end of the job, except for background work that would have run without it. The chat is
sent several times after a warm-up, and the smallest count is printed: a heartbeat in between is no part of the path.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import uvloop
from bench.gateway.ours import prepare_network, running_nodes, running_postgres
from bench.gateway.scenarios import SCENARIOS, body_of

import sparewatt
from sparewatt.edge.connection import PipelinedRequest
from sparewatt.edge.exchange import Exchange
from sparewatt.edge.server import _check_timeouts
from sparewatt.gateway.chores import repeat
from sparewatt.gateway.process import run_gateway
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.service import Submission
from sparewatt.link.gateway_end import JobStream
from sparewatt.telemetry.metrics.collector import LoopLag

NODES = 3
CHATS = 8
SOURCE = str(Path(sparewatt.__file__).parent) + "/"
LOOP_LAG_TIMER = next(code for code in LoopLag.watch.__code__.co_consts if isinstance(code, CodeType))
BACKGROUND = frozenset({repeat.__code__, _check_timeouts.__code__, LOOP_LAG_TIMER})
"""Functions at the bottom of a call stack that run by the clock, with or without a request."""
SHARED = ("core/", "policy/", "protocol/")
"""Packages that nodes, command line and chain use as well: their files are counted apart from the gateway's own."""
CARRIERS = (PipelinedRequest, Exchange, ModelCall, Submission, Job, JobRun, Attempt, JobStream)
"""Objects that stand for the one request on its way, first to last, each made from the one before."""
QUIET_S = 0.05
"""After the last byte: what the end of the job puts off until the event loop's next ticks."""
APART_S = 1.5


@dataclass(slots=True)
class RequestPath:
    """What ran for one chat."""

    files: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)


class Profiler:
    """A `sys.setprofile` hook that leaves out whatever background work calls."""

    def __init__(self) -> None:
        self.path = RequestPath()
        self._depth = 0
        self._is_background = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            if self._depth == 0:
                self._is_background = frame.f_code in BACKGROUND
            self._depth += 1
            if not self._is_background:
                self._note(frame)
        elif event == "return" and self._depth:
            self._depth -= 1

    def _note(self, frame: FrameType) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        file = code.co_filename.removeprefix(SOURCE)
        self.path.files.add(file)
        self.path.functions.add((file, code.co_qualname))
        if "." in code.co_qualname and "<locals>" not in code.co_qualname:
            self.path.classes.add(f"{file}:{code.co_qualname.partition('.')[0]}")


def stream_once(port: int, key: str, body: bytes) -> int:
    """Send one streamed chat and read it to its end; returns the number of events."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", body=body, headers=headers)
    events = connection.getresponse().read().count(b"data: ")
    connection.close()
    return events


async def profile_chats(port: int, key: str, body: bytes) -> list[RequestPath]:
    await asyncio.to_thread(stream_once, port, key, body)
    found = []
    for _ in range(CHATS):
        await asyncio.sleep(APART_S)
        profiler = Profiler()
        sys.setprofile(profiler)
        try:
            events = await asyncio.to_thread(stream_once, port, key, body)
            await asyncio.sleep(QUIET_S)
        finally:
            sys.setprofile(None)
        assert events > 2, "the chat was not answered"
        found.append(profiler.path)
    return found


async def run(folder: Path, dsn: str, key: str, tokens: list[str], body: bytes) -> list[RequestPath]:
    port_file = folder / "port"
    settings = GatewaySettings(port=0, port_file=port_file, database_url=dsn, data=folder / "gateway", drain_s=1)
    serving = asyncio.create_task(run_gateway(settings))
    with ExitStack() as stack:
        while not port_file.exists():
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.05)
        port = int(port_file.read_text())
        await asyncio.to_thread(stack.enter_context, running_nodes(folder, port, tokens))
        found = await profile_chats(port, key, body)
    serving.cancel()
    await asyncio.wait([serving])
    return found


def measure() -> RequestPath:
    """The smallest of several chats."""
    body = body_of(next(scenario for scenario in SCENARIOS if scenario.name == "S1"))
    with tempfile.TemporaryDirectory(prefix="bench-path-") as name, running_postgres(Path(name) / "postgres") as server:
        folder = Path(name)
        key, tokens = asyncio.run(prepare_network(server.dsn, folder, NODES))
        found = uvloop.run(run(folder, server.dsn, key, tokens, body))
    return min(found, key=lambda path: (len(path.files), len(path.functions)))


def describe(path: RequestPath) -> dict[str, Any]:
    return {
        "files": sum(not file.startswith(SHARED) for file in path.files),
        "shared_files": sum(file.startswith(SHARED) for file in path.files),
        "carriers": [carrier.__name__ for carrier in CARRIERS],
        "classes": len(path.classes),
        "functions": len(path.functions),
        "by_file": {
            file: sorted(name for where, name in path.functions if where == file) for file in sorted(path.files)
        },
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.request_path", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write what ran, by file.")
    parser.add_argument("--list", action="store_true", help="Print the files too.")
    options = parser.parse_args(argv)
    found = describe(measure())
    print(
        f"one streamed chat: {found['files']} files of the gateway and {found['shared_files']} of core, policy and "
        f"protocol; {found['classes']} classes, {found['functions']} functions"
    )
    print(f"{len(CARRIERS)} carriers: {' → '.join(found['carriers'])}")
    if options.list:
        print("\n".join(f"  {file}: {len(names)}" for file, names in found["by_file"].items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
