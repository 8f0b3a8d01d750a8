"""`sparewatt completion`: the script with which a shell completes commands, options and names of models.

A shell waits for the completions at every press of TAB, so the request to the network is short and fails silently.
"""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option, resolve_network
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples

_TIMEOUT_S = 1.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
@examples(
    'bash:  eval "$(sparewatt completion bash)"',
    'zsh:   eval "$(sparewatt completion zsh)"',
    "fish:  sparewatt completion fish | source",
)
def completion(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print a completion script for your shell."""
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


def complete_model(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The served models whose names begin like this; none if the network does not answer."""
    try:
        return [name for name in _served_models(ctx) if name.startswith(incomplete)]
    except CliError:
        return []


def _served_models(ctx: click.Context) -> list[str]:
    from sparewatt.cli.client import ApiClient
    from sparewatt.protocol.api.models import ModelList

    given = {name: ctx.params.get(name) for name in ("base_url", "api_key", "as_name")}
    network = resolve_network(**given, insecure=bool(ctx.params.get("insecure")))
    reply = ApiClient(network).get("/models", timeout_s=_TIMEOUT_S)
    return [output.clean(model.id) for model in reply.parse(ModelList).data]
