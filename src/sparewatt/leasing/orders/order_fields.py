"""An order's fields, from a file, from flags or from the API's body: one parser. Pure; errors name the field.

It knows the vocabulary and its bounds. What the chain can hold of the policy is for `terms.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, DecimalException
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import UNSET

from sparewatt.core.errors import InvalidAmount, InvalidField, UnknownField
from sparewatt.core.money import parse_usd
from sparewatt.policy.fields import field_named
from sparewatt.policy.formatter import to_object
from sparewatt.policy.model import ANY, Policy, Range
from sparewatt.policy.parser import read_standing
from sparewatt.protocol.contracts.lease_content import (
    ARGUMENTS_MAX,
    ENV_MAX,
    IMAGE_CHARS_MAX,
    PORTS_MAX,
    SECRETS_MAX,
    Argument,
    ImageName,
    LeaseContent,
    Port,
    VariableName,
    VariableValue,
)
from sparewatt.protocol.contracts.message_ranges import DURATION_S_MIN

COUNT_MAX = 16
"""Leases of one order: an account may have 20 requests under way on the chain."""
DURATION_S_MAX = 366 * 86_400
GPUS_MAX = 1_024
CPUS_MAX = 4_096
GB_MAX = 1_000_000
NAME_CHARS_MAX = 63
NUMBER_CHARS_MAX = 40
DURATION_DEFAULT_S = 3_600
CPUS_DEFAULT, MEMORY_GB_DEFAULT, DISK_GB_DEFAULT = 1, 2, 10
BYTES_PER_GB, BYTES_PER_MIB = 10**9, 2**20
NANO_PER_MICRO = 1_000

FIELDS: Final = (
    *("name", "image", "command", "env", "secrets", "ports", "disk_gb", "resources", "duration", "count", "near"),
    *("policy", "max_spend", "egress", "gateway"),
)
RESOURCES: Final = ("gpus", "cpus", "memory_gb")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(weeks?|w|days?|d|hours?|h|min|m|sec|s)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBER_END = 10**NUMBER_CHARS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOrder:
    """What is ordered, checked. Sizes are in the units of the specification."""

    name: str
    content: LeaseContent
    gpus: int
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    has_egress: bool
    duration_s: int
    count: int
    policy: Policy
    """With the number of GPUs and the place to be near to."""
    max_spend_uusd: int | None
    """For all leases together."""

    def asked_hash(self) -> str:
        """Tells whether two requests ask for the same."""
        policy = to_object(self.policy)
        rest = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in {"content", "policy"}}
        text = json.dumps([rest, policy, msgspec.to_builtins(self.content)], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_order(fields: object) -> LeaseOrder:
    """Raises BadRequest, with the field at fault."""
    given = _mapping(fields, "order")
    _refuse_unknown(given, FIELDS, within=None)
    resources = _mapping(given.get("resources") or {}, "resources")
    _refuse_unknown(resources, RESOURCES, within="resources")
    content = read_content_fields(given)
    policy, gpus = _policy(given, resources)
    return LeaseOrder(
        name=_name(given.get("name"), content.image),
        content=content,
        gpus=gpus,
        cpu_milli=_scaled(resources, "cpus", CPUS_DEFAULT, most=CPUS_MAX, per_unit=Decimal(1_000)),
        memory_mib=_mib(resources, "memory_gb", MEMORY_GB_DEFAULT),
        disk_mib=_mib(given, "disk_gb", DISK_GB_DEFAULT),
        has_egress=_egress(given.get("egress")),
        duration_s=read_duration(given.get("duration")),
        count=_whole(given.get("count"), "count", default=1, least=1, most=COUNT_MAX),
        policy=policy,
        max_spend_uusd=read_max_spend(given.get("max_spend")),
    )


def read_duration(value: object) -> int:
    """`90m`, `1h30m`, `7d`, or seconds. Raises InvalidField."""
    if value is None or value == "":
        return DURATION_DEFAULT_S
    seconds = _seconds(value)
    if seconds is None:
        raise InvalidField("'duration' is a time like 90m, 12h or 7d, or a number of seconds.", param="duration")
    if not DURATION_S_MIN <= seconds <= DURATION_S_MAX:
        raise InvalidField(
            f"'duration' is from {DURATION_S_MIN} seconds to {DURATION_S_MAX // 86_400} days.", param="duration"
        )
    return int(seconds)


def _seconds(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value).strip().lower()[:40]
    if re.fullmatch(r"\d+(\.0+)?", text):
        return Decimal(text)
    parts = _DURATION_PART.findall(text)
    if not parts or _DURATION_PART.sub("", text).strip():
        return None
    return sum((Decimal(number) * _SECONDS[unit[0]] for number, unit in parts), Decimal(0))


def read_content_fields(given: Mapping[str, Any]) -> LeaseContent:
    """Raises InvalidField."""
    command = _command(given.get("command"))
    env = read_env(given.get("env"))
    secrets = _list(given.get("secrets"), "secrets", most=SECRETS_MAX)
    ports = _list(given.get("ports"), "ports", most=PORTS_MAX)
    content = LeaseContent(
        image=_image(given.get("image")),
        command=tuple(
            _checked(each, Argument, "command", "has characters that no argument can have") for each in command
        ),
        env=env,
        secrets=tuple(_checked(each, VariableName, "secrets", "is no name of a variable") for each in secrets),
        ports=tuple(_checked(each, Port, "ports", "is no port: 1 to 65535") for each in ports),
        gateway=_gateway(given) or UNSET,
    )
    for at, names in (("secrets", content.secrets), ("ports", content.ports)):
        if len(set(names)) != len(names):
            raise InvalidField(f"'{at}' names one of them twice.", param=at)
    both = sorted(set(content.secrets) & set(content.env))
    if both:
        raise InvalidField(f"{both[0]!r} is in 'env' and in 'secrets': every bidder can read 'env'.", param="secrets")
    return content


def _image(value: object) -> Any:
    if value in (None, ""):
        raise InvalidField(
            "'image' is missing: the container image to run, e.g. docker.io/library/nginx:1.27.", param="image"
        )
    return _checked(
        value, ImageName, "image", f"is no image's name (at most {IMAGE_CHARS_MAX} letters, digits and ._:/@+-)"
    )


def _command(value: object) -> list[object]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise InvalidField(f"'command' cannot be split: {error}. Write it as a list.", param="command") from None
    return _list(value, "command", most=ARGUMENTS_MAX)


def read_env(value: object) -> dict[str, str]:
    """A mapping, or a list of NAME=value. Raises InvalidField."""
    if value is None or value == []:
        return {}
    if isinstance(value, list):
        pairs = [_pair(each) for each in _list(value, "env", most=ENV_MAX)]
        if len({name for name, _ in pairs}) != len(pairs):
            raise InvalidField("'env' names a variable twice.", param="env")
        value = dict(pairs)
    given = _mapping(value, "env")
    if len(given) > ENV_MAX:
        raise InvalidField(f"'env' has at most {ENV_MAX} variables.", param="env")
    return {
        _checked(name, VariableName, "env", "is no name of a variable"): _checked(
            _env_text(name, each), VariableValue, "env", "is no value of a variable (too long, or with a NUL)"
        )
        for name, each in given.items()
    }


def _pair(entry: object) -> tuple[str, str]:
    name, sign, value = str(entry).partition("=")
    if not sign or not isinstance(entry, str):
        raise InvalidField("'env' has an entry that is not NAME=value.", param="env")
    return name, value


def _env_text(name: object, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case None:
            return ""
        case _:
            raise InvalidField(f"'env': the value of {str(name)[:60]!r} must be text.", param="env")


def _policy(given: Mapping[str, Any], resources: Mapping[str, Any]) -> tuple[Policy, int]:
    """With the number of GPUs, which the resources or the policy say, and `near`, which either may say."""
    wanted = given.get("policy")
    policy = ANY if wanted in (None, "") else read_standing(wanted, at="policy")
    near = given.get("near")
    if near not in (None, ""):
        place = field_named("near", at="near").from_json(near, at="near")
        if policy.near not in (None, place):
            raise InvalidField("'near' and the policy's 'near' differ: say one of them.", param="near")
        policy = replace(policy, near=place)
    gpus = _gpus(resources, policy.gpu_count)
    return replace(policy, gpu_count=Range(low=gpus)), gpus


def _gpus(resources: Mapping[str, Any], by_policy: Range | None) -> int:
    if by_policy is not None and by_policy.high not in (by_policy.low, float("inf")):
        raise InvalidField("'gpu_count': an order takes a number of GPUs, e.g. gpu_count=2.", param="policy.gpu_count")
    count = None if by_policy is None else int(by_policy.low) + by_policy.low_open
    if resources.get("gpus") is None:
        return 1 if count is None else _whole(count, "policy.gpu_count", default=1, least=0, most=GPUS_MAX)
    gpus = _whole(resources["gpus"], "resources.gpus", default=1, least=0, most=GPUS_MAX)
    if count not in (None, gpus):
        raise InvalidField(
            "'resources.gpus' and the policy's 'gpu_count' differ: say one of them.", param="resources.gpus"
        )
    return gpus


def _egress(value: object) -> bool:
    if value in (None, "", "public"):
        return True
    if value == "none":
        return False
    raise InvalidField("'egress' is 'public' (public addresses) or 'none'.", param="egress")


def _gateway(given: Mapping[str, Any]) -> bool:
    """Only with egress: machines whose egress table holds say so by that, and without one there is no such port."""
    value = given.get("gateway")
    if value in (None, "", False):
        return False
    if value is not True:
        raise InvalidField("'gateway' is true or false.", param="gateway")
    if not _egress(given.get("egress")):
        raise InvalidField("'gateway' needs 'egress: public': leave 'egress' out.", param="gateway")
    return True


def _name(value: object, image: str) -> str:
    if value in (None, ""):
        path = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        return re.sub(r"[^A-Za-z0-9._-]", "-", path)[:NAME_CHARS_MAX] or "lease"
    if not (isinstance(value, str) and len(value) <= NAME_CHARS_MAX and _NAME.fullmatch(value)):
        raise InvalidField(
            f"'name' has at most {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores.", param="name"
        )
    return value


def read_max_spend(value: object) -> int | None:
    """In µUSD; None if nothing is given. Raises InvalidField."""
    return None if value is None or value == "" else read_uusd(value, "max_spend")


def read_uusd(value: object, name: str) -> int:
    """An amount of dollars as µUSD. Raises InvalidField."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidField(f"'{name}' is an amount of dollars, e.g. 12.50.", param=name)
    try:
        nano = parse_usd(str(value)[:60])
    except InvalidAmount as error:
        raise InvalidField(f"'{name}': {error.message}", param=name) from None
    if nano % NANO_PER_MICRO or nano == 0:
        raise InvalidField(f"'{name}' is more than nothing, with at most six decimals.", param=name)
    return nano // NANO_PER_MICRO


def _mib(given: Mapping[str, Any], name: str, default: int) -> int:
    return _scaled(given, name, default, most=GB_MAX, per_unit=Decimal(BYTES_PER_GB) / BYTES_PER_MIB)


def _scaled(given: Mapping[str, Any], name: str, default: int, *, most: int, per_unit: Decimal) -> int:
    """A number of whole units of the specification, rounded up."""
    value = given.get(name)
    number = Decimal(default) if value is None else _decimal(value)
    if number is None or not 0 < number <= most:
        raise InvalidField(f"'{name}' is a number above 0, at most {most:,}.", param=name)
    return int((number * per_unit).to_integral_value(rounding="ROUND_CEILING"))


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int) and abs(value) >= _NUMBER_END:
        return None
    text = str(value)
    try:
        number = Decimal(text) if len(text) <= NUMBER_CHARS_MAX else None
    except DecimalException:
        return None
    if number is None:
        return None
    return number if number.is_finite() else None


def _whole(value: object, name: str, *, default: int, least: int, most: int) -> int:
    if value is None:
        return default
    number = _decimal(value)
    if number is None or number != number.to_integral_value() or not least <= number <= most:
        raise InvalidField(f"'{name}' is a whole number from {least} to {most:,}.", param=name)
    return int(number)


def _list(value: object, at: str, *, most: int) -> list[Any]:
    if value is None or value == "":
        return []
    if not isinstance(value, list | tuple):
        raise InvalidField(f"'{at}' is a list.", param=at)
    if len(value) > most:
        raise InvalidField(f"'{at}' has at most {most} entries.", param=at)
    return list(value)


def _mapping(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidField(f"'{at}' must be an object with named fields.", param=at)
    return value


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], *, within: str | None) -> None:
    for name in given:
        if name not in known:
            path = str(name)[:60] if within is None else f"{within}.{str(name)[:60]}"
            raise UnknownField(path, nearest=next(iter(get_close_matches(str(name), known)), None), param=path)


def _checked(value: object, kind: Any, at: str, why: str) -> Any:
    """By the type that bidders check the document with. Numbers stand for their text, where text is wanted."""
    plain = str(value) if kind is not Port and isinstance(value, int | float) and not isinstance(value, bool) else value
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        raise InvalidField(f"'{at}': {str(value)[:60]!r} {why}.", param=at) from None
