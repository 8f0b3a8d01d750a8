"""One round of the promise that matters most: a node dies under streams that have not begun, and nobody notices."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import Answer, ask, at_once, stream_chat
from tests.integration.networks import Network
from tests.processes import wait_until

STREAMS = 20


@dataclass(frozen=True, slots=True)
class Round:
    """What became of the streams. `moved` were taken over by another node."""

    killed: str
    answers: tuple[Answer, ...]
    moved: int

    @property
    def broken(self) -> int:
        return sum(answer.error is not None or not answer.done for answer in self.answers)


def nodes(network: Network) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in ask(network, "GET", "/v1/nodes").json()["data"]}


def is_serving(network: Network, name: str) -> bool:
    node = nodes(network).get(name)
    return node is not None and node["state"] == "online" and any(model["measured"] for model in node["models"])


def all_serving(network: Network) -> bool:
    return all(is_serving(network, name) for name in nodes(network) if name.startswith("node-"))


def pid_of(network: Network, name: str) -> int:
    """The agent's process, not that of its model server."""
    for pid, _ in network.descendants():
        with suppress(OSError):  # it has ended by itself
            if f"--name={name}" in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"):
                return pid
    raise AssertionError(f"no process of {name}")


def kill_under_streams(network: Network, victim: str, *, prompt: str, max_tokens: int, streams: int = STREAMS) -> Round:
    """Kill -9 a node while so many requests are under way, none of which has had a token yet."""
    pid = pid_of(network, victim)

    def kill_when_busy() -> None:
        wait_until(lambda: sum(node["in_flight"] for node in nodes(network).values()) >= streams, "not all under way")
        os.kill(pid, signal.SIGKILL)

    calls = [partial(stream_chat, network, f"{i} {prompt}", max_tokens=max_tokens) for i in range(streams)]
    *answers, _ = at_once([*calls, kill_when_busy])
    told = tuple(answer for answer in answers if answer is not None)
    return Round(victim, told, moved=sum(_attempts(network, answer) > 1 for answer in told))


def _attempts(network: Network, answer: Answer) -> int:
    """By the match itself: the head of a reply that was long in coming went out before they were known."""
    match_id = answer.headers["x-sparewatt-match-id"]
    return len(ask(network, "GET", f"/v1/matches/{match_id}").json()["attempts"])


def check_texts(done: Round, *, prompt: str, max_tokens: int) -> None:
    """On the deterministic engine every answer is known: nothing missing, nothing twice."""
    assert len(done.answers) == STREAMS
    for i, answer in enumerate(done.answers):
        rendered = render_chat([{"role": "user", "content": f"{i} {prompt}"}])
        assert answer.text == expected_text(rendered, max_tokens=max_tokens)
