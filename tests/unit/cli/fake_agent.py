"""A node's agent that runs in a folder, as far as commands on its machine can tell; it records its requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparewatt.core.rng import seeded
from sparewatt.node.owner.control_socket import serve_control
from tests.unit.cli.conftest import run_alone

STATUS: dict[str, Any] = {
    "id": "0x" + "11" * 20,
    "name": "attic",
    "state": "online",
    "gateway": "https://gateway.example",
    "paused": None,
    "joined_at": 1.0,
    "last_trouble": None,
    "server": {"kind": "ollama", "trouble": None},
    "measuring": None,
    "running": 1,
    "queued": 0,
    "foreign": 0,
    "slots": 4,
    "models": [
        {
            "id": "llama3",
            "state": "on_disk",
            "measured": {
                "prefill_tps": 900.0,
                "decode_tps": 50.0,
                "ttft_s": 0.1,
                "batch": 4,
                "batch_decode_tps": 160.0,
            },
            "prompt_price_nano": 10**7,
            "completion_price_nano": 10**8,
        }
    ],
    "gpus": [{"model": "RTX 4090", "copy_bytes_s": 9e11, "fp16_tflops": 160.0}],
    "readings": [{"vram_free_bytes": 10**10, "power_watts": 88.0}],
    "power_watts": 88.0,
    "hourly_usd": "0.1",
    "wishes": {"watts_max": 300.0},
    "hours": None,
    "pause_ends_at": 0.0,
}


class Node:
    """A node that runs in `folder`, or does not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"status": STATUS}

    def handle(self, body: bytes) -> dict[str, Any]:
        self.requests.append(json.loads(body))
        return self.answer

    def run(self, *words: str) -> Any:
        return run_alone("node", *words, "--data", str(self.folder))


@contextmanager
def running_agent(folder: Path) -> Iterator[Node]:
    found = Node(folder)
    found.folder.mkdir(mode=0o700, parents=True)
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serve_control(found.folder, found.handle, rng=seeded(1)):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
