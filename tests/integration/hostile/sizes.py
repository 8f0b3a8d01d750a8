"""Cases of the corpus that are too large: lines, fields, heads and bodies."""

from __future__ import annotations

from tests.integration.hostile.cases import KIB, MIB, SERVED, TOO_LARGE, Case, headed, with_field, with_start

SIZES = (
    Case(
        "method-of-10-kb",
        "no method is so long",
        lambda t: b"P" * 10 * KIB + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
        frozenset({400, 414, 431, 501}),
    ),
    Case("line-of-1-mb", "a target has a bound", with_start(b"POST /" + b"x" * MIB + b" HTTP/1.1"), TOO_LARGE),
    Case(
        "query-of-100-kb",
        "likewise",
        with_start(b"POST /v1/chat/completions?" + b"x" * 100 * KIB + b" HTTP/1.1"),
        TOO_LARGE,
    ),
    Case("value-of-100-kb", "a field has a bound", with_field(b"X: " + b"y" * 100 * KIB), TOO_LARGE),
    Case("name-of-100-kb", "likewise", with_field(b"x" * 100 * KIB + b": y"), TOO_LARGE),
    Case("cookie-of-1-mb", "likewise", with_field(b"Cookie: " + b"y" * MIB), TOO_LARGE),
    Case(
        "10000-fields",
        "their number has a bound",
        with_field(b"\r\n".join(b"X%d: y" % n for n in range(10_000))),
        TOO_LARGE,
    ),
    Case("10000-equal-fields", "likewise", with_field(b"\r\n".join([b"X: y"] * 10_000)), TOO_LARGE),
    Case(
        "head-without-an-end",
        "and so has their sum",
        lambda t: t.hidden()[:100] + b"\r\n" + b"X: yyyyyyyy\r\n" * 50_000,
        TOO_LARGE,
    ),
    Case(
        "forwarded-for-of-8-kb",
        "a long way here",
        with_field(b"X-Forwarded-For: " + b"1.2.3.4," * 900),
        SERVED,
        "stays",
    ),
    Case(
        "body-announced-over-the-limit",
        "refused before it is read",
        headed(b"Content-Length: 20971521", body=lambda t: b""),
        frozenset({413}),
        "either",
    ),
    Case(
        "body-of-a-tebibyte",
        "likewise",
        headed(b"Content-Length: 1099511627776", body=lambda t: b""),
        frozenset({413}),
        "either",
    ),
)
