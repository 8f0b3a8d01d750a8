"""Raw requests that try to make two readers see two things, and what must come of each, whatever serves.

Four tables: `FRAMING` (where a request ends), `SYNTAX` (what a head may hold), `TARGETS` (which route is meant) and
`SIZES` (how much of it). A case passes if the first reply has one of `statuses`, the connection ends as `then` says,
and no hidden request was served. Rules are those of RFC 9112; where it leaves a choice, the stricter one is asked for.
"""

from __future__ import annotations

from tests.integration.hostile.cases import (
    MIB,
    NOTHING,
    REFUSED,
    REFUSED_OR_DROPPED,
    SERVED,
    TOO_LARGE,
    UNKNOWN_METHOD,
    Case,
    encoded,
    headed,
    http_1_0,
    no_host,
    sized,
    two_hosts,
    with_chunks,
    with_field,
    with_host,
    with_start,
    wrapped,
    wrong_key,
    zero_then_hidden,
    zero_then_hidden_old,
)
from tests.integration.hostile.sizes import SIZES
from tests.integration.hostile.target import CHAT, Target, chunked

FRAMING = (
    Case(
        "length-then-chunked",
        "CL.TE: a proxy that counts and a gateway that reads chunks see different requests",
        headed(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    ),
    Case(
        "chunked-then-length", "TE.CL, in the other order", headed(b"Transfer-Encoding: chunked", b"Content-Length: 5")
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
    Case("length-list", "a list is no number", sized(b"5, 5")),
    Case("length-plus", "int() takes a sign", sized(b"+5")),
    Case("length-minus", "a negative length", sized(b"-1")),
    Case("length-hex", "0x is no digit", sized(b"0x5")),
    Case("length-spaced", "5 5", sized(b"5 5")),
    Case("length-empty", "no number at all", sized(b"")),
    Case("length-float", "5.0", sized(b"5.0")),
    Case("length-exponent", "1e1", sized(b"1e1")),
    Case("length-underscore", "Python's int() takes 1_0", sized(b"1_0")),
    Case("length-unicode-digit", "int() takes other alphabets' digits", sized("\u0665".encode())),
    Case("length-over-64-bit", "wraps round to 5", sized(b"18446744073709551621"), frozenset({400, 413})),
    Case("length-of-a-thousand-digits", "int() of many digits is slow", sized(b"9" * 1000), frozenset({400, 413})),
    Case(
        "chunked-identity",
        "chunked is not last",
        encoded(b"Transfer-Encoding: chunked, identity"),
        frozenset({400, 501}),
    ),
    Case(
        "identity",
        "not chunked at all: where does it end?",
        encoded(b"Transfer-Encoding: identity"),
        frozenset({400, 501}),
    ),
    Case(
        "gzip-chunked",
        "a coding that we do not undo",
        encoded(b"Transfer-Encoding: gzip, chunked"),
        frozenset({400, 501}),
    ),
    Case("chunked-chunked", "applied twice", encoded(b"Transfer-Encoding: chunked, chunked"), frozenset({400, 501})),
    Case(
        "xchunked",
        "a name that ends like one we know",
        encoded(b"Transfer-Encoding: xchunked"),
        frozenset({400, 501}),
    ),
    Case("chunked-quoted", "a reader that unquotes", encoded(b'Transfer-Encoding: "chunked"'), frozenset({400, 501})),
    Case(
        "chunked-vertical-tab",
        "strip() takes it for a space",
        encoded(b"Transfer-Encoding: \x0bchunked"),
        frozenset({400, 501}),
    ),
    Case(
        "chunked-twice",
        "two lines",
        headed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        frozenset({400, 501}),
    ),
    Case(
        "encoding-name-spaced",
        "RFC 9112 5.1: a space before the colon is refused",
        encoded(b"Transfer-Encoding : chunked"),
    ),
    Case("encoding-folded", "a value on the next line", encoded(b"Transfer-Encoding:\r\n chunked")),
    Case("length-folded", "likewise", headed(b"Content-Length:\r\n 5")),
    Case("encoding-behind-bare-lf", "a line that only some see", encoded(b"X: y\nTransfer-Encoding: chunked")),
    Case("encoding-behind-bare-cr", "likewise", encoded(b"X: y\rTransfer-Encoding: chunked")),
    Case("encoding-with-nul", "a value that C ends early", encoded(b"Transfer-Encoding: chunked\x00")),
    Case(
        "encoding-in-1.0",
        "HTTP/1.0 has no chunks: a proxy that speaks it counts otherwise",
        zero_then_hidden_old,
    ),
    Case(
        "chunk-size-overflow",
        "wraps round",
        with_chunks(lambda t: b"10000000000000000\r\n\r\n" + zero_then_hidden(t)),
        TOO_LARGE,
    ),
    Case("chunk-size-negative", "a sign", with_chunks(lambda t: b"-1\r\n" + zero_then_hidden(t))),
    Case("chunk-size-hex-prefix", "int(x, 16) takes 0x0", with_chunks(lambda t: b"0x0\r\n\r\n" + t.hidden())),
    Case("chunk-size-underscore", "int(x, 16) takes 0_0", with_chunks(lambda t: b"0_0\r\n\r\n" + t.hidden())),
    Case("chunk-size-empty", "no digits", with_chunks(lambda t: b"\r\n\r\n" + t.hidden())),
    Case("chunk-size-bare-lf", "a line end that only some see", with_chunks(lambda t: b"0\n\n" + t.hidden())),
    Case(
        "chunk-extension-bare-lf",
        "an extension that ends where only some see it",
        with_chunks(lambda t: b"0;\n\r\n" + t.hidden()),
    ),
    Case(
        "chunk-without-end",
        "data longer than its size",
        with_chunks(lambda t: b"5\r\nhelloworld" + zero_then_hidden(t)),
    ),
    Case("chunk-end-bare-cr", "half a line end", with_chunks(lambda t: b"1\r\nx\r0\r\n\r\n" + t.hidden())),
    Case(
        "chunk-extension-bomb",
        "one byte of body, a megabyte of extension",
        with_chunks(lambda t: b"1;" + b"x" * MIB + b"\r\n{\r\n" + zero_then_hidden(t)),
        TOO_LARGE,
    ),
    Case(
        "trailer-bomb",
        "a head's worth of limits applies behind the body as well",
        with_chunks(lambda t: chunked(t.chat_body())[:-2] + b"X: y\r\n" * 20_000 + b"\r\n"),
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
    Case(
        "1.0-then-another", "without keep-alive, 1.0 ends with its reply", lambda t: http_1_0()(t) + t.hidden(), SERVED
    ),
    Case(
        "1.0-keep-alive",
        "asked for, and given or not: never a hang",
        http_1_0(b"Connection: keep-alive"),
        SERVED,
        "either",
    ),
    Case("broken-then-another", "behind what is refused nothing is served", lambda t: b"nonsense\r\n\r\n" + t.hidden()),
    Case("inner-at-a-wrong-key", "an unread body is no request", wrong_key, frozenset({401}), "either"),
    Case("inner-at-an-unknown-path", "likewise", wrapped(b"POST /v1/nothing HTTP/1.1"), frozenset({404}), "either"),
    Case(
        "inner-at-a-wrong-method",
        "likewise",
        wrapped(b"PUT /v1/chat/completions HTTP/1.1"),
        frozenset({405}),
        "either",
    ),
    Case("inner-at-a-get", "a GET may have a body", wrapped(b"GET /healthz HTTP/1.1"), frozenset({200, 400}), "either"),
    Case("inner-at-a-delete", "likewise", wrapped(b"DELETE /v1/keys/key_x HTTP/1.1"), frozenset({400, 404}), "either"),
    Case(
        "inner-at-a-preflight",
        "likewise",
        wrapped(b"OPTIONS /v1/chat/completions HTTP/1.1"),
        frozenset({200, 204, 400, 405}),
        "either",
    ),
    Case(
        "inner-as-json",
        "read to its end, and refused",
        wrapped(b"POST /v1/chat/completions HTTP/1.1"),
        REFUSED,
        "either",
    ),
    Case(
        "inner-at-a-page",
        "the dashboard's pages read no bodies",
        wrapped(b"GET / HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case(
        "inner-at-the-link",
        "a WebSocket that is none",
        wrapped(b"GET /v1/link HTTP/1.1"),
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
    Case("bare-cr-in-a-value", "ends a line for some", with_field(b"X: a\rb")),
    Case("nul-in-a-value", "ends a value for some", with_field(b"X: a\x00b")),
    Case("nul-in-a-name", "likewise", with_field(b"X\x00: a")),
    Case("control-in-a-value", "no visible character", with_field(b"X: a\x01b")),
    Case("space-in-a-name", "RFC 9112 5.1", with_field(b"X Y: a")),
    Case("space-before-the-colon", "RFC 9112 5.1", with_field(b"X : a")),
    Case("empty-name", "no name", with_field(b": a")),
    Case("no-colon", "no field", with_field(b"nothing")),
    Case("folded", "RFC 9112 5.2: refused or replaced; we refuse", with_field(b"X: a\r\n b")),
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
    Case("latin-1-in-a-value", "obs-text is legal", with_field(b"X: caf\xe9"), frozenset({200, 400}), "either"),
    Case("latin-1-in-the-key", "not a crash", lambda t: t.chat(key=b"sk-\xff\xfe"), frozenset({400, 401}), "either"),
    Case(
        "key-twice", "which one pays?", lambda t: t.chat("x", b"Authorization: Bearer " + t.smuggler), REFUSED, "either"
    ),
    Case("idempotency-key-odd", "not ASCII", with_field(b"Idempotency-Key: \xff"), REFUSED, "either"),
    Case("policy-odd", "not ASCII", with_field(b"X-Sparewatt-Policy: \xff\xfe"), REFUSED, "either"),
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
        with_start(b"POST  " + CHAT + b" HTTP/1.1"),
        frozenset({200, 400}),
        "either",
    ),
    Case("space-in-the-target", "where does it end?", with_start(b"POST " + CHAT + b" HTTP/1.1 HTTP/1.1")),
    Case("tab-in-the-line", "no space", with_start(b"POST\t" + CHAT + b"\tHTTP/1.1")),
    Case("nul-in-the-line", "ends a target for some", with_start(b"POST " + CHAT + b"\x00 HTTP/1.1")),
    Case("no-version", "HTTP/0.9 is not spoken", lambda t: b"GET /healthz\r\n\r\n" + t.hidden(), REFUSED_OR_DROPPED),
    Case("version-0.9", "likewise", with_start(b"POST " + CHAT + b" HTTP/0.9"), REFUSED_OR_DROPPED),
    Case("version-2.0", "in words of HTTP/1", with_start(b"POST " + CHAT + b" HTTP/2.0"), REFUSED_OR_DROPPED),
    Case("version-lower-case", "names are as they are", with_start(b"POST " + CHAT + b" http/1.1"), REFUSED_OR_DROPPED),
    Case("version-long", "1.10", with_start(b"POST " + CHAT + b" HTTP/1.10"), REFUSED_OR_DROPPED),
    Case(
        "version-of-others", "ICE/1.0 is taken by llhttp", with_start(b"POST " + CHAT + b" ICE/1.0"), REFUSED_OR_DROPPED
    ),
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
    Case("no-host", "RFC 9112 3.2: refused", no_host, REFUSED, "either"),
    Case("no-host-in-1.0", "1.0 has none", lambda t: no_host(t).replace(b"HTTP/1.1", b"HTTP/1.0", 1), SERVED),
    Case("two-hosts", "RFC 9112 3.2: refused", two_hosts, REFUSED, "either"),
    Case("host-with-a-space", "RFC 9112 3.2: refused", with_host(b"a b"), REFUSED, "either"),
    Case("host-with-a-user", "no userinfo", with_host(b"user@gateway"), REFUSED, "either"),
    Case("host-with-a-path", "no path", with_host(b"gateway/v1"), REFUSED, "either"),
    Case("unknown-expectation", "RFC 9110 10.1.1", with_field(b"Expect: the-unexpected"), frozenset({417}), "either"),
    Case("expectation-in-1.0", "RFC 9110 10.1.1: ignored", http_1_0(b"Expect: 100-continue"), SERVED),
    Case(
        "connect",
        "we are no proxy",
        lambda t: t.head(start=b"CONNECT example.org:443 HTTP/1.1") + t.hidden(),
        UNKNOWN_METHOD,
    ),
    Case("trace", "would show a browser its own key", with_start(b"TRACE / HTTP/1.1"), UNKNOWN_METHOD, "either"),
    Case(
        "method-lower-case",
        "methods are as they are",
        lambda t: t.hidden().replace(b"POST", b"post", 1),
        UNKNOWN_METHOD,
        "either",
    ),
    Case("method-unknown", "RFC 2324", with_start(b"BREW / HTTP/1.1"), UNKNOWN_METHOD, "either"),
    Case("method-empty", "none", with_start(b" " + CHAT + b" HTTP/1.1"), REFUSED_OR_DROPPED),
    Case(
        "gzip-that-is-none",
        "a body in a coding that it is not in",
        with_field(b"Content-Encoding: gzip"),
        frozenset({400, 415}),
        "either",
    ),
)


TARGETS = (
    Case(
        "absolute",
        "RFC 9112 3.2.2: must be taken",
        with_start(b"POST http://gateway" + CHAT + b" HTTP/1.1"),
        SERVED,
        "stays",
    ),
    Case(
        "absolute-elsewhere",
        "we are no proxy: taken as ours, or refused",
        with_start(b"POST http://example.org" + CHAT + b" HTTP/1.1"),
        frozenset({200, 400, 421}),
        "either",
    ),
    Case(
        "authority", "for CONNECT only", with_start(b"POST gateway:80 HTTP/1.1"), frozenset({400, 404, 405}), "either"
    ),
    Case("asterisk", "for OPTIONS only", with_start(b"POST * HTTP/1.1"), frozenset({400, 404, 405}), "either"),
    Case(
        "relative",
        "no leading slash",
        with_start(b"POST v1/chat/completions HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "two-slashes",
        "the route itself, by one rule for slashes before any route is looked up, and no other host",
        with_start(b"POST /" + CHAT + b" HTTP/1.1"),
        frozenset({200}),
        "either",
    ),
    Case(
        "dot",
        "one reading, that of the router",
        with_start(b"POST /v1/./chat/completions HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case(
        "dots", "likewise", with_start(b"POST /v1/x/../chat/completions HTTP/1.1"), frozenset({200, 400, 404}), "either"
    ),
    Case(
        "slash-encoded",
        "%2F separates nothing",
        with_start(b"POST /v1/chat%2Fcompletions HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "letter-encoded",
        "%63 is c: the same route, with the same rules",
        with_start(b"POST /v1/%63hat/completions HTTP/1.1"),
        frozenset({200, 404}),
        "either",
    ),
    Case(
        "nul-encoded",
        "not the end of a path",
        with_start(b"POST /v1/chat/completions%00 HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "percent-broken",
        "no hex digits",
        with_start(b"POST /v1/chat/completions%zz HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "slash-behind",
        "the route itself, by the same rule",
        with_start(b"POST /v1/chat/completions/ HTTP/1.1"),
        frozenset({200}),
        "either",
    ),
    Case(
        "upper-case", "another path", with_start(b"POST /V1/CHAT/COMPLETIONS HTTP/1.1"), frozenset({400, 404}), "either"
    ),
    Case(
        "fragment",
        "never sent by a client",
        with_start(b"POST /v1/chat/completions#x HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case("query", "means nothing here", with_start(b"POST /v1/chat/completions?x=y HTTP/1.1"), SERVED, "stays"),
    Case("utf-8", "no ASCII", with_start("POST /v1/chät HTTP/1.1".encode()), frozenset({400, 404}), "either"),
    Case(
        "backslashes",
        "no slashes",
        with_start(b"POST /v1\\chat\\completions HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "out-of-the-assets",
        "no file of the machine's",
        with_start(b"GET /assets/../../../../etc/passwd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "out-of-the-assets-encoded",
        "likewise",
        with_start(b"GET /assets/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "out-of-the-downloads",
        "likewise",
        with_start(b"GET /downloads/..%2f..%2fetc%2fpasswd HTTP/1.1"),
        frozenset({400, 404}),
        "either",
    ),
    Case(
        "port-out-of-range",
        "not a crash",
        with_start(b"POST http://gateway:99999" + CHAT + b" HTTP/1.1"),
        frozenset({200, 400, 404}),
        "either",
    ),
    Case(
        "host-in-brackets",
        "not a crash",
        with_start(b"POST http://[" + CHAT + b" HTTP/1.1"),
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


CASES = (*FRAMING, *SYNTAX, *TARGETS, *KEYLESS, *SIZES)
