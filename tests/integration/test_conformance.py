"""Suites that others wrote, as far as they fit into CI; `make conformance` runs all of them, and longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.suites import ENV, OPENAI_SYNC, Suite, schemathesis
from tests.integration.networks import Network, start_network

ROUTES = "^/v1/(chat|completions|embeddings|models|responses)"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("suites")
    with start_network(folder, "--engine=deterministic", "--nodes=1", env=ENV) as network:
        yield network


@pytest.mark.parametrize(
    "suite",
    [OPENAI_SYNC, schemathesis(1, "fuzzing", "^/v1/(chat|completions|embeddings|models|responses)")],
    ids=lambda suite: suite.name,
)
def test_a_suite_of_others_passes(network: Network, suite: Suite) -> None:
    result = suite.run(network)

    assert result.ok, result.output[-20_000:]
    assert result.counts["passed"] > 10, result.output[-2_000:]
