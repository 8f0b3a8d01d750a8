from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sparewatt.cli.client import ApiClient, SseParser, path_of
from sparewatt.cli.context import NetworkContext
from sparewatt.cli.errors import ApiError, CliError
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.protocol.api.models import ModelList
from tests.unit.cli.canned import MODEL, model_list
from tests.unit.cli.fake_network import KEY, FakeNetwork, sse


@pytest.fixture
def client(network: FakeNetwork) -> ApiClient:
    return ApiClient(NetworkContext(network.base_url, KEY))


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def feed_all(data: bytes, *, size: int) -> list[str]:
    parser = SseParser()
    return [event for i in range(0, len(data), size) for event in parser.feed(data[i : i + size])]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_events_are_the_same_however_they_are_cut(size: int, end: str) -> None:
    text = "data: grüße 🌍\n\n: a comment\n\nevent: x\ndata:one\ndata: two\n\ndata: [DONE]\n\n"
    assert feed_all(text.replace("\n", end).encode(), size=size) == ["grüße 🌍", "one\ntwo", "[DONE]"]


def test_an_unfinished_event_is_no_event() -> None:
    assert feed_all(b"data: half\n", size=100) == []


@pytest.mark.parametrize("filler", [b"data: x", b"data: x\ndata: y\n"])
def test_an_event_without_end_is_refused(filler: bytes) -> None:
    with pytest.raises(CliError, match="too large"):
        feed_all(filler * SSE_EVENT_BYTES_MAX, size=100_000)


def test_a_request_carries_key_and_json(network: FakeNetwork, client: ApiClient) -> None:
    network.on("POST /v1/match", {"ok": True})
    assert client.post("/match", {"model": "ü"}, headers={"X-A": "b"}).json() == {"ok": True}
    seen = network.requests[0]
    assert seen.body == {"model": "ü"}
    assert seen.headers["Authorization"] == f"Bearer {KEY}"
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.headers["X-A"] == "b"


def test_slashes_of_a_model_stay_and_the_rest_is_quoted() -> None:
    assert path_of("models", "org/model:7b v?#") == "/models/org/model:7b%20v%3F%23"


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "invalid_value", 1),
        (401, "invalid_api_key", 3),
        (403, "permission_denied", 3),
        (404, "model_not_found", 4),
        (429, "rate_limited", 1),
        (500, "internal_error", 1),
        (503, "no_eligible_node", 5),
        (503, "no_capacity", 5),
        (503, "shutting_down", 1),
    ],
)
def test_an_error_object_becomes_an_exception(
    network: FakeNetwork, client: ApiClient, status: int, code: str, exit_code: int
) -> None:
    network.fail("GET /v1/models", status, code, "Because.")
    with pytest.raises(ApiError) as caught:
        client.get("/models")
    error = caught.value
    assert (error.message, error.http_status, error.api_code, error.exit_code) == ("Because.", status, code, exit_code)


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/models", "inference"),
        ("/keys", "admin"),
        ("/keys/key_1", "admin"),
        ("/join-tokens", "node"),
        ("/nodes/attic/why", "node"),
        ("/nodes/attic", "inference"),
    ],
)
def test_a_key_without_the_scope_is_sent_to_the_operator(
    network: FakeNetwork, client: ApiClient, path: str, scope: str
) -> None:
    network.fail(f"GET /v1{path}", 403, "permission_denied")
    with pytest.raises(ApiError) as caught:
        client.get(path)
    assert caught.value.next_step == f"Ask the operator for a key with the scope '{scope}'."


@pytest.mark.parametrize("code", ["operators_only", "not_owner"])
def test_a_missing_role_or_node_is_not_reported_as_a_missing_scope(
    network: FakeNetwork, client: ApiClient, code: str
) -> None:
    network.fail("GET /v1/ledger/audit", 403, code)
    with pytest.raises(ApiError) as caught:
        client.get("/ledger/audit")
    assert "scope" not in caught.value.next_step
    assert "operator of this network" in caught.value.next_step


def test_a_refused_key_does_not_suggest_to_create_one(network: FakeNetwork, client: ApiClient) -> None:
    network.fail("GET /v1/models", 401, "invalid_api_key")
    with pytest.raises(ApiError) as caught:
        client.get("/models")
    assert "keys create" not in caught.value.next_step
    assert "SPAREWATT_API_KEY" in caught.value.next_step


def test_advice_of_the_network_is_not_repeated(network: FakeNetwork, client: ApiClient) -> None:
    network.fail("GET /v1/models", 503, "no_capacity", "No node can take it. Try again in a moment.")
    with pytest.raises(ApiError) as caught:
        client.get("/models")
    assert "Try again" not in caught.value.next_step


def test_retry_after_becomes_the_next_step(network: FakeNetwork, client: ApiClient) -> None:
    network.on("GET /v1/models", {"error": {"message": "Slow down."}}, status=429, headers={"Retry-After": "7"})
    with pytest.raises(ApiError) as caught:
        client.get("/models")
    assert caught.value.next_step == "Try again in 7 s."


@pytest.mark.parametrize("body", [b"<html>", b"", b'{"error": "text"}', b'{"detail": 1}', b"\xff"])
def test_an_error_without_an_object_still_has_a_message(network: FakeNetwork, client: ApiClient, body: bytes) -> None:
    network.on("GET /v1/models", body, status=502)
    with pytest.raises(ApiError, match="HTTP status 502"):
        client.get("/models")


def test_a_redirect_is_not_followed(network: FakeNetwork, client: ApiClient) -> None:
    network.on("GET /v1/models", b"", status=302, headers={"Location": "https://elsewhere.example/"})
    with pytest.raises(ApiError, match="302"):
        client.get("/models")
    assert len(network.requests) == 1


def test_a_key_that_the_server_repeats_is_taken_out(network: FakeNetwork) -> None:
    network.fail("GET /v1/models", 401, "invalid_api_key", "Unknown key plain-secret.")
    with pytest.raises(ApiError) as caught:
        ApiClient(NetworkContext(network.base_url, "plain-secret")).get("/models")
    assert "plain-secret" not in str(caught.value)


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff\xfe"])
def test_an_answer_that_is_no_json_is_an_error(network: FakeNetwork, client: ApiClient, body: bytes) -> None:
    network.on("GET /v1/models", body)
    with pytest.raises(
        CliError, match=f"{network.base_url} answered something that this version .* does not know"
    ) as caught:
        client.get("/models").json()
    assert "Update" in caught.value.next_step


def test_a_newer_gateways_fields_are_left_out_and_unknown_values_are_an_error(
    network: FakeNetwork, client: ApiClient
) -> None:
    network.on("GET /v1/models", model_list(MODEL | {"vendor": "x"}))
    assert client.get("/models").parse(ModelList).data[0].id == MODEL["id"]
    network.on("GET /v1/models", model_list(MODEL | {"object": "model.v2"}))
    with pytest.raises(CliError, match="does not know"):
        client.get("/models").parse(ModelList)


def test_an_answer_that_breaks_off_is_an_error(network: FakeNetwork, client: ApiClient) -> None:
    network.on("GET /v1/models", b"[1,", headers={"Content-Length": "100"})
    with pytest.raises(CliError, match="broke off"):
        client.get("/models")


def test_a_refused_connection_means_not_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    with pytest.raises(CliError, match="not running") as caught:
        ApiClient(NetworkContext(url, KEY)).get("/models")
    assert "make up" in caught.value.next_step
    assert KEY not in str(caught.value)


def test_silence_becomes_a_timeout(silent: str) -> None:
    with pytest.raises(CliError, match="in time"):
        ApiClient(NetworkContext(silent, KEY), reply_timeout_s=0.05).get("/models")


def test_an_unknown_host_is_named_in_the_error() -> None:
    with pytest.raises(CliError, match="not known"):
        ApiClient(NetworkContext("http://no-such-host.invalid/v1", KEY)).get("/models")


def test_plain_http_behind_https_is_explained(network: FakeNetwork) -> None:
    with pytest.raises(CliError, match="No secure connection"):
        ApiClient(NetworkContext(network.base_url.replace("http:", "https:"), KEY)).get("/models")


def test_a_stream_ends_at_done(network: FakeNetwork, client: ApiClient) -> None:
    data = sse('"ä"', '"b"', "[DONE]", "after")
    network.streams(data[:7], data[7:9], data[9:], headers={"x-request-id": "req_1"})
    with client.stream("/chat/completions", {}, headers={}) as stream:
        assert stream.headers["x-request-id"] == "req_1"
        assert list(stream.events(str)) == ["ä", "b"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_stream_without_done_is_an_error(network: FakeNetwork, client: ApiClient, *, ends: bool) -> None:
    network.streams(sse('"a"'), ends=ends)
    with client.stream("/chat/completions", {}, headers={}) as stream:
        events = stream.events(str)
        assert next(events) == "a"
        with pytest.raises(CliError, match="broke off"):
            next(events)


def test_an_error_of_the_reader_is_not_taken_for_one_of_the_network(network: FakeNetwork, client: ApiClient) -> None:
    network.streams(sse('"a"', "[DONE]"))

    def read_and_break() -> None:
        with client.stream("/chat/completions", {}, headers={}) as stream:
            next(stream.events(str))
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        read_and_break()


def test_a_list_in_pages_is_one_reply(network: FakeNetwork, client: ApiClient) -> None:
    network.on("GET /v1/nodes?sort=price", {"object": "list", "data": [1, 2], "total": 3, "next": "a b"})
    network.on("GET /v1/nodes?sort=price&after=a+b", {"object": "list", "data": [3], "next": None})
    assert client.get_all("/nodes?sort=price").json() == {"object": "list", "data": [1, 2, 3], "total": 3}


def test_a_list_of_an_older_gateway_has_no_pages(network: FakeNetwork, client: ApiClient) -> None:
    network.on("GET /v1/nodes", {"object": "list", "data": [1]})
    assert client.get_all("/nodes").json() == {"object": "list", "data": [1]}
    assert len(network.requests) == 1


def test_a_list_without_an_end_is_read_up_to_a_bound(
    network: FakeNetwork, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparewatt.cli.client.PAGES_MAX", 3)
    network.on("GET /v1/nodes", {"data": [1], "next": "x"})
    network.on("GET /v1/nodes?after=x", {"data": [1], "next": "x"})
    assert len(client.get_all("/nodes").json()["data"]) == 4
