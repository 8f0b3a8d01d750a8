"""Texts of the dashboard match the gateway: a mark for every state of a node, and no unknown error code."""

from __future__ import annotations

import re
from pathlib import Path

from sparewatt.core import errors
from sparewatt.inference.matcher.node_row import NodeState

WEB = Path(__file__).parents[4] / "web" / "src"


def names_in(file: str) -> set[str]:
    return set(re.findall(r"^  (\w+): [\"{]", (WEB / file).read_text(), re.MULTILINE))


def test_the_status_page_explains_codes_that_exist() -> None:
    explained = names_in("pages/status/errorMeanings.ts")
    given = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    assert explained
    assert explained <= given


def test_every_state_of_a_node_has_a_mark() -> None:
    assert names_in("components/NodeStateBadge.tsx") == {state.value for state in NodeState}
