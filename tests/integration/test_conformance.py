"""Suites that others wrote; `make conformance` lets schemathesis make up more, and writes the report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.suites import ENV, LANGCHAIN, OPENAI, Suite, schemathesis
from tests.integration.networks import Network, start_network

SUITES = (OPENAI, LANGCHAIN, schemathesis(1, "fuzzing"))
"""The last one last: it may undo what the others need."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("suites")
    with start_network(folder, "--engine=deterministic", "--nodes=1", env=ENV) as network:
        yield network


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_of_others_passes(network: Network, suite: Suite) -> None:
    result = suite.run(network)

    assert result.ok, result.output[-20_000:]
    assert result.counts["passed"] > 10, result.output[-2_000:]
