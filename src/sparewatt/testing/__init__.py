"""A model server whose every answer can be computed beforehand, for tests and for trying the product without a GPU.

`running_engine` serves it inside a test, `python -m sparewatt.testing` as a process; `expected_text` and `render_chat`
say what it must have answered. No part of the product imports this package, except to start it as a process.
"""

from sparewatt.testing.clocks import ManualClock
from sparewatt.testing.engine.app import make_app, running_engine
from sparewatt.testing.engine.engine import Engine
from sparewatt.testing.engine.pacer import InstantClock
from sparewatt.testing.engine.settings import EngineSettings, Fault, FaultKind
from sparewatt.testing.engine.text import (
    ASSISTANT_MARKER,
    answer_tokens,
    count_tokens,
    expected_text,
    render_chat,
    split_continuation,
    tokenize,
)

__all__ = [
    "ASSISTANT_MARKER",
    "Engine",
    "EngineSettings",
    "Fault",
    "FaultKind",
    "InstantClock",
    "ManualClock",
    "answer_tokens",
    "count_tokens",
    "expected_text",
    "make_app",
    "render_chat",
    "running_engine",
    "split_continuation",
    "tokenize",
]
