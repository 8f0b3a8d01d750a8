"""Which releases work together."""

from __future__ import annotations

import pytest

from sparewatt.core.versions import Release, read_release, side_to_update, version_conflict


@pytest.mark.parametrize(
    ("agent", "gateway"),
    [
        ("0.1.0", "0.1.0"),
        ("0.1.9", "0.2.0"),
        ("0.3.0", "0.2.7"),
        ("1.9.0", "1.10.0"),
        ("1.2.0.dev4", "1.3.0rc1"),
        ("unknown", "0.2.0"),
        ("0.2.0", "local build"),
    ],
)
def test_one_minor_version_apart_works(agent: str, gateway: str) -> None:
    assert side_to_update(agent=agent, gateway=gateway) is None
    assert version_conflict(agent=agent, gateway=gateway) is None


@pytest.mark.parametrize(
    ("agent", "gateway", "side"),
    [
        ("0.1.0", "0.3.0", "agent"),
        ("0.4.0", "0.2.0", "gateway"),
        ("1.1.0", "1.10.0", "agent"),
        ("0.9.0", "1.0.0", "agent"),
        ("2.0.0", "1.9.0", "gateway"),
    ],
)
def test_further_apart_the_older_side_is_named(agent: str, gateway: str, side: str) -> None:
    assert side_to_update(agent=agent, gateway=gateway) == side
    told = version_conflict(agent=agent, gateway=gateway)
    assert told is not None
    assert f"Update the {side}" in told
    assert agent in told
    assert gateway in told
    assert len(told) <= 500  # what a REJECT may carry


@pytest.mark.parametrize("text", ["", "unknown", "v1.2", "1", "1.x", "1." + "9" * 30])
def test_what_is_no_version_is_not_read(text: str) -> None:
    assert read_release(text) is None


def test_a_release_is_the_first_two_numbers() -> None:
    assert read_release("12.34.56+local") == Release(12, 34)
