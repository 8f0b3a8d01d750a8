from __future__ import annotations

import pytest

from sparewatt.edge.auth import authorization_of


@pytest.mark.parametrize(
    ("headers", "presented"),
    [
        ({"authorization": "Bearer sk-a"}, "Bearer sk-a"),
        ({"x-api-key": "sk-b"}, "Bearer sk-b"),
        ({"authorization": "Bearer sk-a", "x-api-key": "sk-b"}, "Bearer sk-a"),
        ({"authorization": "", "x-api-key": "sk-b"}, "Bearer sk-b"),
        ({"x-api-key": ""}, None),
        ({}, None),
    ],
)
def test_a_key_comes_by_either_header_and_authorization_wins(headers: dict[str, str], presented: str | None) -> None:
    assert authorization_of(headers) == presented
