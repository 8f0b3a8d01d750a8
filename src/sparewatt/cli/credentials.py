"""What `sparewatt login` leaves on this machine: a key per network, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparewatt.cli.errors import CliError

_LOGINS_MAX = 20
"""Networks that one person is logged in to; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Login:
    """A key made for this machine, and whose it is."""

    base_url: str
    api_key: str = field(repr=False)
    key_id: str
    account_id: str
    email: str


def credentials_file(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    config = environ.get("XDG_CONFIG_HOME")
    folder = Path(config) if config else Path.home() / ".config"
    return folder / "sparewatt" / "credentials.json"


def read_logins(environ: Mapping[str, str] | None = None) -> list[Login]:
    """The one used last comes first."""
    path = credentials_file(environ)
    try:
        noted = json.loads(path.read_bytes())
        return [_login(entry) for entry in noted["logins"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError):
        raise CliError(f"{path} is damaged.", next_step="Delete it and log in again.") from None


def _login(entry: dict[str, Any]) -> Login:
    login = Login(**entry)
    if not all(isinstance(value, str) and value for value in asdict(login).values()):
        raise TypeError("a login is made of texts")
    return login


def save_login(login: Login) -> None:
    """From now on commands use this one."""
    _write([login, *(known for known in _known() if known.base_url != login.base_url)][:_LOGINS_MAX])


def forget_login(base_url: str) -> None:
    _write([login for login in _known() if login.base_url != base_url])


def _known() -> list[Login]:
    """A damaged file is written anew: what it held is lost either way."""
    try:
        return read_logins()
    except CliError:
        return []


def _write(logins: list[Login]) -> None:
    path = credentials_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"logins": [asdict(login) for login in logins]}, file, indent=2)
        fresh.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}.") from None
