"""Values of secrets, from where other users of the machine do not see them: stdin, files, the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.protocol.contracts.sealed_secrets import SECRET_BYTES_MAX, named_secret

STDIN, FILE_MARK = "-", "@"


def secret_names(given: Sequence[str]) -> list[str]:
    """Of options `NAME`, `NAME=-` and `NAME=@FILE`. Raises CliError for a value in plain."""
    for option in given:
        name, mark, source = option.partition("=")
        if not name or (mark and source != STDIN and not source.startswith(FILE_MARK)):
            raise _wrong_use(
                f"The value of {name or 'a secret'} would be seen by everybody on this machine.",
                next_step=f"Write --secret {name}=- (from stdin), {name}=@FILE, or {name} (from the environment).",
            )
    if sum(option.endswith(f"={STDIN}") for option in given) > 1:
        raise _wrong_use("Only one secret can come from stdin.", next_step="Use NAME=@FILE for the others.")
    return list(dict.fromkeys(option.partition("=")[0] for option in given))


def read_values(given: Sequence[str], *, names: Sequence[str]) -> dict[str, str]:
    """The values of these names: as the options say, else from the environment if it has them. Raises CliError.

    A name that no option mentions and the environment lacks is left out: it can be sent later.
    """
    sources = {option.partition("=")[0]: option.partition("=")[2] for option in given}
    values = {}
    for name in dict.fromkeys([*names, *sources]):
        value = _read(name, sources.get(name, ""), os.environ, is_wanted=name in sources)
        if value is not None:
            values[name] = value
    return values


def _read(name: str, source: str, environ: Mapping[str, str], *, is_wanted: bool) -> str | None:
    if source == STDIN:
        return _checked(name, sys.stdin.buffer.read(SECRET_BYTES_MAX + 2))
    if source.startswith(FILE_MARK):
        path = Path(source.removeprefix(FILE_MARK))
        try:
            with path.open("rb") as file:
                return _checked(name, file.read(SECRET_BYTES_MAX + 2))
        except OSError as error:
            raise _wrong_use(f"The file of {name} cannot be read: {error.strerror}.") from None
    value = environ.get(name)
    if value is None and is_wanted:
        raise _wrong_use(
            f"{name} is not in the environment.", next_step=f"Export it, or write --secret {name}=- or {name}=@FILE."
        )
    return None if value is None else _checked(name, value.encode("utf-8", "surrogateescape"))


def _checked(name: str, data: bytes) -> str:
    """As text, without the line's end. Raises CliError, which never shows it."""
    try:
        value = data.decode()
    except UnicodeDecodeError:
        raise _wrong_use(f"The value of {name} is no text in UTF-8.") from None
    value = value.removesuffix("\n").removesuffix("\r")
    if not value or "\0" in value:
        raise _wrong_use(f"The value of {name} is empty, or has a NUL in it.")
    if len(named_secret(name, value)) > SECRET_BYTES_MAX:
        raise _wrong_use(f"A secret has at most {SECRET_BYTES_MAX // 1024} KiB; {name} has more.")
    return value


def _wrong_use(message: str, *, next_step: str = "") -> CliError:
    return CliError(message, next_step=next_step, exit_code=ExitCode.USAGE)
