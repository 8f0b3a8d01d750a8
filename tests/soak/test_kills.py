"""Kill -9, over and over: rounds of 20 streams each, a node killed in every round before the first token.

Run by `make soak`; writes docs/measurements/kills.md.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from tests.integration.cascade import STREAMS, Round, all_serving, check_texts, kill_under_streams
from tests.integration.networks import start_network
from tests.processes import wait_until

ROUNDS = int(os.environ.get("SOAK_KILLS", "50"))
PROMPT = "read this first " * 1500
MAX_TOKENS = 20
REPORT = Path(__file__).parents[2] / "docs" / "measurements" / "kills.md"


def test_no_stream_is_lost_in_many_kills(tmp_path: Path) -> None:
    rounds: list[Round] = []
    began_s = time.monotonic()
    with start_network(tmp_path, "--engine=deterministic") as network:
        for number in range(ROUNDS):
            wait_until(lambda: all_serving(network), "not all nodes are back", ceiling_s=90)
            done = kill_under_streams(network, f"node-{number % 3 + 1}", prompt=PROMPT, max_tokens=MAX_TOKENS)
            check_texts(done, prompt=PROMPT, max_tokens=MAX_TOKENS)
            rounds.append(done)
    REPORT.write_text(report(rounds, seconds=time.monotonic() - began_s))
    assert sum(done.broken for done in rounds) == 0


def report(rounds: list[Round], *, seconds: float) -> str:
    streams = sum(len(done.answers) for done in rounds)
    return f"""# Nodes killed with -9 under streams that have not begun

Made by `make soak` (tests/soak/test_kills.py) on {os.cpu_count()} cores, Python {platform.python_version()}.
Three nodes on the deterministic engine, real processes, {STREAMS} streams a round; one node agent gets SIGKILL while
all of them wait for their first token. Every text is compared with what the engine must say.

| measure | value |
| --- | --- |
| rounds (one node killed in each) | {len(rounds)} |
| streams | {streams} |
| streams taken over by another node | {sum(done.moved for done in rounds)} |
| streams broken, cut short or with a wrong text | {sum(done.broken for done in rounds)} |
| time for all rounds, restarts of the nodes included | {seconds:.0f} s |
"""
