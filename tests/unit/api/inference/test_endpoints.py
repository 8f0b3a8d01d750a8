"""Completions, embeddings, and what every endpoint does with fields: over the real routes and a scripted node."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from sparewatt.api.inference.text_filters import Echo
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.services import Services
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import Client, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import BODY, COMPLETION, DONE, ScriptedNode, text_event
from tests.waiting import until

TEXT = (
    b'{"id":"c1","object":"text_completion","choices":[{"index":0,"text":" on"}],'
    b'"usage":{"prompt_tokens":2,"completion_tokens":1}}'
)
VECTORS = [[0.5, -1.0], [2.0, 0.25]]
EVERYTHING = ("chat", "completions", "embeddings", "tools", "json_schema", "logprobs", "vision")


def vectors_reply(*, encoded: bool = False, order: tuple[int, ...] = (0, 1)) -> bytes:
    def written(vector: list[float]) -> object:
        return base64.b64encode(struct.pack("<2f", *vector)).decode() if encoded else vector

    data = [{"object": "embedding", "index": at, "embedding": written(VECTORS[at])} for at in order]
    return json.dumps({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 4}}).encode()


def node_of(services: Services, *capabilities: str) -> ScriptedNode:
    report = a_model(capabilities=capabilities or EVERYTHING)
    services.table.connect(node_id(1), some_specs(report), now_s=NOW_S)
    assert isinstance(services.clock, ManualClock)
    node = ScriptedNode(1, services.clock, services.table)
    services.links.links[node.id] = node.link
    return node


async def ask(client: Client, path: str, **body: object) -> tuple[int, dict[str, Any], dict[str, str]]:
    reply = await client.post(path, headers=bearer(), data=json.dumps({"model": MODEL, **body}))
    return reply.status, await reply.json(), dict(reply.headers)


# completions


@pytest.mark.parametrize(
    "prompt", ["Go", ["Go", "stop"], [1, 2, 3], [[1], [2, 3]]], ids=["text", "texts", "ids", "both"]
)
async def test_a_prompt_is_passed_on_as_it_came(prompt: object) -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(TEXT)
        status, reply, _ = await ask(client, "/v1/completions", prompt=prompt, echo=True, suffix="!", logprobs=1)
    assert (status, reply["choices"][0]["text"]) == (200, " on")
    assert node.opened[0].path == "/v1/completions"
    sent = json.loads(node.body)
    assert (sent["prompt"], sent["echo"], sent["suffix"], sent["logprobs"]) == (prompt, True, "!", 1)
    assert sent["max_tokens"] == 16  # OpenAI's default, sent explicitly: servers have others


async def test_the_gateway_writes_the_echo_of_texts() -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(TEXT)
        status, reply, headers = await ask(client, "/v1/completions", prompt="Go", echo=True)
    assert (status, reply["choices"][0]["text"]) == (200, "Go on")
    assert reply["usage"]["completion_tokens"] == 1
    assert "echo" not in json.loads(node.body)
    assert "x-sparewatt-ignored-params" not in headers


async def test_fields_that_a_model_server_ignores_are_named_in_a_header() -> None:
    services = make_services()
    report = a_model(capabilities=EVERYTHING)
    node = node_of(services)
    services.table.connect(node.id, replace(some_specs(report), backend="llama.cpp"), now_s=NOW_S)
    async with running(services) as client:
        node.answer_when_asked(TEXT)
        _, _, some = await ask(client, "/v1/completions", prompt=[1, 2], echo=True, suffix="!")
        node.answer_when_asked(TEXT)
        _, _, none = await ask(client, "/v1/completions", prompt="Go", echo=True, suffix="")
    assert some["x-sparewatt-ignored-params"] == "echo, suffix"
    assert "x-sparewatt-ignored-params" not in none


async def test_best_of_less_than_n_is_refused() -> None:
    services = make_services()
    node_of(services)
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/completions", prompt="Go", n=3, best_of=2)
    assert (status, reply["error"]["param"]) == (400, "best_of")


def test_every_choice_of_a_stream_gets_its_prompt_once_however_bytes_are_split() -> None:
    def event(index: int, text: str) -> bytes:
        return b'data: {"id":"c1","choices":[{"index":%d,"text":%b}]}\n\n' % (index, json.dumps(text).encode())

    wire = event(2, "c") + event(0, "a") + b": hm\n\n" + event(2, "d") + event(1, "b") + event(3, "e") + DONE
    for size in (7, 40, len(wire)):
        echo = Echo(["x", "y"], answers=2)
        got = b"".join(echo.feed(wire[at : at + size]) for at in range(0, len(wire), size)) + echo.rest()
        expected = (
            event(2, "yc") + event(0, "xa") + b": hm\n\n" + event(2, "d") + event(1, "xb") + event(3, "ye") + DONE
        )
        assert got.replace(b" ", b"") == expected.replace(b" ", b"")


@pytest.mark.parametrize("odd", [b"{}", b'{"choices":[{"index":[],"text":"a"}]}', b'{"choices":[{"text":7}]}', b"{"])
def test_a_malformed_event_is_passed_on_unchanged(odd: bytes) -> None:
    assert Echo(["x"], answers=1).feed(b"data: " + odd + b"\n\n") == b"data: " + odd + b"\n\n"


async def test_a_completion_streams() -> None:
    services = make_services()
    node = node_of(services)
    event = b'data: {"choices":[{"index":0,"text":" on","logprobs":null,"finish_reason":null}]}\n\n'
    async with running(services) as client:
        node.answer_when_asked(event, DONE)
        reply = await client.post(
            "/v1/completions", headers=bearer(), data=json.dumps({"model": MODEL, "prompt": "Go", "stream": True})
        )
        assert await reply.read() == event + DONE
    assert json.loads(node.body)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "best_of": 1000}, "best_of"),
    ],
)
async def test_an_invalid_prompt_is_refused(body: dict[str, object], param: str) -> None:
    services = make_services()
    node_of(services)
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/completions", **body)
    assert (status, reply["error"]["param"]) == (400, param)


# embeddings


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("encoding", ["float", "base64", None])
async def test_vectors_have_the_requested_encoding_whatever_the_server_writes(
    encoding: str | None, *, encoded: bool
) -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(vectors_reply(encoded=encoded, order=(1, 0)))
        status, reply, _ = await ask(client, "/v1/embeddings", input=["a", "b"], encoding_format=encoding, dimensions=2)
    assert status == 200
    assert [item["index"] for item in reply["data"]] == [0, 1]
    vectors = [item["embedding"] for item in reply["data"]]
    if encoding == "base64":
        vectors = [list(struct.unpack("<2f", base64.b64decode(each))) for each in vectors]
    assert vectors == VECTORS
    assert json.loads(node.body)["dimensions"] == 2


async def test_an_answer_without_vectors_is_an_error() -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        status, reply, _ = await ask(client, "/v1/embeddings", input="a")
    assert (status, reply["error"]["code"]) == (502, "node_failed")


async def test_a_chat_is_not_answered_with_vectors() -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        node.answer_when_asked(vectors_reply())
        status, _, _ = await ask(client, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}])
    assert status == 502


@pytest.mark.parametrize("given", [None, [], ["a", 1], {"a": 1}])
async def test_an_invalid_input_is_refused(given: object) -> None:
    services = make_services()
    node_of(services)
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/embeddings", input=given)
    assert (status, reply["error"]["param"]) == (400, "input")


# capabilities


def picture(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


PICTURE = [{"role": "user", "content": [picture("data:,")]}]
MESSAGES = [{"role": "user", "content": "hi"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


@pytest.mark.parametrize(
    ("path", "body", "lacking", "code", "param"),
    [
        ("/v1/embeddings", {"input": "a"}, "embeddings", "unsupported_parameter", "model"),
        ("/v1/completions", {"prompt": "a"}, "completions", "unsupported_parameter", "model"),
        ("/v1/chat/completions", {"messages": MESSAGES}, "chat", "unsupported_parameter", "model"),
        ("/v1/chat/completions", {"messages": PICTURE}, "vision", "unsupported_content", "messages"),
        ("/v1/chat/completions", {"messages": MESSAGES, "tools": [{}]}, "tools", "unsupported_parameter", "tools"),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "logprobs": True},
            "logprobs",
            "unsupported_parameter",
            "logprobs",
        ),
        ("/v1/completions", {"prompt": "a", "logprobs": 0}, "logprobs", "unsupported_parameter", "logprobs"),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "response_format": FORMAT},
            "json_schema",
            "unsupported_parameter",
            "response_format",
        ),
    ],
)
async def test_a_node_without_the_capability_gets_no_job(
    path: str, body: dict[str, object], lacking: str, code: str, param: str
) -> None:
    services = make_services()
    node = node_of(services, *(name for name in EVERYTHING if name != lacking))
    async with running(services) as client:
        status, reply, headers = await ask(client, path, **body)
        match = await client.get(f"/v1/matches/{headers['x-sparewatt-match-id']}", headers=bearer())
        funnel = {step["filter"]: step["dropped"] for step in (await match.json())["funnel"]}
    assert (status, reply["error"]["code"], reply["error"]["param"]) == (400, code, param)
    assert not node.opened
    assert funnel[f"capability.{lacking}"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [], "logprobs": None},
        {"tools": [{}], "tool_choice": "none"},
        {"response_format": {"type": "text"}, "logprobs": False},
        {"messages": [{"role": "user", "name": "file", "content": '{"type": "image_url"}'}]},
    ],
)
async def test_empty_options_need_no_capability(body: dict[str, object]) -> None:
    services = make_services()
    node = node_of(services, "chat")
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        status, reply, _ = await ask(client, "/v1/chat/completions", **{"messages": MESSAGES, **body})
    assert status == 200, reply


async def test_an_unsupported_part_is_refused_before_a_node_is_chosen() -> None:
    services = make_services()
    node_of(services)
    sound = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/chat/completions", messages=sound)
    assert (status, reply["error"]["code"]) == (400, "unsupported_content")


@pytest.mark.parametrize(
    "url", ["http://192.168.1.1/admin", "file:///etc/passwd", "a.png", "https://images.example.org/a.png"]
)
@pytest.mark.parametrize("written", ["image_url", "image\\u005furl"])
async def test_a_picture_by_address_is_refused_where_no_node_may_fetch_it(url: str, written: str) -> None:
    services = make_services()
    node = node_of(services)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": [picture(url)]}]})
    body = body.replace("image_url", written)
    async with running(services) as client:
        reply = await client.post("/v1/chat/completions", headers=bearer(), data=body)
        error = (await reply.json())["error"]
    assert (reply.status, error["code"], error["param"]) == (400, "remote_url_refused", "messages")
    assert "data: URL" in error["message"]
    assert not node.opened


async def test_a_picture_by_address_is_sent_to_a_node_whose_owner_allows_the_host() -> None:
    services = make_services()
    node = node_of(services)
    specs = some_specs(a_model(capabilities=EVERYTHING), fetch_hosts=("images.example.org",))
    services.table.set_specs(node.id, specs)
    messages = [{"role": "user", "content": [picture("https://images.example.org/a.png")]}]
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        status, reply, _ = await ask(client, "/v1/chat/completions", messages=messages)
    assert status == 200, reply


async def test_a_response_with_a_picture_by_address_is_refused() -> None:
    services = make_services()
    node = node_of(services)
    image = {"type": "input_image", "image_url": "http://192.168.1.1/admin"}
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/responses", input=[{"role": "user", "content": [image]}])
    assert (status, reply["error"]["code"]) == (400, "remote_url_refused")
    assert not node.opened


# fields


async def test_unknown_fields_are_left_out_and_named_in_a_header() -> None:
    services = make_services()
    node = node_of(services)
    extra = {
        "top_k": 5,
        "user": "ann",
        "audio": {},
        "store": False,
        "service_tier": "auto",
        "n\r\nx": 1,
        "metadata": None,
    }
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        status, _, headers = await ask(client, "/v1/chat/completions", messages=MESSAGES, **extra)
    assert status == 200
    sent = {"model": MODEL, "messages": MESSAGES, "top_k": 5, "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(node.body) == sent
    assert headers["x-sparewatt-ignored-params"] == "user, audio, n__x"


async def test_required_parameters_are_refused_if_they_have_no_effect() -> None:
    services = make_services()
    node = node_of(services)
    must = {"provider": {"require_parameters": True}}
    async with running(services) as client:
        status, reply, _ = await ask(client, "/v1/chat/completions", messages=MESSAGES, audio={}, **must)
        assert (status, reply["error"]["param"]) == (400, "audio")
        node.answer_when_asked(COMPLETION)
        status, _, headers = await ask(client, "/v1/chat/completions", messages=MESSAGES, user="ann", **must)
    assert status == 200
    assert headers["x-sparewatt-ignored-params"] == "user"


async def test_required_parameters_go_only_to_nodes_that_declare_them() -> None:
    services = make_services()
    services.table.connect(node_id(1), some_specs(), now_s=NOW_S)
    async with running(services) as client:
        body = {"messages": MESSAGES, "tools": [{}], "provider": {"require_parameters": True}}
        status, reply, _ = await ask(client, "/v1/chat/completions", **body)
    assert (status, reply["error"]["code"]) == (400, "unsupported_parameter")


async def test_the_role_developer_is_sent_as_system() -> None:
    services = make_services()
    node = node_of(services)
    messages = [{"role": "developer", "content": "be short"}, {"role": "user", "content": '"developer"'}]
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        await ask(client, "/v1/chat/completions", messages=messages, max_completion_tokens=0)
    sent = json.loads(node.body)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["max_completion_tokens"] == 1


# idempotency


async def test_a_repeated_request_is_answered_without_a_node() -> None:
    services = make_services()
    node = node_of(services)
    again = bearer() | {"idempotency-key": "one"}
    async with running(services) as client:
        node.answer_when_asked(COMPLETION)
        first = await client.post("/v1/chat/completions", headers=again, data=BODY)
        second = await client.post("/v1/chat/completions", headers=again, data=BODY)
        other = await client.post("/v1/chat/completions", headers=again, data=BODY[:-1] + b',"n":2}')
        assert await first.read() == await second.read()
    assert len(node.opened) == 1
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert second.headers["x-sparewatt-match-id"] == first.headers["x-sparewatt-match-id"]
    assert other.status == 422


# keep-alive


async def test_a_silent_stream_gets_keep_alive_comments() -> None:
    services = make_services()
    node = node_of(services)
    async with running(services, timeouts=ClientTimeouts(keep_alive_s=0.01, check_s=0.005)) as client:
        body = BODY[:-1] + b',"stream":true}'
        pending = asyncio.ensure_future(client.post("/v1/chat/completions", headers=bearer(), data=body))
        await until(lambda: node.body)
        node.begin(text_event("Hi"))
        reply = await pending
        read = b""
        while b": keep-alive\n\n" not in read:
            read += await reply.content.readany()
        credit_bytes = node.credit_bytes
        node.data(DONE)
        node.end()
        rest = await reply.content.read()
    assert (read + rest).replace(b": keep-alive\n\n", b"") == text_event("Hi") + DONE
    assert credit_bytes <= len(text_event("Hi"))


def test_the_scripted_answers_are_json() -> None:
    assert msgspec.json.decode(TEXT)
