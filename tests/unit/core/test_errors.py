"""The tree drawn at the top of `core/errors.py` is the tree."""

from __future__ import annotations

import inspect
import re

import pytest

from sparewatt.core import errors
from sparewatt.core.errors import SparewattError

_LEAF = re.compile(
    r"^(?:│   )?[├└]── (?P<name>\w+) +(?P<code>[a-z_]+)(?: +(?P<status>\d{3}) +(?P<retry>yes|no))?", re.MULTILINE
)
DRAWN = {found["name"]: found for found in _LEAF.finditer(errors.__doc__ or "")}
CLASSES = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SparewattError)}
BRANCHES = {"SparewattError", "ChainError", "NoMatch", "LinkError", "StartupError"}


@pytest.mark.parametrize("name", sorted(set(CLASSES) - BRANCHES))
def test_an_error_is_as_it_is_drawn(name: str) -> None:
    drawn, kind = DRAWN[name], CLASSES[name]
    if name != "JoinRefused":  # its reason is its code
        assert drawn["code"] == kind.code
    if drawn["status"]:
        assert int(drawn["status"]) == kind.status
        assert (drawn["retry"] == "yes") is kind.retryable


def test_nothing_is_drawn_that_does_not_exist() -> None:
    assert set(DRAWN) <= set(CLASSES)


def test_only_what_can_help_is_to_be_tried_again() -> None:
    assert all(kind.status >= 500 or kind.status in (408, 429) for kind in CLASSES.values() if kind.retryable)
