"""Fakes: a deterministic model server, for tests and for trying the product without a GPU, clocks and sockets.

`running_engine` serves the model inside a test, `python -m sparewatt.testing` as a process; `expected_text` computes
its answer to a prompt. The product does not import this package; it only starts the process.
"""

from sparewatt.testing.clocks import InstantClock, ManualClock
from sparewatt.testing.engine.engine import running_engine
from sparewatt.testing.engine.settings import EngineSettings, Fault
from sparewatt.testing.engine.text import (
    ASSISTANT_MARKER,
    answer_tokens,
    count_tokens,
    expected_text,
    render_chat,
    tokenize,
)

__all__ = [
    "ASSISTANT_MARKER",
    "EngineSettings",
    "Fault",
    "InstantClock",
    "ManualClock",
    "answer_tokens",
    "count_tokens",
    "expected_text",
    "render_chat",
    "running_engine",
    "tokenize",
]
