"""Raw requests that try to make two readers see two things, and what must come of each, whatever serves.

Four tables: `FRAMING` (where a request ends), `SYNTAX` (what a head may hold), `TARGETS` (which route is meant) and
`SIZES` (how much of it). A case passes if the first reply has one of `statuses`, the connection ends as `then` says,
and no hidden request was served. Rules are those of RFC 9112; where it leaves a choice, the stricter one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.integration.hostile.target import CHAT, Target, chunked

Then = Literal["closes", "stays", "either"]
NOTHING = 0
"""In place of a status: the connection is closed without a reply."""

REFUSED = frozenset({400})
REFUSED_OR_DROPPED = frozenset({400, 505, NOTHING})
SERVED = frozenset({200})
UNKNOWN_METHOD = frozenset({400, 404, 405, 501})
TOO_LARGE = frozenset({400, 413, 414, 431})

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    why: str
    make: Callable[[Target], bytes]
    statuses: frozenset[int] = REFUSED
    then: Then = "closes"
    """`stays`: the connection can be used for another request."""
    ends_sending: bool = False
    """The client half-closes behind the request, which is shorter than it announced."""


def _with(*lines: bytes, body: Callable[[Target], bytes] | None = None) -> Callable[[Target], bytes]:
    """A chat with these lines in its head, and a hidden request behind it unless `body` says otherwise."""
    return lambda target: target.head(*lines) + (body(target) if body is not None else _zero_then_hidden(target))


def _zero_then_hidden(target: Target) -> bytes:
    """Whoever reads chunks sees an empty body and a second request; whoever counts bytes sees neither."""
    return b"0\r\n\r\n" + target.hidden()


def _chat_then_hidden(target: Target) -> bytes:
    return target.chat_body() + target.hidden()


def _length(value: bytes) -> Callable[[Target], bytes]:
    return _with(b"Content-Length: " + value, body=_chat_then_hidden)


def _encoding(line: bytes) -> Callable[[Target], bytes]:
    return _with(line)


def _chunks(framing: Callable[[Target], bytes]) -> Callable[[Target], bytes]:
    return _with(b"Transfer-Encoding: chunked", body=framing)


def _line(start: bytes) -> Callable[[Target], bytes]:
    """A whole chat with another request line."""
    return lambda target: target.chat().replace(b"POST " + CHAT + b" HTTP/1.1", start, 1)


def _field(line: bytes) -> Callable[[Target], bytes]:
    """A whole chat with one more line in its head."""
    return lambda target: target.chat("x", line)


def _wrapped(start: bytes) -> Callable[[Target], bytes]:
    """A hidden request as the body of another: no route may leave a body unread and take it for the next request."""

    def make(target: Target) -> bytes:
        inner = target.hidden()
        return target.head(b"Content-Length: %d" % len(inner), start=start) + inner

    return make


def _wrong_key(target: Target) -> bytes:
    inner = target.hidden()
    return target.head(b"Content-Length: %d" % len(inner), key=b"sk-sw-wrong") + inner


def _twice_hosted(target: Target) -> bytes:
    return target.chat("x", b"Host: elsewhere")


def _without_host(target: Target) -> bytes:
    return target.chat().replace(b"Host: gateway\r\n", b"", 1)


def _host(value: bytes) -> Callable[[Target], bytes]:
    return lambda target: target.chat().replace(b"Host: gateway", b"Host: " + value, 1)


def _old(*lines: bytes) -> Callable[[Target], bytes]:
    return lambda target: target.chat("x", *lines).replace(b"HTTP/1.1", b"HTTP/1.0", 1)


def _zero_then_hidden_old(target: Target) -> bytes:
    head = target.head(b"Connection: keep-alive", b"Transfer-Encoding: chunked", start=b"POST " + CHAT + b" HTTP/1.0")
    return head + _zero_then_hidden(target)


FRAMING = (
    Case(
        "length-then-chunked",
        "CL.TE: a proxy that counts and a gateway that reads chunks see different requests",
        _with(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    ),
    Case(
        "chunked-then-length", "TE.CL, in the other order", _with(b"Transfer-Encoding: chunked", b"Content-Length: 5")
    ),
    Case(
        "length-twice-equal",
        "whoever joins them sees '5, 5'",
        lambda t: t.chat("x", b"Content-Length: %d" % len(t.chat_body())) + t.hidden(),
    ),
    Case(
        "length-twice-unequal",
        "one reader takes the first, another the last",
        lambda t: t.chat("x", b"Content-Length: 0") + t.hidden(),
    ),
    Case("length-list", "a list is no number", _length(b"5, 5")),
    Case("length-plus", "int() takes a sign", _length(b"+5")),
    Case("length-minus", "a negative length", _length(b"-1")),
    Case("length-hex", "0x is no digit", _length(b"0x5")),
    Case("length-spaced", "5 5", _length(b"5 5")),
    Case("length-empty", "no number at all", _length(b"")),
    Case("length-float", "5.0", _length(b"5.0")),
    Case("length-exponent", "1e1", _length(b"1e1")),
    Case("length-underscore", "Python's int() takes 1_0", _length(b"1_0")),
    Case("length-unicode-digit", "int() takes other alphabets' digits", _length("\u0665".encode())),
    Case("length-over-64-bit", "wraps round to 5", _length(b"18446744073709551621"), frozenset({400, 413})),
    Case("length-of-a-thousand-digits", "int() of many digits is slow", _length(b"9" * 1000), frozenset({400, 413})),
    Case(
        "chunked-identity",
        "chunked is not last",
        _encoding(b"Transfer-Encoding: chunked, identity"),
        frozenset({400, 501}),
    ),
    Case(
        "identity",
        "not chunked at all: where does it end?",
        _encoding(b"Transfer-Encoding: identity"),
        frozenset({400, 501}),
    ),
    Case(
        "gzip-chunked",
        "a coding that we do not undo",
        _encoding(b"Transfer-Encoding: gzip, chunked"),
        frozenset({400, 501}),
    ),
    Case("chunked-chunked", "applied twice", _encoding(b"Transfer-Encoding: chunked, chunked"), frozenset({400, 501})),
    Case(
        "xchunked",
        "a name that ends like one we know",
        _encoding(b"Transfer-Encoding: xchunked"),
        frozenset({400, 501}),
    ),
    Case("chunked-quoted", "a reader that unquotes", _encoding(b'Transfer-Encoding: "chunked"'), frozenset({400, 501})),
    Case(
        "chunked-vertical-tab",
        "strip() takes it for a space",
        _encoding(b"Transfer-Encoding: \x0bchunked"),
        frozenset({400, 501}),
    ),
    Case(
        "chunked-twice",
        "two lines",
        _with(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        frozenset({400, 501}),
    ),
    Case(
        "encoding-name-spaced",
        "RFC 9112 5.1: a space before the colon is refused",
        _encoding(b"Transfer-Encoding : chunked"),
    ),
    Case("encoding-folded", "a value on the next line", _encoding(b"Transfer-Encoding:\r\n chunked")),
    Case("length-folded", "likewise", _with(b"Content-Length:\r\n 5")),
    Case("encoding-behind-bare-lf", "a line that only some see", _encoding(b"X: y\nTransfer-Encoding: chunked")),
    Case("encoding-behind-bare-cr", "likewise", _encoding(b"X: y\rTransfer-Encoding: chunked")),
    Case("encoding-with-nul", "a value that C ends early", _encoding(b"Transfer-Encoding: chunked\x00")),
    Case(
        "encoding-in-1.0",
        "HTTP/1.0 has no chunks: a proxy that speaks it counts otherwise",
        _zero_then_hidden_old,
    ),
    Case(
        "chunk-size-overflow",
        "wraps round",
        _chunks(lambda t: b"10000000000000000\r\n\r\n" + _zero_then_hidden(t)),
        TOO_LARGE,
    ),
    Case("chunk-size-negative", "a sign", _chunks(lambda t: b"-1\r\n" + _zero_then_hidden(t))),
    Case("chunk-size-hex-prefix", "int(x, 16) takes 0x0", _chunks(lambda t: b"0x0\r\n\r\n" + t.hidden())),
    Case("chunk-size-underscore", "int(x, 16) takes 0_0", _chunks(lambda t: b"0_0\r\n\r\n" + t.hidden())),
    Case("chunk-size-empty", "no digits", _chunks(lambda t: b"\r\n\r\n" + t.hidden())),
    Case("chunk-size-bare-lf", "a line end that only some see", _chunks(lambda t: b"0\n\n" + t.hidden())),
    Case(
        "chunk-extension-bare-lf",
        "an extension that ends where only some see it",
        _chunks(lambda t: b"0;\n\r\n" + t.hidden()),
    ),
    Case(
        "chunk-without-end", "data longer than its size", _chunks(lambda t: b"5\r\nhelloworld" + _zero_then_hidden(t))
    ),
    Case("chunk-end-bare-cr", "half a line end", _chunks(lambda t: b"1\r\nx\r0\r\n\r\n" + t.hidden())),
    Case(
        "chunk-extension-bomb",
        "one byte of body, a megabyte of extension",
        _chunks(lambda t: b"1;" + b"x" * MIB + b"\r\n{\r\n" + _zero_then_hidden(t)),
        TOO_LARGE,
    ),
    Case(
        "trailer-bomb",
        "a head's worth of limits applies behind the body as well",
        _chunks(lambda t: chunked(t.chat_body())[:-2] + b"X: y\r\n" * 20_000 + b"\r\n"),
        TOO_LARGE,
        "either",
    ),
    Case(
        "trailer-with-a-key",
        "a trailer cannot say who asks",
        lambda t: (
            t.head(b"Transfer-Encoding: chunked", key=b"sk-sw-wrong")
            + chunked(t.chat_body())[:-2]
            + b"Authorization: Bearer "
            + t.smuggler
            + b"\r\n\r\n"
        ),
        frozenset({400, 401}),
        "either",
    ),
    Case(
        "chunks-as-they-should-be",
        "small chunks, an extension, a trailer: all legal",
        lambda t: (
            t.head(b"Transfer-Encoding: Chunked")
            + b"1;a=b\r\n"
            + t.chat_body()[:1]
            + b"\r\n"
            + chunked(t.chat_body()[1:])[:-2]
            + b"X-Sum: 1\r\n\r\n"
        ),
        SERVED,
        "stays",
    ),
    Case(
        "longer-than-announced",
        "the rest is the next request, and no good one",
        lambda t: t.chat() + b"GARBAGE\r\n\r\n",
        SERVED,
    ),
    Case(
        "shorter-than-announced",
        "half a body is no request",
        lambda t: t.head(b"Content-Length: 100000", key=t.smuggler) + t.chat_body(),
        frozenset({400, NOTHING}),
        ends_sending=True,
    ),
    Case(
        "chunks-without-the-last",
        "likewise",
        lambda t: t.head(b"Transfer-Encoding: chunked", key=t.smuggler) + chunked(t.chat_body())[:-5],
        frozenset({400, NOTHING}),
        ends_sending=True,
    ),
    Case("half-a-head", "likewise", lambda t: t.hidden()[:60], frozenset({400, NOTHING}), ends_sending=True),
    Case(
        "close-then-another",
        "RFC 9112 9.6: nothing behind 'close' is looked at",
        lambda t: t.chat("x", b"Connection: close") + t.hidden(),
        SERVED,
    ),
    Case("1.0-then-another", "without keep-alive, 1.0 ends with its reply", lambda t: _old()(t) + t.hidden(), SERVED),
    Case(
        "1.0-keep-alive", "asked for, and given or not: never a hang", _old(b"Connection: keep-alive"), SERVED, "either"
    ),
    Case("broken-then-another", "behind what is refused nothing is served", lambda t: b"nonsense\r\n\r\n" + t.hidden()),
    Case("inner-at-a-wrong-key", "an unread body is no request", _wrong_key, frozenset({401}), "either"),
    Case("inner-at-an-unknown-path", "likewise", _wrapped(b"POST /v1/nothing HTTP/1.1"), frozenset({404}), "either"),
    Case(
        "inner-at-a-wrong-method",
        "likewise",
        _wrapped(b"PUT /v1/chat/completions HTTP/1.1"),
        frozenset({405}),
        "either",
    ),
    Case(
        "inner-at-a-get", "a GET may have a body", _wrapped(b"GET /healthz HTTP/1.1"), frozenset({200, 400}), "either"
    ),
    Case("inner-at-a-delete", "likewise", _wrapped(b"DELETE /v1/keys/key_x HTTP/1.1"), frozenset({400, 404}), "either"),
    Case(
        "inner-at-a-preflight",
        "likewise",
        _wrapped(b"OPTIONS /v1/chat/completions HTTP/1.1"),
        frozenset({200, 204, 400, 405}),
        "either",
    ),
    Case(
        "inner-as-json",
        "read to its end, and refused",
        _wrapped(b"POST /v1/chat/completions HTTP/1.1"),
        REFUSED,
        "either",
    ),
    Case(
        "inner-at-a-page",
        "the dashboard's pages read no bodies",
        _wrapped(b"GET / HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case(
        "inner-at-the-link",
        "a WebSocket that is none",
        _wrapped(b"GET /v1/link HTTP/1.1"),
        frozenset({400, 401, 404, 426}),
        "either",
    ),
    Case(
        "upgrade-to-h2c",
        "we do not upgrade: answered as if the line were not there, and the next request is read as HTTP/1.1",
        lambda t: t.chat(
            "x", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"
        ),
        SERVED,
        "either",
    ),
    Case(
        "upgrade-to-a-socket-elsewhere",
        "only the link's route speaks WebSocket; llhttp stops reading at an upgrade",
        lambda t: t.chat(
            "x",
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==",
        ),
        SERVED,
        "either",
    ),
)


SYNTAX = (
    Case("bare-cr-in-a-value", "ends a line for some", _field(b"X: a\rb")),
    Case("nul-in-a-value", "ends a value for some", _field(b"X: a\x00b")),
    Case("nul-in-a-name", "likewise", _field(b"X\x00: a")),
    Case("control-in-a-value", "no visible character", _field(b"X: a\x01b")),
    Case("space-in-a-name", "RFC 9112 5.1", _field(b"X Y: a")),
    Case("space-before-the-colon", "RFC 9112 5.1", _field(b"X : a")),
    Case("empty-name", "no name", _field(b": a")),
    Case("no-colon", "no field", _field(b"nothing")),
    Case("folded", "RFC 9112 5.2: refused or replaced; we refuse", _field(b"X: a\r\n b")),
    Case(
        "space-before-the-first-field",
        "RFC 9112 2.2",
        lambda t: t.chat().replace(b"\r\nHost", b"\r\n Host", 1),
    ),
    Case(
        "only-line-feeds",
        "may be taken or refused, but no hang",
        lambda t: t.chat().replace(b"\r\n", b"\n"),
        frozenset({200, 400}),
        "either",
    ),
    Case("latin-1-in-a-value", "obs-text is legal", _field(b"X: caf\xe9"), frozenset({200, 400}), "either"),
    Case("latin-1-in-the-key", "not a crash", lambda t: t.chat(key=b"sk-\xff\xfe"), frozenset({400, 401}), "either"),
    Case(
        "key-twice", "which one pays?", lambda t: t.chat("x", b"Authorization: Bearer " + t.smuggler), REFUSED, "either"
    ),
    Case("idempotency-key-odd", "not ASCII", _field(b"Idempotency-Key: \xff"), REFUSED, "either"),
    Case("policy-odd", "not ASCII", _field(b"X-Sparewatt-Policy: \xff\xfe"), REFUSED, "either"),
    Case(
        "empty-lines-before",
        "RFC 9112 2.2: a few are ignored",
        lambda t: b"\r\n" + t.chat(),
        frozenset({200, 400}),
        "either",
    ),
    Case("endless-empty-lines", "but not for ever", lambda t: b"\r\n" * 100_000 + t.hidden(), REFUSED_OR_DROPPED),
    Case(
        "spaces-in-the-line",
        "RFC 9112 3: may be taken as one, or refused",
        _line(b"POST  " + CHAT + b" HTTP/1.1"),
        frozenset({200, 400}),
        "either",
    ),
    Case("space-in-the-target", "where does it end?", _line(b"POST " + CHAT + b" HTTP/1.1 HTTP/1.1")),
    Case("tab-in-the-line", "no space", _line(b"POST\t" + CHAT + b"\tHTTP/1.1")),
    Case("nul-in-the-line", "ends a target for some", _line(b"POST " + CHAT + b"\x00 HTTP/1.1")),
    Case("no-version", "HTTP/0.9 is not spoken", lambda t: b"GET /healthz\r\n\r\n" + t.hidden(), REFUSED_OR_DROPPED),
    Case("version-0.9", "likewise", _line(b"POST " + CHAT + b" HTTP/0.9"), REFUSED_OR_DROPPED),
    Case("version-2.0", "in words of HTTP/1", _line(b"POST " + CHAT + b" HTTP/2.0"), REFUSED_OR_DROPPED),
    Case("version-lower-case", "names are as they are", _line(b"POST " + CHAT + b" http/1.1"), REFUSED_OR_DROPPED),
    Case("version-long", "1.10", _line(b"POST " + CHAT + b" HTTP/1.10"), REFUSED_OR_DROPPED),
    Case("version-of-others", "ICE/1.0 is taken by llhttp", _line(b"POST " + CHAT + b" ICE/1.0"), REFUSED_OR_DROPPED),
    Case(
        "http-2-preface",
        "prior knowledge of what we do not speak",
        lambda t: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + t.hidden(),
        REFUSED_OR_DROPPED,
    ),
    Case(
        "a-tls-hello",
        "https at a port without it",
        lambda t: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        REFUSED_OR_DROPPED,
    ),
    Case("an-ssh-greeting", "another protocol", lambda t: b"SSH-2.0-OpenSSH_9.6\r\n", REFUSED_OR_DROPPED),
    Case("all-bytes", "noise", lambda t: bytes(range(256)) * 4, REFUSED_OR_DROPPED),
    Case("no-host", "RFC 9112 3.2: refused", _without_host, REFUSED, "either"),
    Case("no-host-in-1.0", "1.0 has none", lambda t: _without_host(t).replace(b"HTTP/1.1", b"HTTP/1.0", 1), SERVED),
    Case("two-hosts", "RFC 9112 3.2: refused", _twice_hosted, REFUSED, "either"),
    Case("host-with-a-space", "RFC 9112 3.2: refused", _host(b"a b"), REFUSED, "either"),
    Case("host-with-a-user", "no userinfo", _host(b"user@gateway"), REFUSED, "either"),
    Case("host-with-a-path", "no path", _host(b"gateway/v1"), REFUSED, "either"),
    Case("unknown-expectation", "RFC 9110 10.1.1", _field(b"Expect: the-unexpected"), frozenset({417}), "either"),
    Case("expectation-in-1.0", "RFC 9110 10.1.1: ignored", _old(b"Expect: 100-continue"), SERVED),
    Case(
        "connect",
        "we are no proxy",
        lambda t: t.head(start=b"CONNECT example.org:443 HTTP/1.1") + t.hidden(),
        UNKNOWN_METHOD,
    ),
    Case("trace", "would show a browser its own key", _line(b"TRACE / HTTP/1.1"), UNKNOWN_METHOD, "either"),
    Case(
        "method-lower-case",
        "methods are as they are",
        lambda t: t.hidden().replace(b"POST", b"post", 1),
        UNKNOWN_METHOD,
        "either",
    ),
    Case("method-unknown", "RFC 2324", _line(b"BREW / HTTP/1.1"), UNKNOWN_METHOD, "either"),
    Case("method-empty", "none", _line(b" " + CHAT + b" HTTP/1.1"), REFUSED_OR_DROPPED),
    Case(
        "gzip-that-is-none",
        "a body in a coding that it is not in",
        _field(b"Content-Encoding: gzip"),
        frozenset({400, 415}),
        "either",
    ),
)


TARGETS = (
    Case(
        "absolute",
        "RFC 9112 3.2.2: must be taken",
        _line(b"POST http://gateway" + CHAT + b" HTTP/1.1"),
        SERVED,
        "stays",
    ),
    Case(
        "absolute-elsewhere",
        "we are no proxy: taken as ours, or refused",
        _line(b"POST http://example.org" + CHAT + b" HTTP/1.1"),
        frozenset({200, 400, 421}),
        "either",
    ),
    Case("authority", "for CONNECT only", _line(b"POST gateway:80 HTTP/1.1"), frozenset({400, 404, 405}), "either"),
    Case("asterisk", "for OPTIONS only", _line(b"POST * HTTP/1.1"), frozenset({400, 404, 405}), "either"),
    Case("relative", "no leading slash", _line(b"POST v1/chat/completions HTTP/1.1"), frozenset({400, 404}), "either"),
    Case(
        "two-slashes",
        "not another name of the route, and no other host",
        _line(b"POST /" + CHAT + b" HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "dot",
        "one reading, that of the router",
        _line(b"POST /v1/./chat/completions HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case("dots", "likewise", _line(b"POST /v1/x/../chat/completions HTTP/1.1"), frozenset({200, 400, 404}), "either"),
    Case(
        "slash-encoded",
        "%2F separates nothing",
        _line(b"POST /v1/chat%2Fcompletions HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "letter-encoded",
        "%63 is c: the same route, with the same rules",
        _line(b"POST /v1/%63hat/completions HTTP/1.1"),
        frozenset({200, 404}),
        "either",
    ),
    Case(
        "nul-encoded",
        "not the end of a path",
        _line(b"POST /v1/chat/completions%00 HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "percent-broken",
        "no hex digits",
        _line(b"POST /v1/chat/completions%zz HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "slash-behind", "another path", _line(b"POST /v1/chat/completions/ HTTP/1.1"), frozenset({400, 404}), "either"
    ),
    Case("upper-case", "another path", _line(b"POST /V1/CHAT/COMPLETIONS HTTP/1.1"), frozenset({400, 404}), "either"),
    Case(
        "fragment",
        "never sent by a client",
        _line(b"POST /v1/chat/completions#x HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case("query", "means nothing here", _line(b"POST /v1/chat/completions?x=y HTTP/1.1"), SERVED, "stays"),
    Case("utf-8", "no ASCII", _line("POST /v1/chät HTTP/1.1".encode()), frozenset({400, 404}), "either"),
    Case("backslashes", "no slashes", _line(b"POST /v1\\chat\\completions HTTP/1.1"), frozenset({400, 404}), "either"),
    Case(
        "out-of-the-assets",
        "no file of the machine's",
        _line(b"GET /assets/../../../../etc/passwd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "out-of-the-assets-encoded",
        "likewise",
        _line(b"GET /assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "out-of-the-downloads",
        "likewise",
        _line(b"GET /downloads/..%2f..%2fetc%2fpasswd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "port-out-of-range",
        "not a crash",
        _line(b"POST http://gateway:99999" + CHAT + b" HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case(
        "host-in-brackets",
        "not a crash",
        _line(b"POST http://[" + CHAT + b" HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
)


def _keyless(path: bytes) -> Case:
    def make(target: Target) -> bytes:
        body = target.chat_body()
        return b"POST %b HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)

    name = f"keyless:{path.decode()}"
    return Case(name, "whatever a path is taken for, it wants a key", make, frozenset({400, 401, 404}), "either")


KEYLESS = tuple(
    _keyless(path)
    for path in (
        CHAT,
        b"/v1/%63hat/completions",
        b"/v1/./chat/completions",
        b"/v1/x/../chat/completions",
        b"/v1/chat/completions?x",
        b"/v1/chat/completions#x",
        b"http://gateway/v1/chat/completions",
        b"/v1/completions",
        b"/v1/embeddings",
        b"/v1/responses",
        b"/v1/%72esponses",
        b"/v1/match",
    )
)


SIZES = (
    Case(
        "method-of-10-kb",
        "no method is so long",
        lambda t: b"P" * 10 * KIB + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
        frozenset({400, 414, 431, 501}),
    ),
    Case("line-of-1-mb", "a target has a bound", _line(b"POST /" + b"x" * MIB + b" HTTP/1.1"), TOO_LARGE),
    Case(
        "query-of-100-kb", "likewise", _line(b"POST /v1/chat/completions?" + b"x" * 100 * KIB + b" HTTP/1.1"), TOO_LARGE
    ),
    Case("value-of-100-kb", "a field has a bound", _field(b"X: " + b"y" * 100 * KIB), TOO_LARGE),
    Case("name-of-100-kb", "likewise", _field(b"x" * 100 * KIB + b": y"), TOO_LARGE),
    Case("cookie-of-1-mb", "likewise", _field(b"Cookie: " + b"y" * MIB), TOO_LARGE),
    Case(
        "10000-fields",
        "their number has a bound",
        _field(b"\r\n".join(b"X%d: y" % n for n in range(10_000))),
        TOO_LARGE,
    ),
    Case("10000-equal-fields", "likewise", _field(b"\r\n".join([b"X: y"] * 10_000)), TOO_LARGE),
    Case(
        "head-without-an-end",
        "and so has their sum",
        lambda t: t.hidden()[:100] + b"\r\n" + b"X: yyyyyyyy\r\n" * 50_000,
        TOO_LARGE,
    ),
    Case("forwarded-for-of-8-kb", "a long way here", _field(b"X-Forwarded-For: " + b"1.2.3.4," * 900), SERVED, "stays"),
    Case(
        "body-announced-over-the-limit",
        "refused before it is read",
        _with(b"Content-Length: 20971521", body=lambda t: b""),
        frozenset({413}),
        "either",
    ),
    Case(
        "body-of-a-tebibyte",
        "likewise",
        _with(b"Content-Length: 1099511627776", body=lambda t: b""),
        frozenset({413}),
        "either",
    ),
)

CASES = (*FRAMING, *SYNTAX, *TARGETS, *KEYLESS, *SIZES)
