"""The endpoints beside chat, fields, repeated requests and browsers: through real processes, with real books."""

from __future__ import annotations

import base64
import json
import secrets
import struct
from typing import Any

from sparewatt.testing import expected_text
from sparewatt.testing.engine.embeddings import vector
from tests.integration.asking import Reply, ask, chat_body, connection_to
from tests.integration.bookkeeping import rows
from tests.integration.networks import Network, wait_until


def post(network: Network, path: str, body: object, **headers: str) -> Reply:
    sent = {"authorization": f"Bearer {network.api_key}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    with connection_to(network) as connection:
        connection.request("POST", path, body=json.dumps(body).encode(), headers=sent)
        reply = connection.getresponse()
        found = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, found, reply.read())


def settled(network: Network, reply: Reply) -> dict[str, Any]:
    """The job as the books have it."""
    path = f"/v1/generation?id={reply.headers['x-sparewatt-match-id']}"
    wait_until(lambda: ask(network, "GET", path).status == 200, "the job is not in the books")
    found: dict[str, Any] = ask(network, "GET", path).json()["data"]
    return found


def test_a_text_goes_on_and_is_paid_by_the_token(shared_network: Network) -> None:
    reply = post(shared_network, "/v1/completions", {"model": shared_network.model, "prompt": "Once", "max_tokens": 7})
    text = reply.json()
    assert text["object"] == "text_completion"
    assert text["choices"][0]["text"] == expected_text("Once", max_tokens=7)
    assert text["usage"]["completion_tokens"] == 7
    assert settled(shared_network, reply)["total_cost"] == text["usage"]["cost"] > 0


def test_several_prompts_stream_side_by_side(shared_network: Network) -> None:
    body = {"model": shared_network.model, "prompt": ["one", "two"], "max_tokens": 4, "stream": True, "echo": True}
    reply = post(shared_network, "/v1/completions", body)
    *events, done = [line[6:] for line in reply.body.split(b"\n\n") if line]
    assert done == b"[DONE]"
    texts = ["", ""]
    for choice in (choice for event in events for choice in json.loads(event)["choices"]):
        texts[choice["index"]] += choice["text"]
    assert texts == [prompt + expected_text(prompt, max_tokens=4) for prompt in ("one", "two")]


def test_vectors_cost_what_was_read(shared_network: Network) -> None:
    body = {"model": shared_network.model, "input": ["one", "two words"], "encoding_format": "base64", "dimensions": 16}
    reply = post(shared_network, "/v1/embeddings", body)
    data = reply.json()["data"]
    found = [list(struct.unpack("<16f", base64.b64decode(each["embedding"]))) for each in data]
    assert found == [vector("one", 16), vector("two words", 16)]
    usage = reply.json()["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (3, 3)
    job = settled(shared_network, reply)
    assert job["total_cost"] == usage["cost"] > 0
    assert reply.headers["x-sparewatt-cost"]
    query = "SELECT prompt_tokens, completion_tokens, disputed FROM receipts WHERE job_id = $1"
    match_id = reply.headers["x-sparewatt-match-id"]
    wait_until(lambda: bool(rows(shared_network, query, match_id)), "no receipt was kept")
    [receipt] = rows(shared_network, query, match_id)
    assert receipt == {"prompt_tokens": 3, "completion_tokens": 0, "disputed": False}


def test_log_probabilities_tools_and_schemas_survive_the_way(shared_network: Network) -> None:
    body = chat_body(shared_network, "a number", logprobs=True, top_logprobs=2, n=2, seed=7, max_tokens=3)
    choices = post(shared_network, "/v1/chat/completions", body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert all(len(choice["logprobs"]["content"]) == 3 for choice in choices)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = post(shared_network, "/v1/chat/completions", chat_body(shared_network, "json", response_format=wanted))
    assert isinstance(json.loads(said.json()["choices"][0]["message"]["content"])["a"], int)


def test_a_request_that_is_sent_twice_is_charged_once(shared_network: Network) -> None:
    name, body = secrets.token_hex(8), chat_body(shared_network, "only once", max_tokens=5)
    first = post(shared_network, "/v1/chat/completions", body, idempotency_key=name)
    again = post(shared_network, "/v1/chat/completions", body, idempotency_key=name)
    assert first.body == again.body
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["x-sparewatt-match-id"] == first.headers["x-sparewatt-match-id"]
    other = post(shared_network, "/v1/chat/completions", body | {"max_tokens": 6}, idempotency_key=name)
    assert (other.status, other.error()["code"]) == (422, "idempotency_mismatch")


def test_headers_that_clients_add_are_taken(shared_network: Network) -> None:
    reply = post(
        shared_network,
        "/v1/chat/completions",
        chat_body(shared_network, "hello", max_tokens=1),
        openai_organization="org-1",
        openai_project="proj-1",
        x_client_request_id="mine",
        x_stainless_lang="js",
        origin="https://page.example",
    )
    assert reply.status == 200
    assert int(reply.headers["openai-processing-ms"]) >= 0
    assert reply.headers["access-control-allow-origin"] == "*"


def test_models_say_what_they_can_do(shared_network: Network) -> None:
    model = ask(shared_network, "GET", f"/v1/models/{shared_network.model}").json()
    assert {"chat", "completions", "embeddings", "tools", "vision"} <= set(model["capabilities"])
    assert {"context_length", "pricing", "quantizations", "nodes_online", "warm"} <= set(model)
