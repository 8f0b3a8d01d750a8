"""No option takes a number or an address that is none."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import click
import pytest

from sparewatt.cli.main import cli
from sparewatt.cli.param_types import ADDRESS, MOMENT, NUMBER, FiniteRange


def options_of(command: click.Command, *, name: str) -> Iterator[tuple[str, click.Parameter]]:
    for param in command.params:
        yield f"{name} {param.name}", param
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            if found is not None:
                yield from options_of(found, name=f"{name} {word}")


def test_every_option_that_takes_a_float_takes_finite_ones_only() -> None:
    plain = [
        name
        for name, param in options_of(cli, name="sparewatt")
        if isinstance(param.type, (click.types.FloatParamType, click.FloatRange))
        and not isinstance(param.type, FiniteRange)
    ]
    assert plain == []


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "NaN", "1e999", "x"])
@pytest.mark.parametrize("kind", [NUMBER, FiniteRange(0, 5)])
def test_what_is_no_number_is_refused(kind: FiniteRange, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_a_number_is_taken() -> None:
    assert NUMBER.convert("-1.5", None, None) == -1.5
    assert FiniteRange(0, 5).convert("5", None, None) == 5.0


def test_a_number_without_bounds_shows_none_in_help() -> None:
    @click.command()
    @click.option("--any", type=NUMBER, help="Any number.")
    @click.option("--share", type=FiniteRange(0, 1), help="A share.")
    def command() -> None: ...

    text = command.get_help(click.Context(command))
    assert "None" not in text
    assert "0<=x<=1" in text


@pytest.mark.parametrize("text", ["0x" + "aB" * 20, "0x" + "00" * 20])
def test_an_address_stays_as_it_was_written(text: str) -> None:
    assert ADDRESS.convert(text, None, None) == text


@pytest.mark.parametrize("text", ["", "0x", "ab" * 20, "0x" + "ab" * 19, "0x" + "ab" * 21, "0x" + "zz" * 20, "0x12\n"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="40 hex digits"):
        ADDRESS.convert(text, None, None)


def test_a_time_of_day_is_the_next_one_and_a_duration_counts_from_now() -> None:
    now = dt.datetime.now().astimezone()
    for hours in (-1, 1):
        text = f"{now + dt.timedelta(hours=hours):%H:%M}"
        found = dt.datetime.fromtimestamp(MOMENT.convert(text, None, None)).astimezone()
        assert (found > now, f"{found:%H:%M}") == (True, text)
        assert found - now < dt.timedelta(hours=26)
    assert abs(MOMENT.convert("2h", None, None) - time.time() - 7_200) < 60


def test_a_date_with_a_time_is_taken_in_its_zone() -> None:
    assert MOMENT.convert("2100-01-01T00:00+00:00", None, None) == 4_102_444_800.0
    assert MOMENT.convert(MOMENT.convert("2100-01-01T00:00", None, None), None, None) > 4_000_000_000


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:61", "1999-01-01T00:00", "99999-01-01", "0h"])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        MOMENT.convert(text, None, None)
