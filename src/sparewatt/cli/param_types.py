"""Parameter types of the command line, in click's sense: finite numbers, durations like `30m`, times, addresses."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

import click

_DURATION = re.compile(r"(\d{1,6})([smhdwy])")
_CLOCK = re.compile(r"\d{1,2}:\d{2}")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


class FiniteRange(click.FloatRange):
    """A range of floats without nan, which click accepts as neither below nor above a bound, and without inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        """For help texts; click shows a range without bounds as `x<=None`."""
        return "" if self.min is None is self.max else super()._describe_range()


NUMBER = FiniteRange()
"""Any number, for options that are settings: those are checked together with the settings file."""
NUMBER.name = "float"


class DurationParam(click.ParamType[int]):
    """A duration longer than zero, in seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        parts = _DURATION.fullmatch(str(value).strip().lower())
        if parts is None or int(parts[1]) == 0:
            self.fail(f"{value!r} is no duration. Write it like 30m, 12h, 30d or 1y.", param, ctx)
        return int(parts[1]) * _UNIT_S[parts[2]]


DURATION = DurationParam()


class MomentParam(click.ParamType[float]):
    """A time to come, in Unix seconds: a time of day, a date with one, or a duration from now."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text, now = str(value).strip(), dt.datetime.now().astimezone()
        if _DURATION.fullmatch(text.lower()) is not None:
            return now.timestamp() + DURATION.convert(text, param, ctx)
        try:
            moment = _time_of_day(text, now) or dt.datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError, OSError):
            self.fail(f"{text[:40]!r} is no time. Write it like 18:30, 2026-11-20T08:00 or 3h.", param, ctx)
        if moment <= now:
            self.fail(f"{text[:40]!r} has passed.", param, ctx)
        return moment.timestamp()


def _time_of_day(text: str, now: dt.datetime) -> dt.datetime | None:
    """The next one; None for what is none. Raises ValueError."""
    if _CLOCK.fullmatch(text) is None:
        return None
    hours, minutes = map(int, text.split(":"))
    today = now.replace(hour=hours, minute=minutes, second=0, microsecond=0)
    return today if today > now else today + dt.timedelta(days=1)


MOMENT = MomentParam()


class AddressParam(click.ParamType[str]):
    """An address on the chain. It is checked here, so that a slip is told as what it is."""

    name = "ADDRESS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _ADDRESS.fullmatch(str(value)):
            self.fail(f"{str(value)[:60]!r} is not an address: 0x and 40 hex digits.", param, ctx)
        return str(value)


ADDRESS = AddressParam()
