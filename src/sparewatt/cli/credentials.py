"""The logins of this machine: `sparewatt login` saves one API key per network, in a file that only its owner can read.

Also how the CLI reads and writes its small JSON files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from sparewatt.cli.errors import CliError
from sparewatt.machine.data_dir import write_private

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(min_length=1)]

_LOGINS_MAX = 20
"""Networks that one person is logged in to; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Login:
    """An API key that was made for this machine, and its account."""

    base_url: Text
    api_key: Text = field(repr=False)
    key_id: Text
    account_id: Text
    email: Text


def credentials_file(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    config = environ.get("XDG_CONFIG_HOME")
    folder = Path(config) if config else Path.home() / ".config"
    return folder / "sparewatt" / "credentials.json"


def read_logins(environ: Mapping[str, str] | None = None) -> list[Login]:
    """The login that was used last comes first."""
    saved = read_json_file(credentials_file(environ), dict[str, list[Login]], next_step="Delete it and log in again.")
    return saved.get("logins", []) if saved else []


def save_login(login: Login) -> None:
    """Commands use this login from now on."""
    others = [known for known in _readable_logins() if known.base_url != login.base_url]
    write_json_file(credentials_file(), {"logins": [login, *others][:_LOGINS_MAX]})


def forget_login(base_url: str) -> None:
    logins = [login for login in _readable_logins() if login.base_url != base_url]
    write_json_file(credentials_file(), {"logins": logins})


def _readable_logins() -> list[Login]:
    """None of a damaged file, which is replaced: its logins are lost either way."""
    try:
        return read_logins()
    except CliError:
        return []


def read_json_file(path: Path, shape: type[T], *, next_step: str) -> T | None:
    """None if there is no such file. Raises CliError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise damaged_file(path, next_step=next_step) from None


def write_json_file(path: Path, value: object) -> None:
    """Replace the file in one step, with mode 0600. Raises CliError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, msgspec.json.format(msgspec.json.encode(value), indent=2))
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}.") from None


def damaged_file(path: Path, *, next_step: str) -> CliError:
    return CliError(f"{path} is damaged.", next_step=next_step)
