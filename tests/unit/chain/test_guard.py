from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.chain.guard import REASONS, explain

CONTRACTS = Path(__file__).parents[3] / "contracts"


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_told_in_words_and_by_its_name(reason: str) -> None:
    assert explain(reason) == f"{REASONS[reason]} ({reason})"
    sources = (CONTRACTS / "settlement.vy", CONTRACTS / "modules" / "guardians.vy", CONTRACTS / "modules" / "roots.vy")
    assert any(f'"{reason}"' in source.read_text() for source in sources), "the contract does not say it"


def test_a_reason_that_is_not_known_stays_as_it_is() -> None:
    assert explain("PAUSED_BY_MOON") == "PAUSED_BY_MOON"
