from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from sparewatt.sim.servers.facts import ServerKind, ServerTruth

MakeFacts = Callable[..., ServerTruth]
KINDS: tuple[ServerKind, ...] = get_args(ServerKind)


def make_facts(kind: ServerKind, **changes: object) -> ServerTruth:
    """Llama 3.1 8B with a KV cache for a bit more than two whole contexts."""
    values: dict[str, object] = {
        "model": "llama-3.1-8b",
        "context_length": 16_384,
        "slots": 64,
        "kv_tokens": 40_000,
        "weights_bytes": 16_060_522_496,
        "kv_bytes_per_token": 131_072,
        "parameters": 8_030_261_248,
        "quantization": "Q8_0",
        "started_at": 1_794_741_734,
    }
    return ServerTruth(kind=kind, **(values | changes))  # type: ignore[arg-type]  # names and types as above


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> ServerKind:
    found: ServerKind = request.param
    return found
