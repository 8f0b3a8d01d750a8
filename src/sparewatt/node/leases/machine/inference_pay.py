"""What this node's inference earned per hour of serving in the last day, by its own prices: to weigh leases against.

It is the agent's own count, of what it delivered at what it asks, before any fee; the network's books are what is paid
('sparewatt node earnings'). Time in which a lease has the machine, or the node is paused, is no time of serving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import StartupError
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import write_private

_log = Logger("sparewatt.node")
FILE = "inference_pay.json"
HOUR_S = 3_600
HOURS_KEPT = 24
KNOWN_AFTER_S = 600.0
"""Less time of serving says nothing."""
TICK_S, SAVE_S = 10.0, 60.0
NANO_PER_MICRO = 1_000
TOKENS_PER_PRICE = 1_000_000

TokenPrices = tuple[int, int]
"""nUSD per million tokens, read and written."""


class ServedHour(msgspec.Struct):
    earned_nano: Annotated[float, Meta(ge=0)] = 0.0
    served_s: Annotated[float, Meta(ge=0)] = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class InferencePay:
    data_dir: Path
    clock: Clock
    prices_of: Callable[[str], TokenPrices | None]
    """Of a model; None if it is not here any more."""
    is_serving: Callable[[], bool]
    _hours: dict[int, ServedHour] = field(init=False)
    """By the number of the hour."""

    def __post_init__(self) -> None:
        self._hours = _read(self.data_dir / FILE)

    def note_delivered(self, model: str, prompt_tokens: int, completion_tokens: int) -> None:
        prices = self.prices_of(model)
        if prices is not None:
            earned = prompt_tokens * prices[0] + completion_tokens * prices[1]
            self._hour().earned_nano += earned / TOKENS_PER_PRICE

    async def run(self) -> None:
        """A minute of it may be lost when the agent is killed."""
        saved_s = before_s = self.clock.now_s()
        while True:
            await sleep_until(self.clock, before_s + TICK_S)
            now_s = self.clock.now_s()
            if self.is_serving():
                self._hour().served_s += min(now_s - before_s, 2 * TICK_S)  # a machine that slept served nobody
            before_s = now_s
            if now_s - saved_s >= SAVE_S:
                saved_s = now_s
                self.save()

    def save(self) -> None:
        try:
            write_private(self.data_dir / FILE, msgspec.json.encode(self._hours))
        except (OSError, StartupError) as error:
            _log.warning("inference_pay_not_saved", why=type(error).__name__)

    def hourly_uusd(self) -> int | None:
        """None: it is not known yet."""
        served_s, earned_nano = self._sums()
        if served_s < KNOWN_AFTER_S:
            return None
        return round(earned_nano * HOUR_S / served_s / NANO_PER_MICRO)

    def status(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"hourly_uusd": self.hourly_uusd(), "served_s": round(self._sums()[0])}

    def _sums(self) -> tuple[float, float]:
        self._forget_old()
        hours = self._hours.values()
        return sum(hour.served_s for hour in hours), sum(hour.earned_nano for hour in hours)

    def _hour(self) -> ServedHour:
        self._forget_old()
        return self._hours.setdefault(int(self.clock.unix_s() // HOUR_S), ServedHour())

    def _forget_old(self) -> None:
        now = int(self.clock.unix_s() // HOUR_S)
        self._hours = {at: hour for at, hour in self._hours.items() if now - HOURS_KEPT < at <= now}


def _read(path: Path) -> dict[int, ServedHour]:
    """Of a file that cannot be read nothing is known: it is written anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[int, ServedHour])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
