"""The logins of this machine: `sparewatt login` saves an API key per account and network, in a file that only its owner
can read, with the context that `sparewatt use` chose.

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
    role: str = "user"
    """Of the account, when it logged in."""

    @property
    def place(self) -> tuple[str, str]:
        """An account has one key on this machine."""
        return self.base_url, self.account_id


class SavedLogins(msgspec.Struct):
    """The file: the login that was used last comes first."""

    logins: list[Login] = []
    chosen: str | None = None
    """The name of the context that commands use; None: the first that there is."""


def credentials_file(environ: Mapping[str, str] | None = None) -> Path:
    environ = os.environ if environ is None else environ
    config = environ.get("XDG_CONFIG_HOME")
    folder = Path(config) if config else Path.home() / ".config"
    return folder / "sparewatt" / "credentials.json"


def read_saved(environ: Mapping[str, str] | None = None) -> SavedLogins:
    saved = read_json_file(credentials_file(environ), SavedLogins, next_step="Delete it and log in again.")
    return saved or SavedLogins()


def read_logins(environ: Mapping[str, str] | None = None) -> list[Login]:
    """The login that was used last comes first."""
    return read_saved(environ).logins


def save_login(login: Login) -> None:
    """Commands use this login from now on. Other accounts' logins at the same network stay."""
    others = [known for known in _readable().logins if known.place != login.place]
    write_json_file(credentials_file(), SavedLogins([login, *others][:_LOGINS_MAX]))


def forget_login(login: Login) -> None:
    others = [known for known in _readable().logins if known.place != login.place]
    write_json_file(credentials_file(), SavedLogins(others))


def choose_context(name: str) -> None:
    """Commands use the context of this name until another is chosen, or until the next login."""
    write_json_file(credentials_file(), SavedLogins(_readable().logins, name))


def _readable() -> SavedLogins:
    """None of a damaged file, which is replaced: its logins are lost either way."""
    try:
        return read_saved()
    except CliError:
        return SavedLogins()


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
