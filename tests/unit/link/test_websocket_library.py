from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from sparewatt.link.websocket_library import has_picows


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    has_picows.cache_clear()
    yield
    has_picows.cache_clear()


def test_picows_is_installed() -> None:
    assert has_picows()


@pytest.mark.parametrize("missing", ["picows", "picows.picows"])
def test_picows_that_is_missing_or_does_not_load_counts_as_absent(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "picows"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert not has_picows()
