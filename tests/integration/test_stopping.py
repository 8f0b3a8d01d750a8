"""A network or a gateway is stopped under open streams: each has its end, or is told why there is none."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.asking import chat_body, connection_to
from tests.integration.networks import Network, start_network, wait_until
from tests.integration.operated import bare_environment, joined_node, operated_gateway

LONG = {"SPAREWATT_ENGINE_ANSWER_TOKENS": "6000"}
OVER_S = 60.0


class Reader(threading.Thread):
    """Reads a stream to whatever end it has."""

    def __init__(self, network: Network, path: str, body: dict[str, object]) -> None:
        super().__init__(daemon=True)
        self._network, self._path, self._body = network, path, body
        self.events: list[str] = []
        self.was_cut = False

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self._network.api_key}"}
        with connection_to(self._network) as connection:
            connection.request("POST", self._path, body=json.dumps(self._body | {"stream": True}), headers=headers)
            try:
                for line in connection.getresponse():
                    if line.startswith(b"data: "):
                        self.events.append(line.decode().removeprefix("data: ").strip())
            except (OSError, http.client.HTTPException):
                self.was_cut = True

    def ended_in_band(self) -> str | None:
        """What is wrong with its end."""
        if self.was_cut or not self.events:
            return f"cut after {len(self.events)} events"
        last = self.events[-1]
        if last == "[DONE]":
            return None
        event = json.loads(last)
        is_told = "error" in event or event.get("type") == "error"
        return None if is_told else f"ends in {last}"


@contextmanager
def open_streams(network: Network) -> Iterator[list[Reader]]:
    """One of each kind, under way. They are over when the block is."""
    readers = [
        Reader(network, "/v1/chat/completions", chat_body(network, "a long story")),
        Reader(network, "/v1/completions", {"model": network.model, "prompt": "Once", "max_tokens": 6000}),
        Reader(network, "/v1/responses", {"model": network.model, "input": "another long story"}),
    ]
    for reader in readers:
        reader.start()
    wait_until(lambda: all(len(reader.events) > 5 for reader in readers), "the streams have not begun")
    yield readers
    for reader in readers:
        reader.join(OVER_S)
    assert {reader.name: fault for reader in readers if (fault := reader.ended_in_band())} == {}


def test_ctrl_c_of_a_network_cuts_no_stream(tmp_path: Path, server: EmbeddedPostgres) -> None:
    flags = ("--engine=deterministic", "--nodes=2")
    env = LONG | {"SPAREWATT_UP_STOP_S": "1"}
    with start_network(tmp_path, *flags, env=env, server=server) as network, open_streams(network) as readers:
        os.kill(network.pid, signal.SIGINT)
        wait_until(_all_over(readers), "the streams go on", ceiling_s=OVER_S)
        network.process.wait(OVER_S)
    assert all("[DONE]" not in reader.events for reader in readers)


def test_a_gateway_whose_time_to_drain_is_over_tells_every_stream(tmp_path: Path) -> None:
    env = bare_environment(tmp_path, SPAREWATT_GATEWAY_BILLING="false", **LONG)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(operated_gateway(tmp_path, "--drain-s=0.2", env=env))
        stack.enter_context(joined_node(gateway, tmp_path, "slow", decode_tps=50, env=env))
        with open_streams(gateway) as readers:
            os.kill(gateway.pid, signal.SIGTERM)
            wait_until(_all_over(readers), "the streams go on", ceiling_s=OVER_S)
        assert gateway.process.wait(OVER_S) == 0
    chat, text, response = (json.loads(reader.events[-1]) for reader in readers)
    assert chat["error"]["code"] == text["error"]["code"] == "shutting_down"
    assert response["type"] == "error"
    assert json.loads(readers[2].events[-2])["type"] == "response.failed"


def _all_over(readers: list[Reader]) -> Callable[[], bool]:
    return lambda: not any(reader.is_alive() for reader in readers)
