"""Suites that others wrote; `make conformance` lets schemathesis make up more, and writes the report.

They wait more than they work, so all are run at the same time, schemathesis against a network of its own: it may undo
what the others need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.conformance.suites import ENV, LANGCHAIN, OPENAI, Result, Suite, schemathesis
from tests.integration.networks import start_network

MADE_UP = schemathesis(1, "fuzzing")
SUITES = (OPENAI, LANGCHAIN, MADE_UP)


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres
) -> Iterator[Mapping[str, Future[Result]]]:
    folder, flags = tmp_path_factory.mktemp("suites"), ("--engine=deterministic", "--nodes=1")
    with (
        start_network(folder / "shared", *flags, env=ENV, server=server) as shared,
        start_network(folder / "alone", *flags, env=ENV, server=server) as alone,
        ThreadPoolExecutor(len(SUITES)) as pool,
    ):
        yield {suite.name: pool.submit(suite.run, alone if suite is MADE_UP else shared) for suite in SUITES}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_of_others_passes(results: Mapping[str, Future[Result]], suite: Suite) -> None:
    result = results[suite.name].result()

    assert result.ok, result.output[-20_000:]
    assert result.counts["passed"] > 10, result.output[-2_000:]
