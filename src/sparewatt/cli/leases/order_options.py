"""An order out of a file and of options, which go before the file. What fields mean is for the gateway's parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from sparewatt.cli.errors import ApiError, CliError, ExitCode
from sparewatt.cli.leases.secret_values import secret_names
from sparewatt.cli.param_types import NUMBER

R = TypeVar("R")

_POLICY_FLAGS = ("gpu", "region", "max_hourly", "only")
_OPTIONS = (
    click.option(
        "-f",
        "--file",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="An order file: ours in YAML or JSON, an Akash SDL, or a Spheron ICL.",
    ),
    click.option("--image", help="The container image."),
    click.option(
        "--serve",
        metavar="MODEL",
        help="Serve this model to the network as a node of yours: with the image that 'lease image MODEL' made here, "
        "or with --image.",
    ),
    click.option("--command", help="What to run, as one line.  [default: the image's own]"),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable. Every bidder can read it."),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME[=-|=@FILE]",
        help="A secret: its value is read from the environment, from stdin (NAME=-) or from a file, and sealed to the "
        "candidates after the match.",
    ),
    click.option("--port", "ports", multiple=True, type=int, help="A port to reach."),
    click.option("--gpus", type=int, help="Whole GPUs; 0 for a machine without.  [default: 1]"),
    click.option("--cpus", type=NUMBER, help="Processors.  [default: 1]"),
    click.option("--memory-gb", type=NUMBER, help="[default: 2]"),
    click.option("--disk-gb", type=NUMBER, help="[default: 10]"),
    click.option("--duration", help="E.g. 90m, 12h, 7d.  [default: 1h]"),
    click.option("--count", type=int, help="So many leases of this kind.  [default: 1]"),
    click.option("--near", help="A country or region to be near to."),
    click.option("--gpu", help="GPU models, e.g. rtx-4090,a100."),
    click.option("--region", help="Countries or groups of them, e.g. EU,US."),
    click.option(
        "--max-hourly",
        metavar="USD",
        help="The highest price per hour.  [default: 1.25 times the dearest offer that fits]",
    ),
    click.option("--only", help="Providers by their addresses, at most 8."),
    click.option("--policy", help="Further conditions, e.g. 'vram_gb>=24 uptime>=0.99'."),
    click.option("--max-spend", metavar="USD", help="For all leases together. No more is ever charged."),
    click.option("--egress", type=click.Choice(["public", "none"]), help="[default: public]"),
    click.option("--name", help="How you call it.  [default: from the image]"),
)
_PLAIN = ("image", "command", "disk_gb", "duration", "count", "near", "max_spend", "egress", "name")
_RESOURCES = ("gpus", "cpus", "memory_gb")


def order_options(command: Callable[..., R]) -> Callable[..., R]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(slots=True)
class OrderDraft:
    """The body of a request, and where it came from."""

    fields: dict[str, Any]
    path: Path | None = None
    text: str = ""
    notes: tuple[str, ...] = ()
    format: str = "order"

    def set_policy(self, name: str, value: str | list[str]) -> None:
        policy = self.fields.get("policy") or {}
        if isinstance(policy, str):
            words = value if isinstance(value, str) else f"[{','.join(value)}]"
            self.fields["policy"] = f"{policy} {name}={words}"
        else:
            self.fields["policy"] = {**policy, name: value}

    def add_port(self, port: int | None) -> None:
        """A port that is to be public is one to be reached."""
        listed = self.fields.get("ports") or []
        if port is not None and port not in listed:
            self.fields["ports"] = [*listed, port]

    def add_variable(self, name: str, value: str) -> None:
        """Unless the order has it."""
        listed = self.fields.get("env") or []
        names = listed if isinstance(listed, dict) else [str(entry).partition("=")[0] for entry in listed]
        if name not in names:
            self.fields["env"] = _merged_env(listed, [f"{name}={value}"])

    def locate(self, error: ApiError) -> ApiError | CliError:
        """A bad order is a wrong use of the command; of a file, with the line that it is about if that can be told."""
        if error.http_status != 400:
            return error
        error.exit_code = ExitCode.USAGE
        if self.path is None or not error.param:
            return error
        from sparewatt.core.errors import BadRequest
        from sparewatt.leasing.orders.order_file import error_line

        line = error_line(self.text, BadRequest(error.message, param=error.param.removeprefix("policy.")))
        place = f"{self.path}:{line}" if line else str(self.path)
        return CliError(f"{place}: {error.message}", exit_code=ExitCode.USAGE)


def read_draft(options: Mapping[str, Any]) -> OrderDraft:
    """Raises CliError."""
    path = options["file"]
    draft = OrderDraft({}) if path is None else _read_file(path)
    if path is None and options["image"] is None:
        raise CliError(
            "Say what to run: an order file with -f, or an image with --image.",
            next_step="'sparewatt lease create --help' shows an example.",
            exit_code=ExitCode.USAGE,
        )
    fields = draft.fields
    fields |= {name: options[name] for name in _PLAIN if options[name] is not None}
    if options["ports"]:
        fields["ports"] = list(options["ports"])
    if options["secrets"]:
        by_file = fields.get("secrets")
        fields["secrets"] = list(
            dict.fromkeys([*(by_file if isinstance(by_file, list) else ()), *secret_names(options["secrets"])])
        )
    if options["env"]:
        fields["env"] = _merged_env(fields.get("env"), options["env"])
    resources = {name: options[name] for name in _RESOURCES if options[name] is not None}
    if resources:
        fields["resources"] = {**(fields.get("resources") or {}), **resources}
    for name in _POLICY_FLAGS:
        if options[name] is not None:
            draft.set_policy(name, options[name] if name == "max_hourly" else options[name].split(","))
    if options["policy"]:
        _add_conditions(draft, options["policy"])
    return draft


def _merged_env(by_file: Any, by_options: Sequence[str]) -> list[Any]:
    """As a list of NAME=value; a variable of the options replaces the file's."""
    names = {entry.partition("=")[0] for entry in by_options}
    entries = (
        [f"{name}={_env_text(value)}" for name, value in by_file.items()] if isinstance(by_file, dict) else by_file
    )
    kept = [entry for entry in entries or [] if str(entry).partition("=")[0] not in names]
    return [*kept, *by_options]


def _env_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _add_conditions(draft: OrderDraft, line: str) -> None:
    """A line of conditions narrows what the file and the other options say."""
    policy = draft.fields.get("policy")
    if isinstance(policy, dict):
        from sparewatt.core.errors import BadRequest
        from sparewatt.policy.formatter import to_line
        from sparewatt.policy.parser import read_object

        try:
            policy = to_line(read_object(policy, at="policy").policy)
        except BadRequest as error:
            raise CliError(error.message, exit_code=ExitCode.USAGE) from None
    draft.fields["policy"] = f"{policy} {line}" if policy else line


def _read_file(path: Path) -> OrderDraft:
    from sparewatt.core.errors import BadRequest
    from sparewatt.leasing.orders.order_file import ORDER_DOCUMENT, error_line, read_order_file

    try:
        with path.open("rb") as file:
            data = file.read(4 * ORDER_DOCUMENT.chars_max + 1)
        text = data.decode()
        found = read_order_file(text)
    except OSError as error:
        raise _bad_file(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _bad_file(f"{path} is no text in UTF-8, or too large for an order.") from None
    except BadRequest as error:
        line = error_line(text, error)
        raise _bad_file(f"{path}{f':{line}' if line else ''}: {error.message}") from None
    return OrderDraft(found.fields, path, text, found.notes, found.format)


def _bad_file(message: str) -> CliError:
    return CliError(message, exit_code=ExitCode.USAGE)
