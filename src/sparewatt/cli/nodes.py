"""`sparewatt nodes`: the machines of the network. What a node claims and what was measured are shown side by side."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

import click
from msgspec import UNSET

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_of, path_with_query, print_ids
from sparewatt.cli.context import network_options, quiet_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import DefaultGroup, examples
from sparewatt.cli.output import Column, Fact, left, prose, right
from sparewatt.cli.routing import policy_file_query
from sparewatt.core.plural import pluralize
from sparewatt.policy.fields import SORTS
from sparewatt.protocol.api.nodes import Node, NodeList, NodeModel, NodeReputation

_FULL_ID = re.compile(r"0x[0-9a-f]{40}", re.IGNORECASE)


@click.group(cls=DefaultGroup, default="list", takes_condition=True)
@examples(
    "sparewatt nodes",
    "sparewatt nodes 'region=EU gpu_class>=a100 uptime>=0.99' --sort price",
    "sparewatt nodes show berlin-4090",
)
def nodes() -> None:
    """List the machines of the network, those that a query allows, or show one."""


@nodes.command("list")
@click.argument("query", metavar="[QUERY]", nargs=-1)
@click.option("--policy", metavar="FILE", help="Those that a policy file allows, in YAML or JSON; instead of QUERY.")
@click.option("--sort", type=click.Choice(SORTS), help="Which come first.")
@quiet_option
@network_options
@examples(
    "sparewatt nodes list",
    "sparewatt nodes list 'region=EU vram_gb>=24 max_price=0.30' --sort throughput",
    "sparewatt nodes list --policy policy.yaml",
)
def list_nodes(
    client: ApiClient, *, query: tuple[str, ...], policy: str | None, sort: str | None, as_json: bool, quiet: bool
) -> None:
    """List the nodes and how they are doing.

    QUERY holds conditions that all hold, with = != < <= > >= in notin. The words are those of a policy.
    """
    if policy is not None and query:
        raise click.UsageError("--policy and QUERY both say which nodes to list: give one of them.")
    conditions = policy_file_query(policy) if policy is not None else " ".join(query)
    path = path_with_query("/nodes", {"q": conditions or None, "sort": sort})
    client.get_all(path).show(NodeList, print_ids if quiet else _print_nodes, as_json=as_json)


@nodes.command("show")
@click.argument("node_id", metavar="ID")
@network_options
@examples("sparewatt nodes show 0x5f3a91c2")
def show_node(client: ApiClient, *, node_id: str, as_json: bool) -> None:
    """Show one node: what it claims, what was measured, and its models.

    ID is the node's address, the start of it, or its name.
    """

    def show(node: Node) -> None:
        _print_node(node, client.get(path_of("nodes", node.id, "reputation")).parse(NodeReputation))

    _get_node(client, node_id).show(Node, show, as_json=as_json)


def _get_node(client: ApiClient, name_or_id: str) -> ApiReply:
    if not _FULL_ID.fullmatch(name_or_id):
        name_or_id = _find_id(client.get_all("/nodes").parse(NodeList).data, name_or_id)
    return client.get(path_of("nodes", name_or_id.lower()))


def _find_id(listed: list[Node], name_or_id: str) -> str:
    """The id of the node with this name, or whose address starts like this."""
    ids = [node.id for node in listed if name_or_id in {node.id, node.name}]
    ids = ids or [node.id for node in listed if name_or_id.startswith("0x") and node.id.startswith(name_or_id.lower())]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise CliError(
            f"{name_or_id!r} can mean {len(ids)} nodes: {', '.join(ids[:5])}.", next_step="Write more of it."
        )
    raise CliError(
        f"No node is called {name_or_id!r}.",
        next_step="See the nodes with 'sparewatt nodes'.",
        exit_code=ExitCode.NOT_FOUND,
    )


def _print_nodes(listed: NodeList) -> None:
    if not listed.data:
        _note_no_nodes(listed)
        return
    now_s = time.time()
    columns: list[Column[Node]] = [
        left("STATE", lambda node: output.state_cell(node.state)),
        left("NAME", lambda node: node.name),
        left("ID", lambda node: output.node_label(node.id)),
        left("REGION", lambda node: node.region),
        left("HARDWARE", describe_hardware),
        right("MODELS", lambda node: str(len(node.models))),
        right("RUNNING", lambda node: f"{node.running}/{node.slots}"),
        right("QUEUED", lambda node: output.format_count(node.queued)),
        right("RTT", lambda node: output.format_ms(node.rtt_ms)),
        right("SEEN", lambda node: output.ago(node.last_seen_at, now_s=now_s)),
    ]
    may_drop = ("SEEN", "RTT", "QUEUED", "MODELS", "HARDWARE", "RUNNING", "REGION")
    output.print_table(columns, listed.data, may_drop=may_drop)


def _note_no_nodes(listed: NodeList) -> None:
    """Which condition dropped how many nodes, and the smallest changes of the query that would allow some."""
    if not listed.total:
        output.note("No node has joined yet. Lend this machine with 'sparewatt node join'.")
        return
    dropped = ", ".join(f"{step.filter} dropped {step.dropped}" for step in listed.funnel or () if step.dropped)
    output.note(f"None of {pluralize(listed.total, 'node')} is allowed: {dropped}.")
    for relaxation in listed.nearest_relaxations or ():
        output.note(f"  {relaxation}")


def describe_hardware(node: Node) -> str:
    gpu = node.gpu or "no GPU"
    return f"{node.gpu_count} x {gpu}" if node.gpu_count > 1 else gpu


class _Comparison(NamedTuple):
    """One row of the table of claims and measurements."""

    of: str
    what: str
    claimed: str = output.UNKNOWN
    measured: str = output.UNKNOWN


def _print_node(node: Node, reputation: NodeReputation) -> None:
    output.print_facts([*_node_facts(node), ("Reputation", _describe_reputation(reputation))])
    output.print_title("Claimed and measured")
    columns: list[Column[_Comparison]] = [
        left("OF", lambda row: row.of),
        left("WHAT", lambda row: row.what),
        right("CLAIMED", lambda row: row.claimed),
        right("MEASURED", lambda row: row.measured),
    ]
    speeds = [row for model in node.models for row in _compare_speeds(model)]
    output.print_table(columns, _compare_hardware(node) + speeds)
    output.print_title("Models")
    if node.models:
        _print_node_models(node.models)
        _print_derivations(node.models)
    else:
        print("none")


def _node_facts(node: Node) -> list[Fact]:
    power_watts = node.sensors.power_watts if node.sensors else None
    return [
        ("Node", node.name),
        ("ID", node.id),
        ("State", output.state_cell(node.state)),
        *([("Paused", node.paused)] if node.paused else []),
        ("Region", node.region),
        ("Hardware", describe_hardware(node)),
        *([("Power", f"{power_watts:.0f} W")] if power_watts else []),
        ("Backend", node.backend),
        ("Agent", node.agent_version),
        ("Load", f"{node.running} of {node.slots} slots running, {node.queued} queued"),
        ("In flight", f"{node.in_flight} jobs of this network"),
        ("Jobs", f"{output.format_count(node.jobs_done)} done, {output.format_count(node.jobs_failed)} failed"),
        ("Round trip", output.format_ms(node.rtt_ms)),
        ("Seen", output.ago(node.last_seen_at, now_s=time.time())),
    ]


def _describe_reputation(reputation: NodeReputation) -> str:
    score = f"{reputation.score:.0%}, at least {reputation.lower:.0%}"
    if reputation.jobs is UNSET or reputation.failures is UNSET:  # another owner's node
        return score
    causes = ", ".join(f"{output.format_count(each.count)} {each.cause}" for each in reputation.causes or ())
    failed = f"{output.format_count(reputation.failures)} of {output.format_count(reputation.jobs)} jobs failed"
    return f"{score}; {failed}{f': {causes}' if causes else ''}"


def _compare_hardware(node: Node) -> list[_Comparison]:
    claimed, tflops = node.claimed, output.format_rate(node.measured.tflops)
    rows = [
        _Comparison("hardware", "memory", output.format_bytes(claimed.vram_bytes)),
        _Comparison("hardware", "TFLOPS", output.format_rate(claimed.tflops), tflops),
    ]
    if claimed.hourly_usd is not None:  # an owner may set prices per token only
        rows.append(_Comparison("hardware", "price per hour", output.format_usd(claimed.hourly_usd)))
    for gpu in node.gpus:
        if gpu.measured.copy_bytes_s:
            copies, fp16 = output.format_bytes(gpu.measured.copy_bytes_s), output.format_rate(gpu.measured.fp16_tflops)
            rows.append(_Comparison(gpu.model, "copies per second", measured=copies))
            rows.append(_Comparison(gpu.model, "dense FP16 TFLOPS", measured=fp16))
    return rows


def _compare_speeds(model: NodeModel) -> list[_Comparison]:
    both = (model.claimed, model.measured)
    prefill = [output.format_rate(speed.prefill_tps if speed else None) for speed in both]
    decode = [output.format_rate(speed.decode_tps if speed else None) for speed in both]
    measured = model.measured
    rows = [_Comparison(model.id, "prefill tokens/s", *prefill), _Comparison(model.id, "decode tokens/s", *decode)]
    if measured and measured.batch_decode_tps:
        what = f"decode tokens/s, {measured.batch} at once"
        rows.append(_Comparison(model.id, what, measured=output.format_rate(measured.batch_decode_tps)))
    first_token = output.format_ms(measured.first_token_s * 1000 if measured else None)
    return [*rows, _Comparison(model.id, "first token after 1,000", measured=first_token)]


def _print_node_models(models: list[NodeModel]) -> None:
    columns: list[Column[NodeModel]] = [
        left("MODEL", lambda model: model.id),
        left("STATE", lambda model: model.state.replace("_", " ")),
        right("CONTEXT", lambda model: output.format_count(model.context_length)),
        left("QUANTIZATION", lambda model: model.quantization or output.UNKNOWN),
        right("$/1M IN", lambda model: output.format_usd(model.price.prompt_usd_per_mtok)),
        right("$/1M OUT", lambda model: output.format_usd(model.price.completion_usd_per_mtok)),
    ]
    output.print_table(columns, models, may_drop=("QUANTIZATION", "CONTEXT", "$/1M IN", "$/1M OUT"))


def _print_derivations(models: list[NodeModel]) -> None:
    """How the prices came about: the price of an hour divided by the speed at a stated load, or set by the owner."""
    derivations = [
        (model.id, direction, text)
        for model in models
        for direction, text in (("in", model.price.prompt_derivation), ("out", model.price.completion_derivation))
    ]
    output.print_title("How the prices come about")
    columns: list[Column[tuple[str, str, str]]] = [
        left("MODEL", lambda row: row[0]),
        left("TOKENS", lambda row: row[1]),
        prose("PRICE", lambda row: row[2]),
    ]
    output.print_table(columns, derivations)
    for model in models:
        if model.price.notice:
            output.note(f"{model.id}: {model.price.notice}")
