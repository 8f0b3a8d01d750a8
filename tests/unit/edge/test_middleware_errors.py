"""Whatever goes wrong, the client gets OpenAI's error object and a request id."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse, web

from sparewatt.core import errors
from sparewatt.core.errors import (
    InvalidAmount,
    JoinRefused,
    KeyPolicyViolation,
    ModelNotFound,
    NoCapacity,
    SparewattError,
    UnknownField,
)
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.bodies import CONTROL_BODY_BYTES_MAX, error_reply, read_body
from sparewatt.gateway.routes import make_app
from sparewatt.inference.dispatch.failure_reasons import ContextTooLong
from sparewatt.protocol.openai.chat import error_headers
from tests.unit.gateway.small_gateway import USER, bearer, make_services, running


def leaves(root: type[SparewattError] = SparewattError) -> Iterator[type[SparewattError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from leaves(kind)


def instance(kind: type[SparewattError]) -> SparewattError:
    if issubclass(kind, ModelNotFound):
        return kind("gpt-9", nearest=["llama"])
    if issubclass(kind, JoinRefused):
        return kind("no", reason="no_token")
    if issubclass(kind, UnknownField):
        return kind("regoin", nearest="region", param="provider.regoin")
    if issubclass(kind, KeyPolicyViolation):
        return kind("region", level="key", allowed="region=EU", requested="region=US")
    return kind("1") if issubclass(kind, InvalidAmount) else kind("what happened")


async def error_in(reply: ClientResponse) -> dict[str, Any]:
    body = await reply.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert reply.headers["x-request-id"].startswith("req_")
    found: dict[str, Any] = body["error"]
    return found


OF_THE_GATEWAY = ("sparewatt.core.", "sparewatt.inference.", "sparewatt.gateway.")
ALL = sorted({kind for kind in leaves() if kind.__module__.startswith(OF_THE_GATEWAY)}, key=lambda kind: kind.__name__)
assert ContextTooLong in ALL


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
async def test_every_error_is_answered_with_all_four_keys(kind: type[SparewattError]) -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        raise instance(kind)

    services = make_services()
    app = make_app(services)
    app.router.add_get("/fail", fail)
    async with running(services, app) as client:
        reply = await client.get("/fail")
        found = await error_in(reply)
    assert reply.status == kind.status
    assert found["code"] == kind.code
    assert found["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("PUT", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("GET", "/v1/models", 401, "invalid_api_key"),
        ("POST", "/v1/chat/completions", 401, "invalid_api_key"),
    ],
)
async def test_a_wrong_address_method_or_key_is_answered_in_the_same_shape(
    method: str, path: str, status: int, code: str
) -> None:
    services = make_services()
    async with running(services) as client:
        reply = await client.request(method, path)
        assert (await error_in(reply))["code"] == code
    assert reply.status == status


@pytest.mark.parametrize(("path", "is_told"), [("/models", True), ("/v1", False), ("/v1/modles", False)])
async def test_only_a_path_outside_the_api_gets_the_hint_where_it_begins(path: str, *, is_told: bool) -> None:
    async with running(make_services()) as client:
        said = (await error_in(await client.get(path)))["message"]
    assert ("begins at /v1" in said) is is_told


async def test_the_reply_to_a_wrong_method_lists_the_right_ones() -> None:
    async with running(make_services()) as client:
        reply = await client.get("/v1/completions")
    assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (web.HTTPRequestEntityTooLarge(max_size=1, actual_size=2), 413),
        (web.HTTPUnprocessableEntity(), 422),
        (web.HTTPNotFound(), 404),
        (web.HTTPConflict(), 400),
    ],
)
async def test_what_the_framework_raises_is_answered_in_the_same_shape(raised: web.HTTPException, status: int) -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        raise raised

    services = make_services()
    app = make_app(services)
    app.router.add_get("/fail", fail)
    async with running(services, app) as client:
        reply = await client.get("/fail")
        await error_in(reply)
    assert reply.status == status


async def test_a_bug_is_answered_without_its_text() -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        raise KeyError("a secret prompt")

    services = make_services()
    app = make_app(services)
    app.router.add_get("/fail", fail)
    async with running(services, app) as client:
        reply = await client.get("/fail")
        found = await error_in(reply)
    assert reply.status == 500
    assert "secret" not in found["message"]
    assert reply.headers["x-request-id"] in found["message"]


async def test_a_bug_in_the_middle_of_a_reply_closes_it_and_adds_no_second_one() -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise errors.InternalError("too late")

    services = make_services()
    app = make_app(services)
    app.router.add_get("/fail", fail)
    async with running(services, app) as client:
        reply = await client.get("/fail")
        assert await reply.content.readany() == b"half"
        with pytest.raises(ClientPayloadError):
            await reply.content.readany()


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/version", "/v1/models", "/v1/nodes"])
async def test_every_reply_has_its_own_request_id(path: str) -> None:
    async with running(make_services()) as client:
        ids = [(await client.get(path, headers=bearer())).headers["x-request-id"] for _ in range(2)]
    assert len(set(ids)) == 2
    assert all(request_id.startswith("req_") for request_id in ids)


def test_reply_headers_say_whether_and_when_to_retry() -> None:
    assert error_headers(NoCapacity("full", retry_after_s=1.2)) == {"retry-after": "2", "retry-after-ms": "1200"}
    assert error_headers(NoCapacity("full", retry_after_s=500))["retry-after"] == "120"  # clients wait no longer
    assert error_headers(errors.NotAuthenticated("who?")) == {"www-authenticate": "Bearer"}
    assert error_headers(errors.NoEligibleNode("none")) == {"x-should-retry": "false"}
    assert error_headers(errors.BadRequest("what?")) == {}
    assert error_reply(errors.BadRequest("what?"), {"x-a": "b"}).headers["x-a"] == "b"


# bodies


async def send_chunked(size: int) -> Any:
    piece = b"x" * 16_384
    for at in range(0, size, len(piece)):
        yield piece[: size - at]
        await asyncio.sleep(0)


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_is_bounded_with_and_without_a_length(size: int, status: int, *, chunked: bool) -> None:
    async def measure(request: web.Request) -> web.StreamResponse:
        return web.json_response(len(await read_body(request, limit=1000)))

    services = make_services()
    app = make_app(services)
    app.router.add_post("/measure", measure)
    async with running(services, app) as client:
        reply = await client.post("/measure", data=send_chunked(size) if chunked else b"x" * size)
        assert reply.status == status
        if status == 413:
            await error_in(reply)
        else:
            assert await reply.json() == size


async def test_a_body_announced_as_too_large_is_refused_before_it_is_read() -> None:
    async with running(make_services()) as client:
        reply = await client.post(
            "/v1/match", headers=bearer() | {"content-length": str(CONTROL_BODY_BYTES_MAX + 1)}, data=send_chunked(10)
        )
        assert (await error_in(reply))["code"] == "body_too_large"
        reply.close()


async def test_a_body_in_an_encoding_of_its_own_is_refused() -> None:
    async with running(make_services()) as client:
        reply = await client.post("/v1/match", headers=bearer() | {"content-encoding": "deflate"}, data=b"not deflated")
        assert reply.status == 415
        await error_in(reply)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"[" * 100_000, "body_too_large"),
        (b"[" * 10_000, "invalid_value"),
        (b'{"model":5}', "invalid_value"),
        (b"{}", "invalid_value"),
        (b'{"model":"m","surprise":1}', "invalid_value"),
    ],
)
async def test_a_bad_control_body_names_its_fault(body: bytes, code: str) -> None:
    async with running(make_services()) as client:
        reply = await client.post("/v1/match", headers=bearer(), data=body)
        assert (await error_in(reply))["code"] == code


async def test_a_stream_request_that_grows_beyond_the_limit_is_refused() -> None:
    """Asking for usage adds a few bytes; a body beyond the limit would cost a node its link."""
    start = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"'
    body = start + b"x" * (REQUEST_BODY_BYTES_MAX - len(start) - 4) + b'"}]}'
    assert len(body) == REQUEST_BODY_BYTES_MAX
    async with running(make_services()) as client:
        streamed = await client.post("/v1/chat/completions", headers=bearer(), data=io.BytesIO(body))
        unstreamed = io.BytesIO(body.replace(b'"stream":true', b'"stream":null'))
        whole = await client.post("/v1/chat/completions", headers=bearer(), data=unstreamed)
        assert (await error_in(streamed))["code"] == "body_too_large"
        assert (await error_in(whole))["code"] == "model_not_found"


async def test_an_authorization_header_of_arbitrary_bytes_is_an_unknown_key() -> None:
    services = make_services()
    async with running(services) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(
            b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\xfe\r\nConnection: close\r\n\r\n"
        )
        head = await reader.readline()
        await reader.read()
        writer.close()
        await writer.wait_closed()
    assert head == b"HTTP/1.1 401 Unauthorized\r\n"
    assert services.keys.authenticate(f"Bearer {USER}", unix_s=0.0).name == "user"


async def test_a_reply_before_the_end_of_the_body_says_that_the_connection_closes() -> None:
    """A client that does not know would send its next request into a closed socket."""
    async with running(make_services()) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close\r\n" in head.lower()


async def test_a_key_may_come_in_a_header_of_its_own_on_every_route() -> None:
    async with running(make_services()) as client:
        assert (await client.get("/v1/models", headers={"x-api-key": USER})).status == 200
        assert (await client.get("/v1/models", headers={"x-api-key": "sk-wrong"})).status == 401
        chat = await client.post("/v1/chat/completions", json={}, headers={"x-api-key": USER})
        assert chat.status == 400
