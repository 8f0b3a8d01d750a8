"""Everything at once, in a random order that is the same every time: decisions, reorganisations, kills, lost pools."""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

from sparewatt.core.errors import ChainRefused
from sparewatt.localnet.anvil import Anvil
from tests.integration.chain.setting import Setting

STEPS = 40


async def go_back(setting: Setting, method: str, blocks: int, *more: object) -> None:
    """As far as anvil can: it does not remember the states from before it was started."""
    with contextlib.suppress(ChainRefused):
        if blocks > 0:
            await setting.client.request(method, blocks, *more)


async def one_step(setting: Setting, anvil: Anvil, rng: random.Random, ids: list[str]) -> None:
    head = (await setting.client.head()).number
    match rng.choice(["decide", "decide", "round", "round", "round", "reorg", "shorten", "drop", "kill", "rebuild"]):
        case "decide":
            ids.append(await setting.enqueue(len(ids)))
        case "round":
            await setting.round()
        case "reorg":
            await go_back(setting, "anvil_reorg", min(rng.randint(1, 8), head - 3), [])
        case "shorten":
            await go_back(setting, "anvil_rollback", min(rng.randint(1, 4), head - 3))
        case "drop":
            await setting.client.request("anvil_dropAllTransactions")
        case "kill":
            assert anvil.pid is not None
            os.kill(anvil.pid, signal.SIGKILL)
            await anvil.wait()
            await anvil.start()
            await setting.deployment.ensure()
        case "rebuild":
            await setting.follower.begin(rebuild=True)


async def live_through(setting: Setting, anvil: Anvil, *, seed: int, steps: int) -> None:
    """Whatever happened, in the end each decision is on the chain once and in the index once."""
    rng, ids = random.Random(seed), list[str]()  # noqa: S311 (repeatable on purpose)
    for _ in range(steps):
        await one_step(setting, anvil, rng, ids)
    await setting.follower.catch_up()
    await setting.until_final(*ids)
    on_chain, in_index = await setting.noted_on_chain(), await setting.noted_in_index()
    assert sorted(on_chain) == sorted(in_index) == list(range(len(ids)))
    before = await setting.index_rows()
    await setting.follower.begin(rebuild=True)
    await setting.follower.catch_up()
    assert await setting.index_rows() == before


@pytest.mark.parametrize("seed", [1])
async def test_after_any_mix_of_mishaps_every_decision_is_there_once(setting: Setting, anvil: Anvil, seed: int) -> None:
    await live_through(setting, anvil, seed=seed, steps=STEPS)
