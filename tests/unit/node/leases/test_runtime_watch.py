from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sparewatt.core.rng import seeded
from sparewatt.node.leases.runtime.model import RuntimeAbility, RuntimeTrouble
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.node.leases.runtime_watch import AGAIN_S, LOOK_S, NETWORK_AGAIN_S, RuntimeWatch
from sparewatt.testing.clocks import ManualClock
from sparewatt.testing.memory_runtime import MemoryEngine, MemoryRuntime
from tests.waiting import turns, until

UNABLE = RuntimeAbility(troubles=(RuntimeTrouble("neither is installed", "Install one."),))
ABLE = RuntimeAbility(engine="podman 4.3.1", limits=True, egress=True)


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.said: list[str] = []
        self.is_offering = True

    @asynccontextmanager
    async def watching(self, runtime: LeaseRuntime | None) -> AsyncIterator[RuntimeWatch]:
        watch = RuntimeWatch(
            runtime=runtime, is_offering=lambda: self.is_offering, clock=self.clock, notify=self.said.append
        )
        task = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            task.cancel()
            await asyncio.wait([task])

    def runtime(self, can: RuntimeAbility) -> MemoryRuntime:
        return MemoryRuntime(MemoryEngine(), clock=self.clock, rng=seeded(1), can=can)


async def test_what_is_missing_is_told_once_and_tried_again() -> None:
    rig = Rig()
    runtime = rig.runtime(UNABLE)
    async with rig.watching(runtime) as watch:
        await until(lambda: watch.ability is not None)
        assert rig.said == ["Leases: neither is installed. Install one."]
        rig.clock.advance(AGAIN_S)
        await turns()
        assert len(rig.said) == 1
        runtime.can = ABLE
        rig.clock.advance(AGAIN_S)
        await until(lambda: len(rig.said) == 2)
        assert watch.ability == ABLE
        assert rig.said[1] == "Leases run in containers of podman 4.3.1."


async def test_nothing_is_tried_before_leases_are_offered() -> None:
    rig = Rig()
    rig.is_offering = False
    async with rig.watching(rig.runtime(ABLE)) as watch:
        await turns()
        assert (watch.ability, watch.status()) == (None, None)
        rig.is_offering = True
        rig.clock.advance(LOOK_S)
        await until(lambda: watch.ability is not None)
        found = watch.status()
        assert found is not None
        assert (found["engine"], found["troubles"]) == ("podman 4.3.1", ())


async def test_without_the_driver_the_owner_is_told_what_to_install() -> None:
    rig = Rig()
    async with rig.watching(None):
        await until(lambda: rig.said)
    assert "sparewatt[leases]" in rig.said[0]


async def test_leases_that_got_no_network_get_it_once_the_table_holds() -> None:
    rig = Rig()
    runtime = rig.runtime(replace(ABLE, egress=False))
    async with rig.watching(runtime) as watch:
        await until(lambda: watch.ability is not None)
        runtime.can = ABLE
        rig.clock.advance(AGAIN_S)
        await turns()
        assert watch.ability is not None
        assert not watch.ability.egress
        rig.clock.advance(NETWORK_AGAIN_S)
        await until(lambda: watch.ability == ABLE)
