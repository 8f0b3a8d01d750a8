"""Bad input gets a clear error with all four keys, and changes nothing."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from tests.integration.asking import Reply, ask, chat_body, connection_to
from tests.integration.networks import Network

CHAT = "/v1/chat/completions"


def check(reply: Reply, *, status: int, code: str) -> dict[str, object]:
    error = reply.error()
    assert (reply.status, error["code"]) == (status, code)
    assert reply.headers["x-request-id"].startswith("req_")
    return error


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "invalid_json"),
        (b"", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[]", "invalid_value"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "invalid_value"),
        (b'{"model": "m", "messages": []}', "invalid_value"),
        (b'{"model": 3, "messages": [1]}', "invalid_value"),
        (b'{"model": "m", "messages": [1], "max_tokens": -1}', "invalid_value"),
        (b'{"model": "m", "messages": [1], "stream": "yes"}', "invalid_value"),
        (b'{"model": "m", "messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "invalid_json"),
    ],
)
def test_a_malformed_body_is_refused_with_400(shared_network: Network, raw: bytes, code: str) -> None:
    check(ask(shared_network, "POST", CHAT, raw=raw), status=400, code=code)


def test_the_field_at_fault_is_named(shared_network: Network) -> None:
    body = chat_body(shared_network, "x", max_tokens="many")
    assert check(ask(shared_network, "POST", CHAT, body), status=400, code="invalid_value")["param"] == "max_tokens"


def test_a_body_over_the_limit_is_refused_by_its_announced_length(shared_network: Network) -> None:
    with connection_to(shared_network) as connection:
        connection.putrequest("POST", CHAT)
        connection.putheader("authorization", f"Bearer {shared_network.api_key}")
        connection.putheader("content-length", str(1 << 40))
        connection.endheaders()
        reply = connection.getresponse()
        error = json.loads(reply.read())["error"]
    assert (reply.status, error["code"]) == (413, "body_too_large")


def test_a_body_over_the_limit_is_refused_when_its_length_was_not_announced(shared_network: Network) -> None:
    sent = 0
    piece = b"x" * (1 << 20)
    with connection_to(shared_network) as connection:
        connection.putrequest("POST", CHAT)
        connection.putheader("authorization", f"Bearer {shared_network.api_key}")
        connection.putheader("transfer-encoding", "chunked")
        connection.endheaders()
        while sent <= REQUEST_BODY_BYTES_MAX:
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            sent += len(piece)
        reply = connection.getresponse()
        error = json.loads(reply.read())["error"]
    assert (reply.status, error["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("key", ["", "nonsense", "sk-sw-" + "0" * 64])
def test_a_wrong_key_is_refused_with_401(shared_network: Network, key: str) -> None:
    reply = ask(shared_network, "POST", CHAT, chat_body(shared_network, "x"), key=key)
    error = check(reply, status=401, code="invalid_api_key")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert not key or key not in str(error)


def test_an_unknown_model_is_answered_with_the_nearest_one(shared_network: Network) -> None:
    body = {**chat_body(shared_network, "x"), "model": "smollm2-135"}
    error = check(ask(shared_network, "POST", CHAT, body), status=404, code="model_not_found")
    assert shared_network.model in str(error["message"])
    missing = ask(shared_network, "GET", "/v1/models/some/model/with/slashes")
    check(missing, status=404, code="model_not_found")


def test_an_unknown_path_and_a_wrong_method_are_answered_in_the_same_shape(shared_network: Network) -> None:
    check(ask(shared_network, "GET", "/v1/nothing"), status=404, code="not_found")
    reply = ask(shared_network, "PUT", CHAT)
    check(reply, status=405, code="method_not_allowed")
    assert reply.headers["allow"] == "GET, HEAD, POST"


def test_an_unknown_match_and_node_and_key_are_404(shared_network: Network) -> None:
    check(ask(shared_network, "GET", "/v1/matches/match_nothing"), status=404, code="match_not_found")
    check(ask(shared_network, "GET", "/v1/nodes/0x00"), status=404, code="not_found")
    check(ask(shared_network, "DELETE", "/v1/keys/key_nothing"), status=404, code="key_not_found")


def test_a_bad_key_request_makes_no_key(shared_network: Network) -> None:
    before = ask(shared_network, "GET", "/v1/keys").json()
    bad: list[dict[str, object]] = [
        {"name": ""},
        {"name": "x" * 101},
        {"scopes": ["root"]},
        {"scopes": []},
        {"colour": "red"},
    ]
    for body in bad:
        assert ask(shared_network, "POST", "/v1/keys", body).status == 400
    assert ask(shared_network, "GET", "/v1/keys").json() == before


def test_a_key_without_the_scope_is_refused_with_403(shared_network: Network) -> None:
    made = ask(shared_network, "POST", "/v1/keys", {"name": "only inference"}).json()
    check(ask(shared_network, "GET", "/v1/keys", key=made["key"]), status=403, code="permission_denied")
    check(ask(shared_network, "POST", "/v1/join-tokens", {}, key=made["key"]), status=403, code="permission_denied")
    assert ask(shared_network, "GET", "/v1/models", key=made["key"]).status == 200


def test_a_revoked_key_is_refused_and_a_second_revoke_changes_nothing(shared_network: Network) -> None:
    made = ask(shared_network, "POST", "/v1/keys", {"name": "short-lived"}).json()
    first = ask(shared_network, "DELETE", f"/v1/keys/{made['id']}").json()
    check(ask(shared_network, "GET", "/v1/models", key=made["key"]), status=401, code="invalid_api_key")
    assert ask(shared_network, "DELETE", f"/v1/keys/{made['id']}").json() == first


def test_a_bad_match_question_is_refused(shared_network: Network) -> None:
    for body in ({}, {"model": ""}, {"model": "m", "policy": "magic"}, {"model": "m", "prompt_tokens": 0}):
        assert ask(shared_network, "POST", "/v1/match", body).error()["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "raw",
    [
        b"sk-sw-secret\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: sk-sw-secret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-sw-secret" + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_the_same_shape_and_is_repeated_nowhere(shared_network: Network, raw: bytes) -> None:
    parts = urlsplit(shared_network.root_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(raw)
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert b"sk-sw-secret" not in body
    assert "sk-sw-secret" not in (shared_network.log_dir / "gateway.log").read_text()
