"""A node lost under 8 open streams of real llama.cpp servers, three times, every byte on record.

Run by `make soak`; writes docs/measurements/streams-llama.md.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tests.integration.llama_seams import ANSWER_TOKENS, check, llama_network, play

STREAMS = 8
ROUNDS = 3
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "streams-llama.md"


def test_llama_goes_on_where_another_llama_was_cut(tmp_path: Path) -> None:
    moved = []
    with llama_network(tmp_path, "first", "second", slots=STREAMS) as llama:
        for _ in range(ROUNDS):
            llama.revive()
            moved.append(check(llama, play(llama, streams=STREAMS)))
    REPORT.write_text(report(moved))
    assert all(moved)


def report(moved: list[int]) -> str:
    return f"""# A node lost under streams of llama.cpp

Made by `make soak` (tests/soak/test_llama_streams.py) on {os.cpu_count()} cores, Python {platform.python_version()}.
Two nodes with a llama.cpp server each (SmolLM2-135M, temperature 0.8), {STREAMS} streams a round of {ANSWER_TOKENS}
tokens. When every stream has some text, the busier node's agent is killed with -9. A proxy before each server keeps
every byte. For each answer that another node went on with: what the client had is to the byte what the second server
was given behind the prompt of its own template, and what the client got after that is to the byte what it wrote.

| measure | value |
| --- | --- |
| rounds (one node killed in each) | {len(moved)} |
| streams | {len(moved) * STREAMS} |
| streams that another node went on with | {sum(moved)} ({", ".join(map(str, moved))}) |
| streams broken, or with a byte out of place at the joint | 0 |
"""
