"""`sparewatt models`: the models that the network serves, how many nodes have them loaded, and their prices."""

from __future__ import annotations

import click

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of, print_ids
from sparewatt.cli.completion import complete_model
from sparewatt.cli.context import network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, left, right
from sparewatt.protocol.api.models import Model, ModelAlias, ModelAliasList, ModelList


@click.group(cls=DefaultGroup, default="list")
@examples("sparewatt models", "sparewatt models show smollm2-135m")
def models() -> None:
    """List what is served, with prices, show one model, or say what else a model is called."""


@models.command("list")
@quiet_option
@network_options
@examples("sparewatt models list")
def list_models(client: ApiClient, *, as_json: bool, quiet: bool) -> None:
    """List the models that nodes serve right now."""
    client.get_all("/models").show(ModelList, print_ids if quiet else _print_models, as_json=as_json)


@models.command("show")
@click.argument("model_id", metavar="ID", shell_complete=complete_model)
@network_options
@examples("sparewatt models show smollm2-135m")
def show_model(client: ApiClient, *, model_id: str, as_json: bool) -> None:
    """Show one model: its context, its nodes and its price."""
    client.get(path_of("models", model_id)).show(Model, _print_model, as_json=as_json)


@models.command("aliases")
@network_options
@examples("sparewatt models aliases")
def list_aliases(client: ApiClient, *, as_json: bool) -> None:
    """List the operators' aliases. For operators; 'models show' lists all names of one model."""
    client.get("/model-aliases").show(ModelAliasList, _print_aliases, as_json=as_json)


@models.command("alias")
@click.argument("name")
@click.argument("target", shell_complete=complete_model)
@network_options
@examples(
    "sparewatt models alias our-llama llama-3.1-8b",
    "sparewatt models alias sha256:667b0c… llama-3.1-8b",
    "sparewatt models alias 'claude-*' qwen3-32b",
)
def put_alias(client: ApiClient, *, name: str, target: str, as_json: bool) -> None:
    """Let NAME, an id of a model server or a weights digest, mean the model TARGET. For operators.

    Nodes that serve NAME serve TARGET from then on, and requests may use either.
    """
    reply = client.post("/model-aliases", {"name": name, "target": target})
    reply.show(ModelAlias, lambda alias: output.note(f"{alias.name} is {alias.target} now."), as_json=as_json)


@models.command("unalias")
@click.argument("name")
@network_options
@examples("sparewatt models unalias our-llama")
def drop_alias(client: ApiClient, *, name: str, as_json: bool) -> None:
    """Remove an alias. For operators."""
    reply = client.delete(path_of("model-aliases", name))
    reply.show(ModelAlias, lambda alias: output.note(f"{alias.name} is no alias any more."), as_json=as_json)


def _print_aliases(listed: ModelAliasList) -> None:
    if not listed.data:
        output.note("There is no alias. Set one with 'sparewatt models alias NAME MODEL'.")
        return
    columns: list[Column[ModelAlias]] = [
        left("NAME", lambda alias: alias.name),
        left("MODEL", lambda alias: alias.target),
    ]
    output.print_table(columns, listed.data)


def _print_models(listed: ModelList) -> None:
    if not listed.data:
        output.note("No node serves a model right now. Lend one with 'sparewatt node join', or see 'sparewatt nodes'.")
        return
    columns: list[Column[Model]] = [
        left("MODEL", lambda model: model.id),
        right("CONTEXT", lambda model: output.format_count(model.context_length)),
        right("NODES", lambda model: str(model.nodes_online)),
        right("WARM", lambda model: str(model.warm)),
        left("QUANTIZATION", lambda model: ", ".join(model.quantizations) or output.UNKNOWN),
        right("$/1M IN", lambda model: output.usd_per_mtok(model.pricing.prompt)),
        right("$/1M OUT", lambda model: output.usd_per_mtok(model.pricing.completion)),
    ]
    may_drop = ("QUANTIZATION", "CONTEXT", "WARM", "NODES", "$/1M IN", "$/1M OUT")
    output.print_table(columns, listed.data, may_drop=may_drop)


def _features(model: Model) -> list[str]:
    """Tools of a template that knows none are told as such."""
    can = [name for name in model.capabilities if name != "tools_generic"]
    return [f"{name} (generic)" if f"{name}_generic" in model.capabilities else name for name in can]


def _print_model(model: Model) -> None:
    output.print_facts(
        [
            ("Model", model.id),
            ("Owned by", model.owned_by),
            ("Context", f"{output.format_count(model.context_length)} tokens"),
            ("Nodes online", str(model.nodes_online)),
            ("Warm on", str(model.warm)),
            ("Can do", ", ".join(_features(model)) or output.UNKNOWN),
            ("Quantizations", ", ".join(model.quantizations) or output.UNKNOWN),
            *([("Also called", ", ".join(model.aliases))] if model.aliases else []),
            ("Cheapest, in", f"{output.usd_per_mtok(model.pricing.prompt)} per 1M tokens"),
            ("Cheapest, out", f"{output.usd_per_mtok(model.pricing.completion)} per 1M tokens"),
        ]
    )
    output.note(f'Try it: sparewatt chat {model.id} "Say hello"')
