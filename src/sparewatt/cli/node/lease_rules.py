"""The options of `sparewatt node leases offer` as changes of the owner's rules. Pure; the agent checks the machine.

What is named is added to the rules or takes the place of what was there for the same number of GPUs or duration: a
price for four GPUs leaves that of one alone, and a refused image stays refused until it is allowed by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
import msgspec

from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.param_types import DURATION

NANO_PER_MICRO = 1_000
MIB_PER_GB = 10**9 / 2**20
"""As order files count: a machine that lends 16 GB takes an order of 16 GB."""
PERCENT_MAX, PPM_PER_PERCENT = 100, 10_000
NONE = "none"
COMMANDS = ("free_command", "restore_command")
_T = TypeVar("_T")
Rules = dict[str, Any]


class PairParam(click.ParamType[tuple[int, int | None]]):
    """`KEY=NUMBER`, both read by a function of their own, which raises ValueError. `KEY=none`: nothing for it."""

    def __init__(self, name: str, example: str, key: Callable[[str], int], number: Callable[[str], int]) -> None:
        self.name, self._example, self._key, self._number = name, example, key, number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int | None]:
        key, _, number = str(value).partition("=")
        try:
            return self._key(key), None if number == NONE else self._number(number)
        except ValueError:
            self.fail(f"{str(value)[:60]!r} is not of the form {self.name}, as {self._example}.", param, ctx)


class UsdParam(click.ParamType[int]):
    """An amount of dollars above zero, in µUSD."""

    name = "USD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return _uusd(str(value))
        except ValueError:
            self.fail(f"{str(value)[:60]!r} is no price in dollars.", param, ctx)


def _uusd(usd: str) -> int:
    """Rounded up. Raises ValueError."""
    from sparewatt.core.errors import InvalidAmount
    from sparewatt.core.money import parse_usd

    try:
        uusd = -(-parse_usd(usd) // NANO_PER_MICRO)
    except InvalidAmount as error:
        raise ValueError(usd) from error
    if uusd < 1:
        raise ValueError(usd)
    return uusd


def _duration_s(text: str) -> int:
    try:
        return DURATION.convert(text, None, None)
    except click.UsageError:
        raise ValueError(text) from None


def _off_ppm(percent: str) -> int:
    number = float(percent.removesuffix("%"))
    if not 0 <= number < PERCENT_MAX:
        raise ValueError(percent)
    return round(number * PPM_PER_PERCENT)


PRICE = PairParam("GPUS=USD", "1=0.40", int, _uusd)
DISCOUNT = PairParam("DURATION=PERCENT", "7d=10", _duration_s, _off_ppm)


def changed_rules(rules: Rules, given: dict[str, Any]) -> Rules:
    """The rules with what was named, in the units of the market. Raises CliError."""
    changes: Rules = {
        "prices": _merged(rules, "prices", ("gpus", "hourly_uusd"), given["prices"]),
        "cpu_hourly_uusd": given["cpu_price"],
        "discounts": _merged(rules, "discounts", ("least_s", "off_ppm"), given["discounts"]),
        "longest_s": given["longest"],
        "refused_images": _refused(rules, "refused_images", add=given["images"], drop=given["allowed_images"]),
        "refused_tenants": _refused(
            rules, "refused_tenants", add=_lower(given["tenants"]), drop=_lower(given["allowed_tenants"])
        ),
        "tenant_broken_ppm": _given(given["tenant_broken_max"], lambda percent: round(percent * PPM_PER_PERCENT)),
        "gpus": given["gpus"],
        "cpu_milli": _given(given["cpus"], lambda cpus: round(cpus * 1_000)),
        "memory_mib": _given(given["memory_gb"], lambda gb: math.ceil(gb * MIB_PER_GB)),
        "disk_mib": _given(given["disk_gb"], lambda gb: math.ceil(gb * MIB_PER_GB)),
        "egress": given["egress"],
        "reclaim_s": given["reclaim"],
        "free_command": given["free_command"],
        "restore_command": given["restore_command"],
        "follow_pay": given["follow_pay"],
    }
    changed = rules | {name: value for name, value in changes.items() if value is not None}
    return {name: value for name, value in changed.items() if name not in COMMANDS or value != NONE}


def _merged(
    rules: Rules, name: str, fields: tuple[str, str], pairs: Iterable[tuple[int, int | None]]
) -> list[dict[str, int]] | None:
    """None if nothing was named."""
    key, value = fields
    keys = [pair[0] for pair in pairs]
    if not keys:
        return None
    if len(set(keys)) != len(keys):
        raise _senseless(f"two of the {name} are for the same number")
    found: dict[int, int | None] = {each[key]: each[value] for each in rules.get(name) or ()} | dict(pairs)
    return [{key: at, value: number} for at, number in sorted(found.items()) if number is not None]


def _refused(rules: Rules, name: str, *, add: Iterable[str], drop: Iterable[str]) -> list[str] | None:
    before = list(rules.get(name) or ())
    added, dropped = list(add), list(drop)
    for each in dropped:
        if each not in before:
            raise _senseless(f"{each!r} is not refused now")
    if not added and not dropped:
        return None
    return list(dict.fromkeys(each for each in (*before, *added) if each not in dropped))


def _lower(addresses: Iterable[str]) -> list[str]:
    return [each.lower() for each in addresses]


def _given(value: _T | None, convert: Callable[[_T], int]) -> int | None:
    return None if value is None else convert(value)


def checked_rules(rules: Rules) -> Any:
    """Raises CliError for what no machine could have."""
    from sparewatt.core.errors import InvalidField
    from sparewatt.node.leases.offer_rules import LeaseRules, check_commands, check_distinct

    try:
        checked = msgspec.convert(rules, LeaseRules)
        check_distinct(checked)
        check_commands(checked)
    except (msgspec.ValidationError, InvalidField) as error:
        raise _senseless(str(error)) from None
    return checked


def _senseless(why: str) -> CliError:
    return CliError(
        f"These rules make no sense: {why}.",
        next_step="See: sparewatt node leases offer --help",
        exit_code=ExitCode.USAGE,
    )
