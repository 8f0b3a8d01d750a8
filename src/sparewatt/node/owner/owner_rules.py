"""An owner's rules for a node besides its price: pauses, working hours, ceilings of power and temperature.

They are saved next to the key (`wishes.json`). `PauseMonitor` decides whether the node is paused now: it then finishes
its jobs and gets no new ones, and its reputation does not suffer. Decisions are pure: time and readings come in by
argument.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import write_private
from sparewatt.protocol.link.node_report import GpuReading

FILE = "wishes.json"
UNTIL_RESUMED_UNIX_S = 1e12
"""A pause without an end."""
CEILING_HOLD_S = 60.0
"""The least pause once a ceiling was exceeded."""
CEILING_BELOW_C = 8.0
CEILING_BELOW_SHARE = 0.9
"""Hysteresis: so far below a ceiling of temperature or power the node works again, so that it does not flap."""
DAY_MIN = 24 * 60
Minute = Annotated[int, Meta(ge=0, le=DAY_MIN)]
_INTERVAL = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)\Z")


class BadHours(ValueError):
    """The message has an example of valid hours."""


class DailyInterval(msgspec.Struct, frozen=True):
    """From one minute of the day to another; over midnight if the second is the earlier one."""

    from_min: Minute
    to_min: Minute

    def contains(self, minute: int) -> bool:
        if self.from_min <= self.to_min:
            return self.from_min <= minute < self.to_min
        return minute >= self.from_min or minute < self.to_min

    def __str__(self) -> str:
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (self.from_min, self.to_min))


class WorkingHours(msgspec.Struct, frozen=True):
    spans: Annotated[tuple[DailyInterval, ...], Meta(min_length=1, max_length=16)]
    zone: Annotated[str, Meta(max_length=64)] | None = None
    """For example `Europe/Berlin`; None is the machine's own, and so is a zone that it does not know any more."""

    def contains(self, unix_s: float) -> bool:
        now = dt.datetime.fromtimestamp(unix_s, tz=_time_zone(self.zone))
        return any(span.contains(now.hour * 60 + now.minute) for span in self.spans)

    def __str__(self) -> str:
        spans = ", ".join(map(str, self.spans))
        return f"{spans} ({self.zone})" if self.zone else spans


def parse_hours(spans: tuple[str, ...], zone: str | None) -> WorkingHours:
    """Raises BadHours."""
    if zone is not None and _time_zone(zone) is None:
        raise BadHours(
            f"There is no time zone {zone[:60]!r} on this machine. Write it like Europe/Berlin, or leave it out "
            "for the machine's own; on Windows zones need: pip install tzdata."
        )
    return WorkingHours(tuple(_parse_interval(text) for text in spans), zone)


def _parse_interval(text: str) -> DailyInterval:
    found = _INTERVAL.match(text.replace(" ", ""))
    if found is None:
        raise BadHours(f"{text[:40]!r} is no span of hours. Write it like 22:00-07:00.")
    from_hour, from_min, to_hour, to_min = (int(number) for number in found.groups())
    interval = DailyInterval(from_hour * 60 + from_min, to_hour * 60 + to_min)
    if interval.from_min == interval.to_min or max(interval.from_min, interval.to_min) > DAY_MIN:
        raise BadHours(f"{text[:40]!r} is no span of hours: it has no length, or goes beyond 24:00.")
    return interval


def _time_zone(name: str | None) -> dt.tzinfo | None:
    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


class OwnerRules(msgspec.Struct, frozen=True, omit_defaults=True):
    paused_until_unix_s: Annotated[float, Meta(ge=0, le=UNTIL_RESUMED_UNIX_S)] = 0.0
    """0: not paused."""
    hours: WorkingHours | None = None
    """None: at all hours."""
    watts_max: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    temperature_max_c: Annotated[float, Meta(gt=0, le=150)] | None = None

    @property
    def pause_end_unix_s(self) -> float | None:
        """None if the owner's pause has no end."""
        return None if self.paused_until_unix_s >= UNTIL_RESUMED_UNIX_S else self.paused_until_unix_s


def read_owner_rules(data_dir: Path) -> OwnerRules:
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=OwnerRules)
    except FileNotFoundError:
        return OwnerRules()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"{path} cannot be read ({error}). Remove it, and set pause and schedule again.") from None


def write_owner_rules(data_dir: Path, rules: OwnerRules) -> None:
    write_private(data_dir / FILE, msgspec.json.encode(rules))


class HysteresisCeiling:
    """One figure that must stay below a limit."""

    def __init__(self) -> None:
        self._until_s = -math.inf

    def is_exceeded(self, value: float | None, *, limit: float | None, back: float, now_s: float) -> bool:
        """`back`: where the node may work again. An unknown figure exceeds nothing."""
        if limit is None:
            self._until_s = -math.inf
        elif value is not None and (value >= limit or (now_s < self._until_s and value > back)):
            self._until_s = now_s + CEILING_HOLD_S
        return now_s < self._until_s


class PauseMonitor:
    def __init__(self) -> None:
        self._heat = HysteresisCeiling()
        self._power = HysteresisCeiling()

    def reason(
        self, rules: OwnerRules, *, readings: Sequence[GpuReading], watts: float | None, unix_s: float, now_s: float
    ) -> str | None:
        """Why the node is paused, in words; None if it is not."""
        hottest_c = max((each.temperature_c for each in readings if each.temperature_c is not None), default=None)
        max_c, max_watts = rules.temperature_max_c, rules.watts_max
        back_c, back_watts = (max_c or 0.0) - CEILING_BELOW_C, (max_watts or 0.0) * CEILING_BELOW_SHARE
        is_hot = self._heat.is_exceeded(hottest_c, limit=max_c, back=back_c, now_s=now_s)
        is_over_power = self._power.is_exceeded(watts, limit=max_watts, back=back_watts, now_s=now_s)
        if unix_s < rules.paused_until_unix_s:
            return "its owner paused it"
        if rules.hours is not None and not rules.hours.contains(unix_s):
            return f"it works only {rules.hours}"[:100]
        if is_hot:
            return f"it is too hot (its owner's ceiling is {max_c:g} °C)"
        if is_over_power:
            return f"it draws too much (its owner's ceiling is {max_watts:g} W)"
        return None
