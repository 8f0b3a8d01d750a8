"""`sparewatt completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print a completion script for your shell.

    \b
    Example:
      bash:  eval "$(sparewatt completion bash)"
      zsh:   eval "$(sparewatt completion zsh)"
      fish:  sparewatt completion fish | source
    """
    script = _script(ctx.find_root().command, shell)
    if as_json:
        output.print_json({"shell": shell, "script": script})
    else:
        print(script)


def _script(program: click.Command, shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(f"There is no completion for {shell}.")
    return kind(program, {}, "sparewatt", "_SPAREWATT_COMPLETE").source()
