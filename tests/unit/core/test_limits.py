"""Every bound has its reason written under it, and the bounds fit one another."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from sparewatt.core import limits
from sparewatt.inference.matcher.model import CANDIDATES_KEPT

UNITS = {"KIB", "MIB"}


def name_of(statement: ast.stmt) -> str | None:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else None


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


STATEMENTS = ast.parse(Path(limits.__file__).read_text()).body
BOUNDS = {name: after for before, after in pairwise([*STATEMENTS, ast.Pass()]) if (name := name_of(before))}


@pytest.mark.parametrize("name", sorted(set(BOUNDS) - UNITS))
def test_a_bound_has_its_reason(name: str) -> None:
    assert is_text(BOUNDS[name]), f"{name} needs a sentence that says why"
    assert getattr(limits, name) > 0


def test_a_control_message_fits_into_a_frame() -> None:
    assert limits.LINK_CONTROL_BYTES_MAX <= limits.LINK_FRAME_BYTES_MAX


def test_a_frame_fits_into_a_message() -> None:
    assert limits.LINK_FRAME_BYTES_MAX + 1024 < limits.LINK_MESSAGE_BYTES_MAX


def test_a_job_may_try_no_more_nodes_than_an_explanation_keeps() -> None:
    assert limits.ATTEMPTS_MAX + limits.REFUSALS_MAX <= CANDIDATES_KEPT
