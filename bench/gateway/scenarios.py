"""The workloads of the measurement, and the bodies of their requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.gateway.answers import TOKENS
from bench.gateway.fleet import MODEL, SHARED, SHARED_NODES

SMALL_BYTES, LARGE_BYTES = 2_000, 100_000
STREAM_PACE_MS = 20
HELD_PACE_MS = 500
HELD_STREAMS = 1_000
_TEXT = "Tell me what the spare machines of a town could do at night, and who would thank them for it. "
_NUMBER = "########"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    seconds: float
    rate: float = 0.0
    connections: int = 0
    body_bytes: int = SMALL_BYTES
    pace_ms: int | None = None
    """Between two tokens of a streamed answer; None: not streamed."""
    our_model: str = MODEL
    """The model for our nodes; other targets have one model server with one model."""

    @property
    def is_stream(self) -> bool:
        return self.pace_ms is not None

    @property
    def flags(self) -> tuple[str, ...]:
        shape = f"--rate={self.rate}" if self.rate else f"--connections={self.connections}"
        return (f"--seconds={self.seconds}", shape)


SCENARIOS = (
    Scenario("L", "light: 100 requests/s, whole answers", 1.6, rate=100),
    Scenario("N", "whole answers, 2 kB requests, 32 connections in a closed loop", 1.6, connections=32),
    Scenario("N64", "as N with 64 connections, for two processes beside one", 1.6, connections=64),
    Scenario("B", "as N with 100 kB requests", 1.6, connections=32, body_bytes=LARGE_BYTES),
    Scenario("S1", "25 streams/s of 64 tokens 20 ms apart", 2.6, rate=25, pace_ms=STREAM_PACE_MS),
    Scenario("S2", "150 such streams/s", 3.0, rate=150, pace_ms=STREAM_PACE_MS),
    Scenario("S3", "300 such streams/s", 3.0, rate=300, pace_ms=STREAM_PACE_MS),
    Scenario(
        "S3-shared",
        f"as S3; ours for a model that {SHARED_NODES} large nodes have, so that some 24 streams share a link",
        3.0,
        rate=300,
        pace_ms=STREAM_PACE_MS,
        our_model=SHARED,
    ),
    Scenario("burst", "streams of 64 tokens at once, 16 connections in a closed loop", 2.0, connections=16, pace_ms=0),
)
MEMORY = Scenario("memory", f"{HELD_STREAMS:,} open streams", 0.0, rate=400, pace_ms=HELD_PACE_MS)


def write_body(scenario: Scenario, folder: Path, *, is_ours: bool = False) -> Path:
    model = scenario.our_model if is_ours else MODEL
    path = folder / f"{scenario.name}-{model}.json"
    path.write_bytes(body_of(scenario, model))
    return path


def body_of(scenario: Scenario, model: str = MODEL) -> bytes:
    """With a placeholder for the request's number at the start of the prompt, so that no two share a prefix."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": ""}],
        "temperature": 0.7,
        "max_tokens": TOKENS + (scenario.pace_ms or 0),
        "stream": scenario.is_stream,
    }
    room = scenario.body_bytes - len(json.dumps(body)) - len(_NUMBER) - 1
    text = (_TEXT * (room // len(_TEXT) + 1))[:room]
    body["messages"] = [{"role": "user", "content": f"{_NUMBER} {text}"}]
    return json.dumps(body).encode()
