from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.fake_agent import Node, running_agent


@pytest.fixture
def away(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running_agent(tmp_path / "n") as found:
        yield found
