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
def test_each_error_has_the_code_status_and_retry_flag_of_the_drawing(name: str) -> None:
    drawn, kind = DRAWN[name], CLASSES[name]
    if name != "JoinRefused":  # its reason is its code
        assert drawn["code"] == kind.code
    if drawn["status"]:
        assert int(drawn["status"]) == kind.status
        assert (drawn["retry"] == "yes") is kind.retryable


def test_the_drawing_names_existing_errors_only() -> None:
    assert set(DRAWN) <= set(CLASSES)


def test_only_errors_where_a_retry_can_help_are_retryable() -> None:
    assert all(kind.status >= 500 or kind.status in (408, 429) for kind in CLASSES.values() if kind.retryable)
