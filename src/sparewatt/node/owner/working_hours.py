"""Hours of the day in which a node may work, in a time zone. Pure: the time comes in by argument."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Annotated

import msgspec
from msgspec import Meta

_SPAN = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)\Z")
DAY_MIN = 24 * 60
Minute = Annotated[int, Meta(ge=0, le=DAY_MIN)]


class BadHours(ValueError):
    """The message says what to write instead."""


class DailyInterval(msgspec.Struct, frozen=True):
    """From a minute of the day to another; if that is the earlier one, over midnight."""

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
    """As in `Europe/Berlin`; None is the machine's own."""

    def contains(self, unix_s: float) -> bool:
        """A zone that this machine does not know any more counts as its own."""
        now = dt.datetime.fromtimestamp(unix_s, tz=_zone(self.zone))
        minute = now.hour * 60 + now.minute
        return any(span.contains(minute) for span in self.spans)

    def __str__(self) -> str:
        spans = ", ".join(map(str, self.spans))
        return f"{spans} ({self.zone})" if self.zone else spans


def parse_hours(spans: tuple[str, ...], zone: str | None) -> WorkingHours:
    """Raises BadHours."""
    if zone is not None and _zone(zone) is None:
        raise BadHours(
            f"There is no time zone {zone[:60]!r} on this machine. Write it like Europe/Berlin, or leave it out "
            "for the machine's own; on Windows zones need: pip install tzdata."
        )
    return WorkingHours(tuple(_parse_interval(text) for text in spans), zone)


def _parse_interval(text: str) -> DailyInterval:
    found = _SPAN.match(text.replace(" ", ""))
    if found is None:
        raise BadHours(f"{text[:40]!r} is no span of hours. Write it like 22:00-07:00.")
    numbers = [int(number) for number in found.groups()]
    span = DailyInterval(numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3])
    if span.from_min == span.to_min or max(span.from_min, span.to_min) > DAY_MIN:
        raise BadHours(f"{text[:40]!r} is no span of hours: it has no length, or goes beyond 24:00.")
    return span


def _zone(name: str | None) -> dt.tzinfo | None:
    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
