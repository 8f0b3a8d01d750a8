"""The chain's client through long random mishaps; `make soak`. Seeds are fixed: a failure can be looked at again."""

from __future__ import annotations

import os

import pytest

from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.setting import Setting
from tests.integration.chain.test_chaos import live_through

SEEDS = int(os.environ.get("SOAK_CHAIN_SEEDS", "50"))
STEPS = 200


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
async def test_after_many_mishaps_every_decision_is_there_once(setting: Setting, anvil: Anvil, seed: int) -> None:
    await live_through(setting, anvil, seed=seed, steps=STEPS)
