"""One rule for slashes, before anything looks at a path."""

from __future__ import annotations

import pytest

from sparewatt.edge.http1 import RequestHead


def canonical(target: str) -> str:
    return RequestHead(b"POST", target.encode(), "1.1", True, {"host": "a"}).canonical().target.decode()


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("//v1//chat/completions/", "/v1/chat/completions"),
        ("/v1///models//?a=//b/#c//", "/v1/models?a=//b/#c//"),
        ("/v1/models/?x=1", "/v1/models?x=1"),
        ("/", "/"),
        ("//", "/"),
        ("/?a=1", "/?a=1"),
        ("///?a", "/?a"),
        ("*", "*"),
        ("http://a//v1//models/", "http://a//v1//models/"),
        ("/v1/models/%2F%2F", "/v1/models/%2F%2F"),
        ("/v1%2F%2Fmodels", "/v1%2F%2Fmodels"),
        ("/v1/../models/", "/v1/../models"),
    ],
)
def test_slashes_are_forgiven_in_paths_alone(target: str, path: str) -> None:
    assert canonical(target) == path
    assert canonical(path) == path


def test_a_head_without_such_slashes_is_the_same_object() -> None:
    head = RequestHead(b"GET", b"/v1/models?a=//", "1.1", True, {})
    assert head.canonical() is head
