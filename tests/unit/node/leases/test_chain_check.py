"""An owner's chain that is behind, of another network, or silent. What it reads of contracts: `tests/evm`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.evm.client import EvmClient
from sparewatt.evm.model import BlockHeader, ChainIdentity
from sparewatt.node.leases.chain_check import ChainCheck, ChainDiffers
from sparewatt.node.leases.lookup_check import check_lookup
from tests.unit.node.leases.lease_world import CHAIN_ID, lookup, market


class SlowChain:
    """Makes a block with every question, up to a highest one."""

    def __init__(self, *, heights: list[int], chain_id: int = CHAIN_ID, is_silent: bool = False) -> None:
        self.heights, self.chain_id, self.is_silent = heights, chain_id, is_silent

    async def head(self) -> BlockHeader:
        if self.is_silent:
            raise ChainUnavailable("The chain's node does not answer (timeout).")
        height = self.heights.pop(0) if len(self.heights) > 1 else self.heights[0]
        return BlockHeader(height, bytes(32), bytes(32), 0, 0)

    async def identity(self) -> ChainIdentity:
        return ChainIdentity(self.chain_id, bytes(32))

    async def call(self, *_: object, **__: object) -> bytes:
        return b""


def check_of(chain: SlowChain) -> ChainCheck:
    return ChainCheck(client=cast(EvmClient, chain), clock=SystemClock())


async def ask(check: ChainCheck, *, within_s: float = 5.0) -> str:
    with pytest.raises(ChainDiffers) as differs:
        await check.check_order(check_lookup(lookup(), market()), market(), block=50, within_s=within_s)
    return str(differs.value)


async def test_a_chain_that_stays_behind_means_no_bid() -> None:
    check = check_of(SlowChain(heights=[40, 49]))
    assert "behind block 50" in await ask(check, within_s=0.2)
    assert check.height == 49


async def test_one_that_catches_up_is_asked() -> None:
    check = check_of(SlowChain(heights=[48, 49, 50], chain_id=1))
    assert "has the id 1" in await ask(check)
    assert check.height == 50


async def test_one_without_the_contracts_means_no_bid() -> None:
    assert "does not answer" in await ask(check_of(SlowChain(heights=[50])))


async def test_one_that_is_silent_means_no_bid_and_says_so() -> None:
    check = check_of(SlowChain(heights=[50], is_silent=True))
    assert "timeout" in await ask(check)
    await check.refresh()
    assert check.trouble is not None
    assert check.height is None


async def test_trouble_passes() -> None:
    chain = SlowChain(heights=[7], is_silent=True)
    check = check_of(chain)
    await check.refresh()
    chain.is_silent = False
    await check.refresh()
    assert (check.height, check.trouble) == (7, None)


@pytest.mark.parametrize("question", ["placed_term", "validator_urls"])
async def test_other_questions_say_the_same(question: str) -> None:
    check: Any = check_of(SlowChain(heights=[50]))
    given = (bytes(32), market()) if question == "placed_term" else (lookup().weights, market())
    with pytest.raises(ChainDiffers, match="does not answer"):
        await getattr(check, question)(*given)
