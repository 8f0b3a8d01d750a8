"""What the command line can report, and the exit code of each kind of failure.

SparewattError (core)
└── CliError            a command cannot go on; carries its exit code and the next step
    └── ApiError        the network answered with an error object

Nothing is printed here; `main` does that, in one place.
"""

from __future__ import annotations

import re
from enum import IntEnum

from sparewatt.core.errors import SparewattError

_KEY = re.compile(r"sk-sw-(?![0-9a-f]{1,6}…)[\w-]+")
"""A key, but not the start of one as the network shows it (`sk-sw-4b31f0…`), which tells whose it is."""


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
    """A command cannot go on. `next_step` is a sentence that says what to do about it."""

    code = "cli_error"

    def __init__(self, message: str, *, next_step: str = "", exit_code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.exit_code = exit_code


class ApiError(CliError):
    """The network answered with an error; what it said is kept as it came."""

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
    told: dict[str, object] = {
        "message": redact(error.message),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    if isinstance(error, ApiError):
        told |= {"type": error.api_type, "code": error.api_code, "status": error.http_status}
    if isinstance(error, CliError) and error.next_step:
        told["next_step"] = error.next_step
    return told


def redact(text: str) -> str:
    """Keys never reach a screen or a log by way of an error."""
    return _KEY.sub("sk-sw-…", text)
