"""What a client gets: answers, headers, explanations, through real processes on the deterministic engine."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask, chat_body, stream_chat
from tests.integration.networks import Network
from tests.integration.people import sign_up


def expected(prompt: str) -> str:
    return expected_text(render_chat([{"role": "user", "content": prompt}]))


def test_a_streamed_answer_is_what_the_model_said(shared_network: Network) -> None:
    answer = stream_chat(shared_network, "tell me of rivers")
    assert answer.text == expected("tell me of rivers")
    assert (answer.done, answer.error, answer.usage) == (True, None, None)
    assert answer.chunks[0]["choices"][0]["delta"]["role"] == "assistant"


def test_curl_gets_the_same_stream(shared_network: Network) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed: apt-get install curl")
    url, key = f"{shared_network.base_url}/chat/completions", shared_network.api_key
    body = json.dumps(chat_body(shared_network, "tell me of rivers", stream=True))
    argv = [curl, "-sN", url, "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json", "-d", body]
    printed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = [line[6:] for line in printed.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
    assert "".join(delta.get("content") or "" for delta in deltas) == expected("tell me of rivers")


def test_usage_is_streamed_only_if_asked_for(shared_network: Network) -> None:
    answer = stream_chat(shared_network, "tell me of stones", stream_options={"include_usage": True})
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] > 0
    assert answer.chunks[-1]["choices"] == []


def test_a_whole_answer_is_the_streamed_one_in_one_piece(shared_network: Network) -> None:
    reply = ask(shared_network, "POST", "/v1/chat/completions", chat_body(shared_network, "tell me of lamps"))
    completion = reply.json()
    assert completion["object"] == "chat.completion"
    assert completion["choices"][0]["message"]["content"] == expected("tell me of lamps")
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["completion_tokens"] > 0


def test_a_tool_call_survives_the_way(shared_network: Network) -> None:
    tool = {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    body = chat_body(shared_network, "weather?", tools=[tool], tool_choice="required")
    choice = ask(shared_network, "POST", "/v1/chat/completions", body).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_every_matched_reply_says_who_served_it(shared_network: Network) -> None:
    nodes = {node["id"]: node for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]}
    answer = stream_chat(shared_network, "who are you")
    node = nodes[answer.headers["x-sparewatt-node"]]
    assert answer.headers["x-sparewatt-region"] == node["region"]
    assert answer.attempts == 1
    assert answer.headers["x-sparewatt-match-id"].startswith("match_")
    assert answer.headers["x-request-id"].startswith("req_")


def test_every_match_can_be_explained(shared_network: Network) -> None:
    answer = stream_chat(shared_network, "why this node")
    told = ask(shared_network, "GET", f"/v1/matches/{answer.headers['x-sparewatt-match-id']}").json()
    assert told["outcome"] == "done"
    assert told["chosen"] == answer.headers["x-sparewatt-node"] == told["ranked"][0]["node"]
    assert told["candidates_total"] == 2
    timed = next(step for step in told["funnel"] if step["filter"] == "timed")
    assert told["funnel"][-1]["left"] == len(told["ranked"]) == 2 - timed["dropped"]
    best = told["ranked"][0]
    assert abs(sum(best["parts"].values()) - best["cost_s"]) < 1e-4
    attempt = told["attempts"][0]
    assert attempt["outcome"] == "done"
    assert attempt["tokens"] > 0
    assert 0 < attempt["first_token_ms"] <= attempt["ended_ms"]


def test_an_explanation_belongs_to_the_account_that_asked(shared_network: Network) -> None:
    match_id = stream_chat(shared_network, "mine").headers["x-sparewatt-match-id"]
    second = ask(shared_network, "POST", "/v1/keys", {"name": "second key of the same account"}).json()["key"]
    other = sign_up(shared_network, "other-account@example.org").key
    assert ask(shared_network, "GET", f"/v1/matches/{match_id}", key=second).status == 200
    assert ask(shared_network, "GET", f"/v1/matches/{match_id}", key=other).status == 404


def test_a_dry_run_names_who_would_serve_and_sends_nothing(shared_network: Network) -> None:
    before = [node["jobs_done"] for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]]
    told = ask(shared_network, "POST", "/v1/match", {"model": shared_network.model, "policy": "neuralgrid"}).json()
    assert told["dry_run"]
    assert told["chosen"]
    assert set(told["ranked"][0]["parts"]) == {"vram", "compute", "cost", "jitter"}
    assert [node["jobs_done"] for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]] == before


def test_a_dry_run_says_why_nobody_can(shared_network: Network) -> None:
    told = ask(shared_network, "POST", "/v1/match", {"model": shared_network.model, "prompt_tokens": 1_000_000}).json()
    assert told["chosen"] is None
    assert told["ranked"] == []
    assert {item["reason"] for item in told["rejected"]} == {"prompt_too_long"}
    assert told["nearest_relaxations"]


def test_models_and_nodes_are_listed_with_claims_and_measurements_apart(shared_network: Network) -> None:
    listed = ask(shared_network, "GET", "/v1/models").json()["data"]
    assert [model["id"] for model in listed] == [shared_network.model]
    assert (listed[0]["nodes_online"], listed[0]["warm"]) == (2, 2)
    assert ask(shared_network, "GET", f"/v1/models/{shared_network.model}").json() == listed[0]
    for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]:
        assert node["claimed"]["vram_bytes"] > 0
        assert node["models"][0]["measured"]["decode_tps"] > 0
    assert len({node["region"] for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]}) == 2


def test_health_and_status_need_no_key(shared_network: Network) -> None:
    assert ask(shared_network, "GET", "/healthz", key="").json() == {"status": "ok"}
    assert ask(shared_network, "GET", "/readyz", key="").json()["nodes_serving"] == 2
    assert ask(shared_network, "GET", "/version", key="").json()["api"] == "v1"
    page = ask(shared_network, "GET", "/", key="")
    assert page.headers["content-type"].startswith("text/html")
    network = ask(shared_network, "GET", "/v1/network", key="")
    assert network.json()["totals"]["nodes"] == {"online": 2}
    for node in ask(shared_network, "GET", "/v1/nodes").json()["data"]:
        assert node["id"].encode() not in page.body + network.body
        assert node["name"].encode() not in page.body + network.body
