"""Two processes of one gateway, here in one process."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.gateway.chores import chores_of
from sparewatt.gateway.services import Services
from sparewatt.testing.clocks import ManualClock


@dataclass(frozen=True, slots=True)
class Pair:
    first: Services
    second: Services

    async def exchange(self) -> None:
        """As it is done twice a second in the background."""
        for services in (self.first, self.second):
            [work] = [chore.work for chore in chores_of(services, None) if chore.name == "peers"]
            await work()


def clock_of(services: Services) -> ManualClock:
    assert isinstance(services.clock, ManualClock)
    return services.clock
