"""The errors of the command line, and the exit code of each.

SparewattError (core)
└── CliError            a command cannot go on; has an exit code and the next step
    ├── ApiError        the network answered with an error object
    └── NoReply         the network did not answer, or not to the end: what was asked may have been done

Nothing is printed here: `main` prints every error.
"""

from __future__ import annotations

import re
from enum import IntEnum

from sparewatt.core.errors import SparewattError

_KEY = re.compile(r"sk-sw-(?![0-9a-f]{1,6}…)[\w-]+")
"""An API key, but not the prefix that the network shows of one (`sk-sw-4b31f0…`)."""


class ExitCode(IntEnum):
    """Scripts may rely on these numbers."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    NO_MATCH = 5
    INTERRUPTED = 130


class CliError(SparewattError):
    """A command cannot go on. `next_step` says what the user can do."""

    code = "cli_error"

    def __init__(self, message: str, *, next_step: str = "", exit_code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.exit_code = exit_code


class ApiError(CliError):
    """The network answered with an error object."""

    def __init__(
        self,
        message: str,
        *,
        http_status: int,
        api_code: str,
        api_type: str | None = None,
        api_param: str | None = None,
        next_step: str = "",
        exit_code: ExitCode = ExitCode.FAILURE,
    ) -> None:
        super().__init__(message, next_step=next_step, exit_code=exit_code)
        self.http_status = http_status
        self.api_code = api_code
        self.api_type = api_type
        self.param = api_param


class NoReply(CliError):
    """No answer came, or only a part of one. What was asked may have been done all the same."""


def exit_code_for_status(*, status: int, code: str) -> ExitCode:
    """The exit code that an HTTP status and an error code stand for."""
    if status in {401, 403}:
        return ExitCode.AUTH
    if status == 404:
        return ExitCode.NOT_FOUND
    if code in {"no_eligible_node", "no_capacity", "queue_full", "low_priority_shed"}:
        return ExitCode.NO_MATCH
    return ExitCode.FAILURE


def exit_code_of(error: SparewattError) -> ExitCode:
    if isinstance(error, CliError):
        return error.exit_code
    return exit_code_for_status(status=error.status, code=error.code)


def describe(error: SparewattError) -> dict[str, object]:
    """The error as the object that `--json` prints."""
    described: dict[str, object] = {
        "message": redact(error.message),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ApiError):
        described |= {"type": error.api_type, "code": error.api_code, "status": error.http_status}
    if isinstance(error, CliError) and error.next_step:
        described["next_step"] = error.next_step
    return described


def redact(text: str) -> str:
    """Remove API keys, so that none is printed or logged with an error."""
    return _KEY.sub("sk-sw-…", text)
