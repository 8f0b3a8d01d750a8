"""Proves in the background what this machine can promise to leases, and tells the owner what is missing, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.node.leases.runtime.loading import NO_DRIVER
from sparewatt.node.leases.runtime.model import RuntimeAbility
from sparewatt.node.leases.runtime.runtime import LeaseRuntime

LOOK_S = 2.0
"""How soon it is tried after the owner offers leases."""
AGAIN_S = 60.0
"""An engine that is missing or unable is tried again so often: the owner may be installing one."""
NETWORK_AGAIN_S = 600.0
"""One whose leases got no network: another firewall may have been reloaded just when it was tried."""


@dataclass(slots=True, kw_only=True)
class RuntimeWatch:
    runtime: LeaseRuntime | None
    is_offering: Callable[[], bool]
    clock: Clock
    notify: Callable[[str], None]
    on_tried: Callable[[], None] = lambda: None
    """Called when it is known what containers can do here: the node's offer follows from it."""
    ability: RuntimeAbility | None = field(init=False, default=None)
    """None until it was tried: nothing is promised before."""
    _told: str = field(init=False, default="")

    async def run(self) -> None:
        while not self._is_able:
            if not self.is_offering():
                await self._sleep(LOOK_S)
                continue
            is_again = self.ability is not None
            self.ability = NO_DRIVER if self.runtime is None else await self.runtime.ability(again=is_again)
            self._tell(self.ability)
            self.on_tried()
            if not self._is_able:
                await self._sleep(NETWORK_AGAIN_S if self.ability.limits else AGAIN_S)

    @property
    def _is_able(self) -> bool:
        return self.ability is not None and self.ability.limits and self.ability.egress

    def status(self) -> dict[str, Any] | None:
        """Ready for JSON."""
        found: dict[str, Any] | None = msgspec.to_builtins(self.ability)
        return found

    def _tell(self, found: RuntimeAbility) -> None:
        text = " ".join(f"Leases: {each.what}. {each.remedy}" for each in found.troubles)
        text = text or f"Leases run in containers of {found.engine}."
        if text != self._told:
            self._told = text
            self.notify(text)

    async def _sleep(self, seconds: float) -> None:
        await sleep_until(self.clock, self.clock.now_s() + seconds)
