"""A small synchronous HTTP client for one network: JSON calls, and streams of server-sent events (SSE).

Every failure is a `CliError` that says what happened and what to do next. The client does not retry, does not follow
redirects, and never puts the API key into a message. Replies are types of `protocol/api/`.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from sparewatt import __version__
from sparewatt.cli import output
from sparewatt.cli.context import NetworkContext, is_this_machine, known_contexts
from sparewatt.cli.errors import ApiError, CliError, NoReply, exit_code_for_status
from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.protocol.api.inference import ErrorObject

T = TypeVar("T")
Body = Mapping[str, object]
Headers = Mapping[str, str]

CONNECT_TIMEOUT_S = 10.0
REPLY_TIMEOUT_S = 60.0
"""Listings are answered at once; a minute allows for a busy gateway."""
ANSWER_TIMEOUT_S = 600.0
"""The longest silence within an answer: enough for a cold model and a long prompt on a slow machine."""
PAGES_MAX = 1_000
"""Of one list: more than the largest network has."""
_READ_BYTES = 64 * 1024

_NEXT_STEPS = {
    "invalid_api_key": "Log in with 'sparewatt login', or set SPAREWATT_API_KEY to a key of this network.",
    "login_failed": "Try again, or ask the network's operator for a reset token ('sparewatt password reset').",
    "email_taken": "Log in with 'sparewatt login'.",
    "signup_refused": "Ask an operator of this network.",
    "operators_only": "Ask an operator of this network.",
    "not_owner": "Ask with a key of the account that owns it, or ask an operator of this network.",
    "provider_not_found": "See yours with 'sparewatt providers', or make one with 'sparewatt providers register NODE'.",
    "lease_not_found": "See yours with 'sparewatt lease list'.",
    "lease_not_running": "See how it stands with 'sparewatt lease show ID'.",
    "account_not_found": "See the accounts with 'sparewatt accounts list'.",
    "model_not_found": "See what is served with 'sparewatt models'.",
    "match_not_found": "Only recent matches are kept. 'sparewatt chat' prints the id of each.",
    "key_not_found": "See the keys with 'sparewatt keys list'.",
    "no_eligible_node": "See which rule excludes each node with 'sparewatt match MODEL'.",
    "no_capacity": "See who is busy with 'sparewatt nodes'.",
    "queue_full": "See who is busy with 'sparewatt nodes'.",
    "low_priority_shed": "Try again later, or with normal priority.",
}

_SCOPES_NEEDED = {
    "keys": "admin",
    "me": "admin",
    "password": "admin",
    "accounts": "admin",
    "pulse": "admin",
    "model-aliases": "admin",
    "join-tokens": "node",
    "providers": "node",
    "leases": "lease",
    "earnings": "node",
    "payouts": "node",
    "treasury": "node",
    "ledger": "admin",
    "credits/grant": "admin",
    "credits/deposit": "admin",
    "treasury/fund": "admin",
    "payouts/batches": "admin",
}
"""By the whole path, or by its first segment; every other path needs `inference`."""


class _ErrorBody(msgspec.Struct):
    error: ErrorObject


def decode(body: bytes | str, shape: type[T], *, base_url: str) -> T:
    """Decode JSON; fields that only a newer gateway knows are ignored. Raises CliError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CliError(
            f"The gateway at {base_url} answered something that this version ({__version__}) does not know: {error}.",
            next_step="Update sparewatt, here or on the gateway, whichever is older. Check that the address is right.",
        ) from None


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


class _Listing(Protocol):
    @property
    def data(self) -> Iterable[_Identified]: ...


def print_ids(listing: _Listing) -> None:
    """What `--quiet` prints of a list."""
    output.print_lines(item.id for item in listing.data)


@dataclass(frozen=True, slots=True)
class ApiReply:
    """A complete reply with status 2xx."""

    base_url: str
    headers: Message
    body: bytes

    def json(self) -> Any:
        """The reply as the gateway wrote it, for `--json`."""
        return self.parse(Any)

    def parse(self, shape: type[T]) -> T:
        return decode(self.body, shape, base_url=self.base_url)

    def show(self, shape: type[T], show: Callable[[T], object], *, as_json: bool) -> None:
        """Print the reply: with `--json` as the gateway wrote it, else decoded and by `show`."""
        if as_json:
            output.print_json(self.json())
        else:
            show(self.parse(shape))


def path_of(*segments: str) -> str:
    """A request path; slashes inside a segment stay, since ids of models have them."""
    return "/" + "/".join(quote(segment, safe="/:@", errors="replace") for segment in segments)


def path_with_query(path: str, query: Mapping[str, object]) -> str:
    """The path with those parameters that are not None."""
    parameters = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: Body | None = None
    headers: Headers | None = None
    timeout_s: float | None = None


class ApiClient:
    """Calls one network. Every call has a connection of its own."""

    def __init__(self, network: NetworkContext, *, reply_timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self._network = network
        self._reply_timeout_s = reply_timeout_s

    @property
    def root_url(self) -> str:
        """The gateway's address, as nodes dial it."""
        return self.base_url.removesuffix("/v1")

    @property
    def base_url(self) -> str:
        return self._network.base_url

    def get(self, path: str, *, timeout_s: float | None = None) -> ApiReply:
        return self._call(_Request("GET", path, timeout_s=timeout_s))

    def get_all(self, path: str, *, timeout_s: float | None = None) -> ApiReply:
        """A list that comes in pages, as one reply."""
        first = self.get(path, timeout_s=timeout_s)
        listed = page = first.parse(dict[str, Any])
        mark = "&" if "?" in path else "?"
        for _ in range(PAGES_MAX):
            if page.get("next") is None:
                break
            page = self.get(f"{path}{mark}{urlencode({'after': page['next']})}", timeout_s=timeout_s).parse(
                dict[str, Any]
            )
            listed["data"] += page["data"]
        listed.pop("next", None)
        return ApiReply(first.base_url, first.headers, msgspec.json.encode(listed))

    def delete(self, path: str) -> ApiReply:
        return self._call(_Request("DELETE", path))

    def patch(self, path: str, body: Body) -> ApiReply:
        return self._call(_Request("PATCH", path, body))

    def post(
        self, path: str, body: Body, *, headers: Headers | None = None, timeout_s: float | None = None
    ) -> ApiReply:
        return self._call(_Request("POST", path, body, headers, timeout_s))

    @contextmanager
    def stream(self, path: str, body: Body, *, headers: Headers) -> Iterator[ApiEventStream]:
        """Open a streamed answer. Leaving the block early stops it."""
        with self._open(_Request("POST", path, body, headers, ANSWER_TIMEOUT_S)) as response:
            yield ApiEventStream(response, network=self._network)

    @contextmanager
    def stream_lines(self, path: str, *, silence_s: float) -> Iterator[Iterator[bytes]]:
        """The lines of a reply as they come, without their ends. `silence_s`: the longest wait for the next byte."""
        with self._open(_Request("GET", path, timeout_s=silence_s)) as response:
            yield self._lines(response)

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            with _network_errors_as_cli_errors(self._network):
                line = response.readline(SSE_EVENT_BYTES_MAX)
            if not line:
                return
            yield line.rstrip(b"\r\n")

    def socket_address(self, path: str) -> tuple[str, dict[str, str]]:
        """URL and headers for a WebSocket at `path`."""
        headers = {"User-Agent": f"sparewatt/{__version__}", "Authorization": f"Bearer {self._network.api_key}"}
        return "ws" + self.base_url.removeprefix("http") + path, headers

    def _call(self, request: _Request) -> ApiReply:
        with self._open(request) as response:
            return ApiReply(self.base_url, response.headers, self._read_body(response))

    @contextmanager
    def _open(self, request: _Request) -> Iterator[http.client.HTTPResponse]:
        timeout_s = request.timeout_s or self._reply_timeout_s
        connection = _connection(self._network, timeout_s=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            with _network_errors_as_cli_errors(self._network):
                connection.connect()
                connection.sock.settimeout(timeout_s)
                response = self._send(connection, request)
            try:
                self._raise_for_status(response, request.path)
                yield response
            finally:
                response.close()
        finally:
            connection.close()

    def _send(self, connection: http.client.HTTPConnection, request: _Request) -> http.client.HTTPResponse:
        headers = {"User-Agent": f"sparewatt/{__version__}"}
        if self._network.api_key:
            headers["Authorization"] = f"Bearer {self._network.api_key}"
        payload = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            payload = json.dumps(request.body).encode()
        path = urlsplit(self.base_url).path + request.path
        connection.request(request.method, path, body=payload, headers=headers | dict(request.headers or {}))
        return connection.getresponse()

    def _read_body(self, response: http.client.HTTPResponse) -> bytes:
        with _network_errors_as_cli_errors(self._network):
            body = response.read(REPLY_BODY_BYTES_MAX + 1)
            if response.length and len(body) <= REPLY_BODY_BYTES_MAX:
                raise http.client.IncompleteRead(body)
        if len(body) > REPLY_BODY_BYTES_MAX:
            raise CliError(f"The answer is larger than {REPLY_BODY_BYTES_MAX // 1024**2} MiB.")
        return body

    def _raise_for_status(self, response: http.client.HTTPResponse, path: str) -> None:
        if 200 <= response.status < 300:
            return
        try:
            error = msgspec.json.decode(self._read_body(response), type=_ErrorBody).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            error = ErrorObject()
        retry_after = response.headers.get("Retry-After")
        raise self.build_error(error, status=response.status, retry_after=retry_after, path=path)

    def build_error(
        self, error: ErrorObject, *, status: int, retry_after: str | None = None, path: str = ""
    ) -> ApiError:
        """The exception for an error object. The API key is removed in case the gateway repeats it."""
        code = str(error.code) if error.code is not None else f"http_{status}"
        message = error.message or f"The network answered with HTTP status {status} and did not say why."
        return ApiError(
            message.replace(self._network.api_key, "(key)") if self._network.api_key else message,
            http_status=status,
            api_code=code,
            api_type=error.type,
            api_param=error.param,
            next_step=self._who_may(code) or _next_step(code, status=status, retry_after=retry_after, path=path),
            exit_code=exit_code_for_status(status=status, code=code),
        )

    def _who_may(self, code: str) -> str:
        """The operator's context of this machine, if that is what the request lacks; empty if there is none."""
        if code not in {"operators_only", "not_owner", "permission_denied"}:
            return ""
        try:
            others = [each for each in known_contexts() if each.base_url == self.base_url and each.is_operator]
        except CliError:
            return ""
        name = next((each.name for each in others if each.api_key != self._network.api_key), None)
        return f"This machine's context '{name}' may: add --as {name}, or run 'sparewatt use {name}'." if name else ""


def _next_step(code: str, *, status: int, retry_after: str | None, path: str) -> str:
    """What the user can do about an error, by its code or status."""
    if code == "permission_denied" and path.startswith(("/accounts", "/invites")):
        return "Ask an operator of this network."
    if code == "permission_denied":
        return f"Ask the operator for a key with the scope '{scope_needed(path)}'."
    if code in _NEXT_STEPS:
        return _NEXT_STEPS[code]
    if retry_after and retry_after.isdecimal():
        return f"Try again in {retry_after} s."
    return _NEXT_STEPS["invalid_api_key"] if status == 401 else ""


def scope_needed(path: str) -> str:
    """The scope that a key needs for a request path."""
    words = path.partition("?")[0].strip("/")
    if words.startswith("nodes/") and words.endswith("/why"):
        return "node"
    return _SCOPES_NEEDED.get(words) or _SCOPES_NEEDED.get(words.split("/")[0], "inference")


class ApiEventStream:
    """A streamed reply: its headers, then its events up to `[DONE]`."""

    def __init__(self, response: http.client.HTTPResponse, *, network: NetworkContext) -> None:
        self._response = response
        self._network = network
        self.headers: Message = response.headers

    def events(self, shape: type[T]) -> Iterator[T]:
        """The decoded data of each event. Raises CliError if the stream ends without `[DONE]`."""
        parser = SseParser()
        while piece := self._read():
            for data in parser.feed(piece):
                if data == "[DONE]":
                    return
                yield decode(data, shape, base_url=self._network.base_url)
        raise _truncated_reply()

    def _read(self) -> bytes:
        with _network_errors_as_cli_errors(self._network):
            return self._response.read1(_READ_BYTES)


class SseParser:
    """Turns chunks of bytes, cut anywhere, into the data of server-sent events.

    Lines are split as bytes and decoded whole, so that a character that is cut in two stays one.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []
        self._event_bytes = 0

    def feed(self, piece: bytes) -> list[str]:
        """The events that this piece completes."""
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b"" if not lines or lines[-1].endswith(b"\n") else lines.pop()
        if len(self._rest) + self._event_bytes > SSE_EVENT_BYTES_MAX:
            raise CliError("The network sent an event that is too large.")
        events = (self._line(line.rstrip(b"\r\n")) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> str | None:
        if not line:
            return self._complete()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._event_bytes += len(value)
            self._data.append(value.removeprefix(b" ").decode("utf-8", errors="replace"))
        return None

    def _complete(self) -> str | None:
        event = "\n".join(self._data) if self._data else None
        self._data.clear()
        self._event_bytes = 0
        return event


def _connection(network: NetworkContext, *, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(network.base_url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)


@contextmanager
def _network_errors_as_cli_errors(network: NetworkContext) -> Iterator[None]:
    """Turn exceptions of the network layer into plain sentences."""
    url = network.base_url
    try:
        yield
    except ConnectionRefusedError:
        raise _not_running(network) from None
    except TimeoutError:
        raise NoReply(f"{url} did not answer in time.", next_step="Try again, or check its log.") from None
    except socket.gaierror:
        raise CliError(f"The host of {url} is not known.", next_step="Check SPAREWATT_BASE_URL.") from None
    except ssl.SSLCertVerificationError as error:
        raise CliError(
            f"The certificate of {url} is not trusted here: {error.verify_message}.",
            next_step="If it is your own, name its file: SSL_CERT_FILE=gateway.crt.",
        ) from None
    except ssl.SSLError as error:
        raise CliError(f"No secure connection to {url}: {error.reason or 'the handshake failed'}.") from None
    except http.client.IncompleteRead:
        raise _truncated_reply() from None
    except ConnectionError:
        raise NoReply(f"{url} closed the connection without an answer.", next_step="Try again.") from None
    except http.client.HTTPException as error:
        raise CliError(f"{url} does not speak HTTP as expected ({type(error).__name__}).") from None
    except OSError as error:
        raise NoReply(f"The connection to {url} broke: {error.strerror or type(error).__name__}.") from None


def _truncated_reply() -> NoReply:
    return NoReply("The answer broke off before its end.", next_step="What came so far may be incomplete. Ask again.")


def _not_running(network: NetworkContext) -> NoReply:
    message = f"Nothing answers at {network.base_url}: the network is not running."
    if is_this_machine(urlsplit(network.base_url).hostname or ""):
        return NoReply(message, next_step="Start it with 'make up' or 'sparewatt up'.")
    return NoReply(message, next_step="Check SPAREWATT_BASE_URL, or ask an operator of that network.")
