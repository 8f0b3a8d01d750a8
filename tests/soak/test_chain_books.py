"""Many walks of an account's money over the contracts, with many kills and reorgs in each step of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.money_walk import walk_with_mishaps

SEEDS = 20
KILLS = 8
"""In each step of a walk; there are twelve."""


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_money_is_kept_to_the_unit_through_kills_and_reorgs(
    anvil: Anvil, dsn: str, tmp_path: Path, seed: int
) -> None:
    await walk_with_mishaps(anvil, dsn, tmp_path / "chain", seed=seed, kills=KILLS)
