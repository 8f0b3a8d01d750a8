"""What an operator sees of a real network agrees with what was done to it: metrics, request log, `sparewatt top`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from tests.integration.asking import ask, chat_body, stream_chat
from tests.integration.networks import Network
from tests.processes import wait_until
from tests.unit.telemetry.metrics.scraped import Scraped, read

SECRET = "the colour of my first bicycle"


def scrape(network: Network) -> Scraped:
    with urllib.request.urlopen(network.ready["metrics_url"], timeout=20) as reply:  # noqa: S310 (loopback)
        return read(reply.read())


def test_figures_agree_with_what_was_done(shared_network: Network) -> None:
    before, model = scrape(shared_network), shared_network.model
    streamed = [stream_chat(shared_network, f"{SECRET} {at}", max_tokens=7) for at in range(3)]
    whole = ask(shared_network, "POST", "/v1/chat/completions", chat_body(shared_network, SECRET, max_tokens=5)).json()
    missing = ask(shared_network, "POST", "/v1/chat/completions", chat_body(shared_network, "x") | {"model": "none"})
    assert all(answer.done for answer in streamed)
    assert missing.error()["code"] == "model_not_found"
    after = scrape(shared_network)

    def grown(name: str, **labels: str) -> float:
        return after.sum(name, **labels) - before.sum(name, **labels)

    assert grown("sparewatt_requests_total", model=model, outcome="done") == 4
    assert grown("sparewatt_tokens_total", direction="completion") == 3 * 7 + whole["usage"]["completion_tokens"]
    assert grown("sparewatt_tokens_total", direction="prompt") >= 4
    assert grown("sparewatt_node_tokens_total") == grown("sparewatt_tokens_total", direction="completion")
    assert grown("sparewatt_time_to_first_token_seconds_count", model=model) == 3
    assert grown("sparewatt_request_duration_seconds_count", model=model) == 4
    assert grown("sparewatt_match_duration_seconds_count") >= 4
    assert grown("sparewatt_request_errors_total", code="model_not_found") == 1
    assert grown("sparewatt_node_jobs_total", result="done") == 4
    assert after.value("sparewatt_jobs_running") == 0
    assert after.labels("sparewatt_requests_total", "model") <= {model, "other"}


def test_nodes_and_their_servers_are_seen(shared_network: Network) -> None:
    def has_figures() -> bool:
        return len(scrape(shared_network).labels("sparewatt_node_server_requests_running", "node")) == 2

    wait_until(has_figures, "the nodes' servers are not told")
    found = scrape(shared_network)
    assert found.sum("sparewatt_nodes", state="online") == found.sum("sparewatt_node_up") == 2
    assert found.value("sparewatt_links") == 2
    assert found.labels("sparewatt_node_server_requests_running", "model") == {shared_network.model}
    assert found.sum("sparewatt_event_loop_lag_seconds_count") > 0


def test_what_was_spent_is_what_clients_were_told(shared_network: Network) -> None:
    """Booked a moment after the answer."""
    wait_until(lambda: scrape(shared_network).value("sparewatt_books_unposted_jobs") == 0, "jobs are not posted")
    before = scrape(shared_network).sum("sparewatt_credits_spent_micro_total")
    answer = stream_chat(shared_network, "Say hello", max_tokens=20, stream_options={"include_usage": True})
    cost_usd: Any = (answer.usage or {})["cost"]

    def is_booked() -> bool:
        spent = scrape(shared_network).sum("sparewatt_credits_spent_micro_total") - before
        return spent == pytest.approx(cost_usd * 1e6)

    wait_until(is_booked, "it is not in the figures")
    found = scrape(shared_network)
    assert 0 < found.sum("sparewatt_earnings_micro_total") < found.sum("sparewatt_credits_spent_micro_total")


def test_no_metrics_on_the_public_port_and_nothing_else_on_the_second(shared_network: Network) -> None:
    assert ask(shared_network, "GET", "/metrics").status == 404
    root = shared_network.ready["metrics_url"].removesuffix("/metrics")
    for path in ("/v1/models", "/v1/pulse", "/"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(root + path, timeout=20)  # noqa: S310 (loopback)
    assert SECRET not in str(scrape(shared_network).samples)
    assert shared_network.api_key not in str(scrape(shared_network).samples)


def test_every_request_leaves_a_line_without_its_content(shared_network: Network) -> None:
    reply = ask(shared_network, "POST", "/v1/chat/completions", chat_body(shared_network, SECRET, max_tokens=5))
    log = shared_network.log_dir / "gateway.log"

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log.read_text().splitlines() if reply.headers["x-request-id"] in line]
        return [line for line in found if line["event"] == "request_finished"]

    wait_until(lambda: bool(lines()), "no line of this request")
    (line,) = lines()
    assert (line["route"], line["status"], line["model"]) == ("POST /v1/chat/completions", 200, shared_network.model)
    assert line["match"] == reply.headers["x-sparewatt-match-id"]
    assert line["node"] == reply.headers["x-sparewatt-node"]
    assert (line["attempts"], line["tokens"], line["outcome"]) == (1, 5, "done")
    assert SECRET not in log.read_text()
    assert shared_network.api_key not in log.read_text()


def test_top_shows_it_once_as_json(shared_network: Network) -> None:
    stream_chat(shared_network, "Say hello", max_tokens=5)
    env = {"SPAREWATT_BASE_URL": shared_network.base_url, "SPAREWATT_API_KEY": shared_network.api_key}
    argv = [sys.executable, "-m", "sparewatt", "top", "--once", "--json", "--interval", "0.5"]
    shown = subprocess.run(argv, env=os.environ | env, check=True, capture_output=True, text=True, timeout=60)
    found = json.loads(shown.stdout)
    assert (found["is_operator"], found["running"], found["waiting"]) == (True, 0, 0)
    assert [model["id"] for model in found["models"] if model["nodes"] == 2] == [shared_network.model]
    assert sum(node["jobs_done"] for node in found["busiest"]) > 0
