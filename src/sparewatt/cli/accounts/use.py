"""`sparewatt use`: which of this machine's contexts commands use, when nothing else says so."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.context import NetworkContext, find_context, json_option, known_contexts
from sparewatt.cli.credentials import choose_context
from sparewatt.cli.errors import CliError
from sparewatt.cli.groups import examples


@click.command()
@click.argument("name", required=False)
@json_option
@examples("sparewatt use", "sparewatt use operator", "sparewatt ledger audit --as operator")
def use(*, name: str | None, as_json: bool) -> None:
    """Choose the account that commands act as, or list those that this machine knows.

    A context is a login, named by its e-mail, or 'operator': the start-up key of a network that runs on this machine.
    '--as NAME' uses another one for a single command.
    """
    if name is not None:
        choose_context(find_context(name).name)
    contexts = list(known_contexts())
    if as_json:
        output.print_json([_as_json(each, in_use=index == 0) for index, each in enumerate(contexts)])
        return
    if not contexts:
        raise CliError("No context is known here.", next_step="Log in with 'sparewatt login', or start a network.")
    columns = [
        output.left("NAME", lambda each: each.name),
        output.left("ROLE", _role),
        output.left("NETWORK", lambda each: each.base_url),
        output.left("IN USE", lambda each: "yes" if each is contexts[0] else ""),
    ]
    output.print_table(columns, contexts, is_marked=lambda each: each is contexts[0])


def _role(context: NetworkContext) -> str:
    return "operator" if context.is_operator else "member"


def _as_json(context: NetworkContext, *, in_use: bool) -> dict[str, object]:
    return {
        "name": context.name,
        "base_url": context.base_url,
        "is_operator": context.is_operator,
        "in_use": in_use,
    }
