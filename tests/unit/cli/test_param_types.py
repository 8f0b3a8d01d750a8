"""No option takes a number or an address that is none."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from sparewatt.cli.main import cli
from sparewatt.cli.param_types import ADDRESS, NUMBER, FiniteRange


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
