"""The index on a real chain that goes back, loses blocks, repeats itself and restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from sparewatt.chain.client import ChainClient
from sparewatt.chain.follower import BLOCKS_PER_BATCH, ChainFollower, EventDelivery, business_id
from sparewatt.core.errors import ChainRefused, ChainUnavailable, WrongChain
from sparewatt.evm.model import RawLog
from sparewatt.localnet.anvil import Anvil
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import BLOCKS_KEPT, OutboxState
from tests.integration.chain.setting import Setting, open_setting


async def fill(setting: Setting, count: int, *, first: int = 0) -> list[str]:
    ids = [await setting.enqueue(number) for number in range(first, first + count)]
    await setting.until_final(*ids)
    return ids


async def test_a_dropped_index_is_rebuilt_to_the_same_rows(setting: Setting) -> None:
    await fill(setting, 12)
    before = await setting.index_rows()
    await setting.follower.begin(rebuild=True)
    assert await setting.index_rows() == []
    await setting.follower.catch_up()
    assert await setting.index_rows() == before
    assert len(before) == 12


async def test_a_restarted_follower_goes_on_where_it_stopped(setting: Setting) -> None:
    await fill(setting, 3)
    again = ChainFollower(setting.client, setting.store, setting.contracts, start_block=setting.record.start_block)
    await again.begin()
    assert len(await setting.index_rows()) == 3
    await fill(setting, 2, first=3)
    await again.catch_up()
    assert await setting.noted_in_index() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("depth", [6, 20])
async def test_a_reorganisation_is_rolled_back_and_what_it_lost_is_sent_again(setting: Setting, depth: int) -> None:
    ids = await fill(setting, 8)
    while (await setting.client.head()).number <= depth:
        await setting.round()
    stable = await setting.index_rows()
    await setting.client.request("anvil_reorg", depth, [])
    await setting.follower.catch_up()
    kept = await setting.index_rows()
    assert kept == stable[: len(kept)]
    assert setting.follower.reorg_count == 1
    await setting.until_final(*ids)
    assert sorted(await setting.noted_on_chain()) == sorted(await setting.noted_in_index()) == list(range(8))
    await setting.follower.begin(rebuild=True)
    rebuilt_from = await setting.follower.catch_up()
    assert rebuilt_from > 0
    assert sorted(await setting.noted_in_index()) == list(range(8))


async def test_a_chain_that_only_became_shorter_is_noticed(setting: Setting) -> None:
    ids = await fill(setting, 5)
    await setting.client.request("anvil_rollback", 6)
    await setting.follower.catch_up()
    await setting.until_final(*ids)
    assert sorted(await setting.noted_on_chain()) == sorted(await setting.noted_in_index()) == list(range(5))


async def test_two_followers_on_one_database_index_every_event_once(setting: Setting) -> None:
    import asyncio

    other = ChainFollower(setting.client, setting.store, setting.contracts, start_block=setting.record.start_block)
    await other.begin()
    for number in range(10):
        await setting.enqueue(number)
        await setting.sender.step()
        await setting.client.request("evm_mine")
        await asyncio.gather(setting.follower.step(), other.step())
    await asyncio.gather(setting.follower.catch_up(), other.catch_up())
    assert await setting.noted_in_index() == list(range(10))


class RepeatingClient(ChainClient):
    """A node that reports each log twice, as some do after they switched branches."""

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        found = await super().logs(first, last, addresses)
        return [*found, *found]


async def test_logs_that_are_reported_twice_are_indexed_once(setting: Setting, anvil: Anvil) -> None:
    await fill(setting, 4)
    before = await setting.index_rows()
    client = RepeatingClient(anvil.url)
    follower = ChainFollower(client, setting.store, setting.contracts, start_block=setting.record.start_block)
    await follower.begin(rebuild=True)
    await follower.catch_up()
    await client.close()
    assert await setting.index_rows() == before


class NarrowClient(ChainClient):
    """A node that refuses to look through more than 100 blocks at once, as public ones do."""

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        if last - first >= 100:
            raise ChainRefused("range too large")
        return await super().logs(first, last, addresses)


async def test_a_long_history_is_read_in_batches_that_the_node_allows(setting: Setting, anvil: Anvil) -> None:
    await fill(setting, 2)
    await setting.client.request("anvil_mine", hex(2 * BLOCKS_PER_BATCH))
    await fill(setting, 2, first=2)
    before = await setting.index_rows()
    client = NarrowClient(anvil.url)
    follower = ChainFollower(client, setting.store, setting.contracts, start_block=setting.record.start_block)
    await follower.begin(rebuild=True)
    await follower.catch_up()
    await client.close()
    assert await setting.index_rows() == before
    assert len(await setting.store.recent_blocks()) <= BLOCKS_KEPT + 1


class ReorganisingClient(ChainClient):
    """A chain that reorganises between the request for blocks and the one for their logs."""

    reorgs_left = 3

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        if self.reorgs_left:
            self.reorgs_left -= 1
            await self.request("anvil_reorg", 2, [])
        return await super().logs(first, last, addresses)


async def test_a_reorg_in_the_middle_of_a_batch_leaves_no_trace(setting: Setting, anvil: Anvil) -> None:
    ids = await fill(setting, 6)
    client = ReorganisingClient(anvil.url)
    follower = ChainFollower(client, setting.store, setting.contracts, start_block=setting.record.start_block)
    await follower.begin(rebuild=True)
    await follower.catch_up()
    await client.close()
    await setting.until_final(*ids)
    assert sorted(await setting.noted_in_index()) == sorted(await setting.noted_on_chain()) == list(range(6))


async def test_final_events_are_delivered_in_order_and_each_deposit_counts_once(setting: Setting) -> None:
    credited: dict[str, int] = {}

    async def credit(event: ChainEvent) -> None:
        credited.setdefault(business_id(event), event.args["number"])

    delivery = EventDelivery(setting.store, reader="ledger", names=["echo.Noted"], depth=3, handle=credit)
    ids = await fill(setting, 5)
    while await delivery.step():
        pass
    assert list(credited.values()) == [0, 1, 2, 3, 4]
    await setting.client.request("anvil_reorg", 6, [])
    await setting.until_final(*ids)
    while await delivery.step():
        pass
    assert sorted(credited.values()) == [0, 1, 2, 3, 4]


async def test_an_event_is_not_delivered_before_its_depth(setting: Setting) -> None:
    seen: list[int] = []

    async def see(event: ChainEvent) -> None:
        seen.append(event.block_number)

    delivery = EventDelivery(setting.store, reader="late", names=["echo.Noted"], depth=50, handle=see)
    await fill(setting, 1)
    await delivery.step()
    assert seen == []


async def test_an_event_that_a_local_chain_has_not_saved_is_not_delivered_however_deep(setting: Setting) -> None:
    seen: list[int] = []

    async def see(event: ChainEvent) -> None:
        seen.append(event.args["number"])

    delivery = EventDelivery(setting.store, reader="careful", names=["echo.Noted"], depth=1, handle=see)
    index = await setting.store.index()
    assert index is not None
    await setting.store.set_saved_block(index.block_number)
    waiting = await setting.enqueue(1)
    for _ in range(5):
        await setting.sender.step()
        await setting.client.request("evm_mine")
        await setting.follower.catch_up()
        await delivery.step()
    row = await setting.store.find(waiting)
    assert (row is not None and row.state, seen) == (OutboxState.MINED, [])
    assert await setting.store.has_fresh_events(depth=1)
    await setting.store.set_saved_block(None)
    await setting.until_final(waiting)
    await delivery.step()
    assert seen == [1]
    assert not await setting.store.has_fresh_events(depth=1)


async def test_another_chain_is_refused_until_it_is_told_to_take_the_place(setting: Setting, anvil: Anvil) -> None:
    """What had ended on the old chain stays there; what is open is signed anew for the new one."""
    await fill(setting, 2)
    waiting = await setting.enqueue(7)
    before = await setting.client.identity()
    while await setting.client.identity() == before:  # a new chain, and not one made in the very same second
        await anvil.stop()
        (anvil._folder / "state.json").unlink()
        await anvil.start()
    await setting.deployment.ensure()
    for rebuild in (False, True):
        with pytest.raises(WrongChain, match="another chain"):
            await setting.follower.begin(rebuild=rebuild)
    await setting.follower.begin(rebuild=True, another_chain=True)
    await setting.until_final(waiting)
    assert await setting.noted_on_chain() == await setting.noted_in_index() == [7]
    await setting.follower.begin(rebuild=True, another_chain=True)
    await setting.until_final(waiting)
    assert await setting.noted_on_chain() == [7], "the same chain again: nothing may be sent anew"


async def test_a_chain_killed_in_the_middle_of_a_flow_comes_back_and_nothing_is_lost_or_doubled(
    setting: Setting, anvil: Anvil
) -> None:
    """kill -9, four times; what anvil had not saved is a reorganisation to us."""
    ids: list[str] = []
    for cycle in range(4):
        ids += [await setting.enqueue(number) for number in range(10 * cycle, 10 * cycle + 10)]
        await setting.round()
        assert anvil.pid is not None
        os.kill(anvil.pid, signal.SIGKILL)
        await anvil.wait()
        with pytest.raises(ChainUnavailable):
            await setting.sender.step()
        await anvil.start()
        await setting.deployment.ensure()
    await setting.until_final(*ids)
    assert sorted(await setting.noted_on_chain()) == sorted(await setting.noted_in_index()) == list(range(40))


async def test_everything_put_together_anew_on_the_same_data_goes_on(setting: Setting, anvil: Anvil, dsn: str) -> None:
    ids = [await setting.enqueue(number) for number in range(5)]
    await setting.sender.step()
    async with open_setting(anvil.url, dsn, anvil._folder) as again:
        assert again.contracts.addresses == setting.contracts.addresses
        await again.until_final(*ids)
        assert await again.noted_on_chain() == [0, 1, 2, 3, 4]
