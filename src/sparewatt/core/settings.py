"""Settings of a process: one frozen dataclass, from flags, then environment, then file, then defaults.

The environment variable of field `port` in section `gateway` is SPAREWATT_GATEWAY_PORT; in the file (TOML) it is `port`
under `[gateway]`. An unknown name is an error: a typo must not be ignored.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sparewatt.core.errors import StartupError

_T = TypeVar("_T")
SECTIONS = ("chain", "gateway", "node", "up", "validator")
"""One file may hold the settings of all kinds of processes."""


def load_settings(
    shape: type[_T], *, section: str, flags: Mapping[str, Any], env: Mapping[str, str], file: Path | None = None
) -> _T:
    """Read and build `shape`, a frozen dataclass. A flag that is None was not given. Raises StartupError."""
    return build_settings(shape, given_settings(section=section, flags=flags, env=env, file=file), section=section)


def given_settings(
    *, section: str, flags: Mapping[str, Any], env: Mapping[str, str], file: Path | None = None
) -> dict[str, Any]:
    """What was set by file, environment or flags, without checking names and values."""
    return _from_file(file, section) | _from_env(env, section) | {k: v for k, v in flags.items() if v is not None}


def build_settings(shape: type[_T], values: Mapping[str, Any], *, section: str) -> _T:
    """Raises StartupError for a name or a value that `shape` does not allow."""
    known = {field.name for field in dataclasses.fields(shape)}  # type: ignore[arg-type]  # any dataclass
    unknown = sorted(set(values) - known)
    if unknown:
        raise StartupError(f"Unknown setting in [{section}]: {', '.join(unknown)}. Known: {', '.join(sorted(known))}.")
    try:
        return msgspec.convert(values, shape, strict=False, dec_hook=_read_path)
    except msgspec.ValidationError as error:
        raise StartupError(f"A setting in [{section}] is wrong: {error}.") from None


def _read_path(kind: type, value: Any) -> Any:
    """Path is the one type of setting that msgspec does not convert."""
    if kind is Path and isinstance(value, (str, Path)):
        return Path(value)
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _from_env(env: Mapping[str, str], section: str) -> dict[str, Any]:
    prefix = f"SPAREWATT_{section.upper()}_"
    return {name.removeprefix(prefix).lower(): text for name, text in env.items() if name.startswith(prefix)}


def _from_file(file: Path | None, section: str) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        tables = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"Cannot read the settings file {file}: {error}.") from None
    unknown = sorted(set(tables) - set(SECTIONS))
    if unknown:
        raise StartupError(f"Unknown table in {file}: {', '.join(unknown)}. Known: {', '.join(SECTIONS)}.")
    table = tables.get(section, {})
    if not isinstance(table, dict):
        raise StartupError(f"[{section}] in {file} must be a table.")
    return table
