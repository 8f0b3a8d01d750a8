"""The entry point: the table of commands, and the one place that turns errors into messages and exit codes.

A command raises its errors and does not print them. The module of a command is imported when the command is called, and
heavy parts (tables, the gateway, the node) by the functions that use them.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from sparewatt import __version__
from sparewatt.cli.errors import ExitCode, describe, exit_code_of, redact
from sparewatt.cli.groups import LazyCommand, LazyGroup
from sparewatt.core.errors import SparewattError

PROGRAM = "sparewatt"

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""A full disk, a quota, a limit, a lost terminal: none is a bug of this program."""

SECTIONS = {
    "Use a network": {
        "chat": LazyCommand("sparewatt.cli.chat:chat", "Talk to a model, or ask it one thing."),
        "models": LazyCommand("sparewatt.cli.models:models", "List what is served, with prices."),
        "match": LazyCommand("sparewatt.cli.match:match", "Show which node would take a job, and why."),
        "nodes": LazyCommand("sparewatt.cli.nodes:nodes", "List the machines, claimed and measured."),
        "lease": LazyCommand("sparewatt.cli.leases.leases:lease", "Rent machines: quote, order, follow, close."),
        "market": LazyCommand("sparewatt.cli.market:market", "Show orders, leases and providers on the chain."),
        "bids": LazyCommand("sparewatt.cli.bids:bids", "Watch who bids on an order, and who wins."),
        "top": LazyCommand("sparewatt.cli.top.top:top", "Watch what the network does right now."),
    },
    "Your account": {
        "signup": LazyCommand("sparewatt.cli.accounts.login:signup", "Make an account and log in."),
        "login": LazyCommand("sparewatt.cli.accounts.login:login", "Log in on this machine."),
        "logout": LazyCommand("sparewatt.cli.accounts.login:logout", "Log out and revoke this machine's key."),
        "use": LazyCommand("sparewatt.cli.accounts.use:use", "Choose the account that commands act as."),
        "whoami": LazyCommand("sparewatt.cli.accounts.login:whoami", "Show who you are here, and what you may do."),
        "dashboard": LazyCommand("sparewatt.cli.accounts.dashboard:dashboard", "Open the network's page as you."),
        "keys": LazyCommand("sparewatt.cli.accounts.keys:keys", "Create, list, limit and revoke API keys."),
        "password": LazyCommand("sparewatt.cli.accounts.login:password", "Change or reset your password."),
        "credits": LazyCommand("sparewatt.cli.money.credits:credits_", "Show what you have to spend, and get more."),
        "usage": LazyCommand("sparewatt.cli.money.usage:usage", "Show what you used and what it cost."),
        "providers": LazyCommand("sparewatt.cli.providers:providers", "Offer your nodes for leases, with a bond."),
        "payouts": LazyCommand("sparewatt.cli.money.payouts:payouts", "Show what you were paid, and check it."),
        "rewards": LazyCommand("sparewatt.cli.money.rewards:rewards", "Show what eras paid, and why."),
        "trust": LazyCommand("sparewatt.cli.trust:trust", "Replay verdicts on nodes and eras of rewards."),
    },
    "Run a network": {
        "up": LazyCommand("sparewatt.cli.up:up", "Start a whole network on this machine."),
        "node": LazyCommand("sparewatt.cli.node.node:node", "Lend this machine's GPU to a network."),
        "gateway": LazyCommand("sparewatt.cli.gateway:gateway", "Run the endpoint that clients call."),
        "backup": LazyCommand("sparewatt.cli.backup:backup", "Write all of a network into one file, while it runs."),
        "restore": LazyCommand("sparewatt.cli.backup:restore", "Make a network from its backup."),
        "accounts": LazyCommand("sparewatt.cli.accounts.accounts:accounts", "See and manage all accounts."),
        "treasury": LazyCommand("sparewatt.cli.money.credits:treasury", "Show or fund what serving free credits pays."),
        "ledger": LazyCommand("sparewatt.cli.money.ledger:ledger", "Check the books."),
        "chain": LazyCommand("sparewatt.cli.chain:chain", "Show and serve the network's chain."),
        "validator": LazyCommand("sparewatt.cli.validator:validator", "Run a validator of the lease market."),
    },
    "Study a network": {
        "bench": LazyCommand("sparewatt.cli.bench:bench", "Measure this program on this machine."),
        "simulate": LazyCommand("sparewatt.cli.simulate:simulate", "Try a network of simulated machines."),
    },
    "This program": {
        "completion": LazyCommand("sparewatt.cli.completion:completion", "Print a shell completion script."),
    },
}


class RootGroup(LazyGroup):
    """The root command. Its `main` always ends the process with one of `ExitCode`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *rest: Any,  # noqa: ARG002 - click's signature
        **extra: Any,  # noqa: ARG002 - click's signature
    ) -> NoReturn:
        _replace_unencodable()
        words = list(sys.argv[1:] if args is None else args)
        code = self._run(words, prog_name=prog_name or PROGRAM)
        sys.exit(_flush_stdout(code, as_json=asks_for_json(words)))

    def _run(self, words: list[str], *, prog_name: str) -> int:
        as_json = asks_for_json(words)
        try:
            result = super().main(words, prog_name, standalone_mode=False)
        except (KeyboardInterrupt, click.Abort):
            return ExitCode.INTERRUPTED
        except click.ClickException as error:
            return _report_usage(error, as_json=as_json)
        except SparewattError as error:
            _report(describe(error), as_json=as_json)
            return exit_code_of(error)
        except ModuleNotFoundError as error:
            return _report_missing(error, words=words, as_json=as_json)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            return _report_unwritable(error, as_json=as_json)
        return result if isinstance(result, int) else ExitCode.OK


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among the options. click cannot tell if the command line has an error."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _report(error: Mapping[str, object], *, as_json: bool, usage: str = "") -> None:
    if as_json:
        click.echo(json.dumps({"error": error}, indent=2, ensure_ascii=False), err=True)
        return
    has_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    label = click.style("error:", fg="red", bold=True) if has_colour else "error:"
    click.echo(f"{label} {error['message']}", err=True)
    for line in (error.get("next_step"), usage):
        if line:
            click.echo(line, err=True)


def _report_usage(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    usage = f"{ctx.get_usage()}\nTry '{ctx.command_path} --help'." if ctx else ""
    message = redact(error.format_message())
    described = {"message": message, "type": "usage_error", "param": None, "code": "usage"}
    _report(described, as_json=as_json, usage=usage)
    return error.exit_code


def _report_missing(error: ModuleNotFoundError, *, words: Sequence[str], as_json: bool) -> int:
    """An optional dependency is not installed. A missing module of this program itself is a bug, and raised."""
    if (error.name or PROGRAM).split(".")[0] == PROGRAM:
        raise error
    extra = words[0] if words[0] in SECTIONS["Run a network"] else "up"
    described = {
        "message": f"'{PROGRAM} {words[0]}' needs the package {error.name!r}, which is not installed.",
        "type": "installation_error",
        "param": None,
        "code": "missing_package",
        "next_step": f"Install it with: pip install '{PROGRAM}[{extra}]'",
    }
    _report(described, as_json=as_json)
    return ExitCode.FAILURE


def _replace_unencodable() -> None:
    """An ASCII terminal shows `?` for a symbol, instead of an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush_stdout(code: int, *, as_json: bool) -> int:
    """Flush what is buffered. A closed pipe (`| head`) is not reported, a full disk is."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return ExitCode.FAILURE
    except OSError as error:
        return _report_unwritable(error, as_json=as_json)
    return code


def _silence_stdout() -> None:
    """Redirect stdout to nowhere, since the interpreter flushes it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_unwritable(error: OSError, *, as_json: bool) -> int:
    _silence_stdout()
    message = f"The output cannot be written: {error.strerror or type(error).__name__}."
    described = {"message": message, "type": "output_error", "param": None, "code": "output_error"}
    with contextlib.suppress(OSError):  # stderr may be on the same disk
        _report(described, as_json=as_json)
    return ExitCode.FAILURE


@click.group(
    PROGRAM,
    cls=RootGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name=PROGRAM)
def cli() -> None:
    """Spare GPUs, anywhere, as one dependable cloud.

    \b
    Example:
      sparewatt up                          start a network on this machine
      sparewatt models                      see what it serves
      sparewatt chat MODEL "Say hello"      ask a model

    Commands go to SPAREWATT_BASE_URL with SPAREWATT_API_KEY, else to the context of 'sparewatt use', else to where you
    logged in, else to the network last started on this machine.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 not allowed, 4 not found, 5 no node matches.
    """


def main() -> NoReturn:
    """Run the command line of this process."""
    cli.main()
