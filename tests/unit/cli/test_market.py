from __future__ import annotations

import json

import msgspec
import pytest

from sparewatt.api.market.tables import published_tables
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

ANSWER = msgspec.to_builtins(published_tables()[0])


@pytest.mark.parametrize("words", [["market"], ["market", "tables"]], ids=" ".join)
def test_the_tables_are_printed_with_their_ids(network: FakeNetwork, run: Run, words: list[str]) -> None:
    network.on("GET /v1/market/tables", ANSWER)
    result = run(*words)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["7", "europe-west", "15"] in rows
    assert any(row[1:] == ["h100", "h100"] for row in rows)
    assert ["1", "gdpr", "operator"] in rows
    assert any(row[1:] == ["DE"] for row in rows)


def test_json_prints_the_answer_of_the_api(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/market/tables", ANSWER)
    assert json.loads(run("market", "tables", "--json").stdout) == ANSWER
