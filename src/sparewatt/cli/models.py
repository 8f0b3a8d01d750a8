"""`sparewatt models`: what the network serves, how warm it is and what it costs."""

from __future__ import annotations

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, path_of
from sparewatt.cli.completion import complete_model
from sparewatt.cli.context import json_option, network_options, quiet_option
from sparewatt.cli.groups import DefaultGroup


class Pricing(msgspec.Struct):
    """Dollars per token, as exact text."""

    prompt: str | None = None
    completion: str | None = None


class Model(msgspec.Struct):
    id: str
    owned_by: str | None = None
    context_length: int | None = None
    nodes_online: int = 0
    warm: int = 0
    quantizations: list[str] = []
    pricing: Pricing | None = None

    @property
    def prices(self) -> tuple[str, str]:
        pricing = self.pricing or Pricing()
        return output.usd_per_mtok(pricing.prompt), output.usd_per_mtok(pricing.completion)


class ModelList(msgspec.Struct):
    data: list[Model]


@click.group(cls=DefaultGroup, default="list")
def models() -> None:
    """List what is served, with prices, or show one model.

    \b
    Example:
      sparewatt models
      sparewatt models show smollm2-135m
    """


@models.command("list")
@quiet_option
@json_option
@network_options
def list_models(client: ApiClient, *, as_json: bool, quiet: bool) -> None:
    """List the models that nodes serve right now.

    \b
    Example:
      sparewatt models list
    """
    reply = client.get("/models")
    if as_json:
        output.print_json(reply.json())
        return
    found = reply.parse(ModelList).data
    if quiet:
        output.print_lines(model.id for model in found)
    elif found:
        _print_models(found)
    else:
        output.note("No node serves a model right now. Lend one with 'sparewatt node join', or see 'sparewatt nodes'.")


@models.command("show")
@click.argument("model_id", metavar="ID", shell_complete=complete_model)
@json_option
@network_options
def show_model(client: ApiClient, *, model_id: str, as_json: bool) -> None:
    """Show one model: its context, its nodes and its price.

    \b
    Example:
      sparewatt models show smollm2-135m
    """
    reply = client.get(path_of("models", model_id))
    if as_json:
        output.print_json(reply.json())
    else:
        _print_model(reply.parse(Model))


def _print_models(found: list[Model]) -> None:
    columns = [
        *output.left("MODEL"),
        *output.right("CONTEXT", "NODES", "WARM"),
        *output.left("QUANTIZATION"),
        *output.right("$/1M IN", "$/1M OUT"),
    ]
    may_drop = ("QUANTIZATION", "CONTEXT", "WARM", "NODES", "$/1M IN", "$/1M OUT")
    output.print_table(columns, [_row(model) for model in found], may_drop=may_drop)


def _row(model: Model) -> list[str]:
    return [
        model.id,
        output.format_count(model.context_length),
        str(model.nodes_online),
        str(model.warm),
        ", ".join(model.quantizations) or output.UNKNOWN,
        *model.prices,
    ]


def _print_model(model: Model) -> None:
    price_in, price_out = model.prices
    output.print_facts(
        [
            ("Model", model.id),
            ("Owned by", model.owned_by or output.UNKNOWN),
            ("Context", f"{output.format_count(model.context_length)} tokens"),
            ("Nodes online", str(model.nodes_online)),
            ("Warm on", str(model.warm)),
            ("Quantizations", ", ".join(model.quantizations) or output.UNKNOWN),
            ("Cheapest, in", f"{price_in} per 1M tokens"),
            ("Cheapest, out", f"{price_out} per 1M tokens"),
        ]
    )
    output.note(f'Try it: sparewatt chat {model.id} "Say hello"')
