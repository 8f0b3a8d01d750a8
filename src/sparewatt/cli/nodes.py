"""`sparewatt nodes`: the machines of the network; what each claims and what was measured stand side by side."""

from __future__ import annotations

import re
import time
from urllib.parse import urlencode

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.client import ApiClient, ApiReply, path_of
from sparewatt.cli.context import json_option, network_options, quiet_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import DefaultGroup
from sparewatt.core.plural import pluralize
from sparewatt.policy.fields import SORTS

_FULL_ID = re.compile(r"0x[0-9a-f]{40}", re.IGNORECASE)


class NodeClaims(msgspec.Struct):
    vram_bytes: int | None = None
    tflops: float | None = None
    hourly_usd: float | str | None = None


class NodeMeasures(msgspec.Struct):
    tflops: float | None = None


class Speeds(msgspec.Struct):
    """Of one model on one node; a node claims no time to first token."""

    ttft_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None
    batch: int | None = None
    batch_decode_tps: float | None = None


class GpuMeasures(msgspec.Struct):
    copy_bytes_s: float | None = None
    fp16_tflops: float | None = None


class NodeGpu(msgspec.Struct):
    model: str
    driver: str | None = None
    vram_bytes: int | None = None
    measured: GpuMeasures = msgspec.field(default_factory=GpuMeasures)


class NodeSensors(msgspec.Struct):
    power_watts: float | None = None


class Price(msgspec.Struct):
    prompt_usd_per_mtok: str | None = None
    completion_usd_per_mtok: str | None = None
    prompt_derivation: str | None = None
    completion_derivation: str | None = None


class NodeModel(msgspec.Struct):
    id: str
    state: str = "unknown"
    context_length: int | None = None
    quantization: str | None = None
    claimed: Speeds | None = None
    measured: Speeds | None = None
    price: Price | None = None


class Node(msgspec.Struct):
    id: str
    name: str | None = None
    region: str | None = None
    state: str = "unknown"
    gpu: str | None = None
    gpu_count: int | None = None
    agent_version: str | None = None
    backend: str | None = None
    claimed: NodeClaims | None = None
    measured: NodeMeasures | None = None
    models: list[NodeModel] = []
    gpus: list[NodeGpu] = []
    sensors: NodeSensors | None = None
    paused: str | None = None
    running: int | None = None
    queued: int | None = None
    slots: int | None = None
    rtt_ms: float | None = None
    in_flight: int | None = None
    jobs_done: int | None = None
    jobs_failed: int | None = None
    last_seen_at: float | None = None

    @property
    def hardware(self) -> str:
        gpu = self.gpu or "no GPU"
        return f"{self.gpu_count} x {gpu}" if (self.gpu_count or 0) > 1 else gpu


class Cause(msgspec.Struct):
    cause: str
    count: int


class Reputation(msgspec.Struct):
    score: float
    lower: float
    jobs: int | None = None
    failures: int | None = None
    causes: list[Cause] = []


class FilterStep(msgspec.Struct):
    filter: str
    dropped: int


class NodeList(msgspec.Struct):
    """`total` and what follows come with a query only."""

    data: list[Node]
    total: int | None = None
    funnel: list[FilterStep] = []
    nearest_relaxations: list[str] = []


@click.group(cls=DefaultGroup, default="list", takes_condition=True)
def nodes() -> None:
    """List the machines of the network, those that a query allows, or show one.

    \b
    Example:
      sparewatt nodes
      sparewatt nodes 'region=EU gpu_class>=a100 uptime>=0.99' --sort price
      sparewatt nodes show berlin-4090
    """


@nodes.command("list")
@click.argument("query", metavar="[QUERY]", nargs=-1)
@click.option("--sort", type=click.Choice(SORTS), help="Which come first.")
@quiet_option
@json_option
@network_options
def list_nodes(client: ApiClient, *, query: tuple[str, ...], sort: str | None, as_json: bool, quiet: bool) -> None:
    """List the nodes and how they are doing.

    QUERY holds conditions that all hold, with = != < <= > >= in notin. The words are those of a policy.

    \b
    Example:
      sparewatt nodes list
      sparewatt nodes list 'region=EU vram_gb>=24 max_price=0.30' --sort throughput
    """
    reply = client.get(_list_path(" ".join(query), sort))
    if as_json:
        output.print_json(reply.json())
        return
    listed = reply.parse(NodeList)
    if quiet:
        output.print_lines(node.id for node in listed.data)
    elif listed.data:
        _print_nodes(listed.data)
    elif listed.total:
        _note_nobody(listed)
    else:
        output.note("No node has joined yet. Lend this machine with 'sparewatt node join'.")


def _list_path(query: str, sort: str | None) -> str:
    wanted = {name: value for name, value in (("q", query), ("sort", sort)) if value}
    return f"/nodes?{urlencode(wanted)}" if wanted else "/nodes"


def _note_nobody(listed: NodeList) -> None:
    """Which words dropped how many nodes, and the nearest that would bring some back."""
    dropped = ", ".join(f"{step.filter} dropped {step.dropped}" for step in listed.funnel if step.dropped)
    output.note(f"None of {pluralize(listed.total or 0, 'node')} is allowed: {dropped}.")
    for relaxation in listed.nearest_relaxations:
        output.note(f"  {relaxation}")


@nodes.command("show")
@click.argument("node_id", metavar="ID")
@json_option
@network_options
def show_node(client: ApiClient, *, node_id: str, as_json: bool) -> None:
    """Show one node: what it claims, what was measured, and its models.

    ID is the node's address, the start of it, or its name.

    \b
    Example:
      sparewatt nodes show 0x5f3a91c2
    """
    reply = _get_node(client, node_id)
    if as_json:
        output.print_json(reply.json())
    else:
        node = reply.parse(Node)
        _print_node(node, client.get(path_of("nodes", node.id, "reputation")).parse(Reputation))


def _get_node(client: ApiClient, wanted: str) -> ApiReply:
    if not _FULL_ID.fullmatch(wanted):
        wanted = _find_id(client.get("/nodes").parse(NodeList).data, wanted)
    return client.get(path_of("nodes", wanted.lower()))


def _find_id(found: list[Node], wanted: str) -> str:
    """The id that a name or the start of an address stands for."""
    ids = [node.id for node in found if wanted in {node.id, node.name}]
    ids = ids or [node.id for node in found if wanted.startswith("0x") and node.id.startswith(wanted.lower())]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise CliError(f"{wanted!r} can mean {len(ids)} nodes: {', '.join(ids[:5])}.", next_step="Write more of it.")
    raise CliError(
        f"No node is called {wanted!r}.",
        next_step="See the nodes with 'sparewatt nodes'.",
        exit_code=ExitCode.NOT_FOUND,
    )


def _print_nodes(found: list[Node]) -> None:
    columns = [
        *output.left("STATE", "NAME", "ID", "REGION", "HARDWARE"),
        *output.right("MODELS", "RUNNING", "QUEUED", "RTT", "SEEN"),
    ]
    now_s = time.time()
    may_drop = ("SEEN", "RTT", "QUEUED", "MODELS", "HARDWARE", "RUNNING", "REGION")
    output.print_table(columns, [_node_row(node, now_s=now_s) for node in found], may_drop=may_drop)


def _node_row(node: Node, *, now_s: float) -> output.Row:
    return [
        output.state_cell(node.state),
        node.name or output.UNKNOWN,
        output.node_label(node.id),
        node.region or output.UNKNOWN,
        node.hardware,
        str(len(node.models)),
        f"{output.format_count(node.running)}/{output.format_count(node.slots)}",
        output.format_count(node.queued),
        output.format_ms(node.rtt_ms),
        output.ago(node.last_seen_at, now_s=now_s),
    ]


def _print_node(node: Node, reputation: Reputation) -> None:
    output.print_facts([*_node_facts(node), ("Reputation", _describe_reputation(reputation))])
    output.print_title("Claimed and measured")
    rows = _hardware_rows(node) + [row for model in node.models for row in _speed_rows(model)]
    output.print_table([*output.left("OF", "WHAT"), *output.right("CLAIMED", "MEASURED")], rows)
    output.print_title("Models")
    if node.models:
        _print_node_models(node.models)
        _print_derivations(node.models)
    else:
        print("none")


def _node_facts(node: Node) -> list[tuple[str, output.Cell | str]]:
    done, failed = output.format_count(node.jobs_done), output.format_count(node.jobs_failed)
    running, slots = output.format_count(node.running), output.format_count(node.slots)
    return [
        ("Node", node.name or output.UNKNOWN),
        ("ID", node.id),
        ("State", output.state_cell(node.state)),
        *([("Paused", node.paused)] if node.paused else []),
        ("Region", node.region or output.UNKNOWN),
        ("Hardware", node.hardware),
        *([("Power", f"{node.sensors.power_watts:.0f} W")] if node.sensors and node.sensors.power_watts else []),
        ("Backend", node.backend or output.UNKNOWN),
        ("Agent", node.agent_version or output.UNKNOWN),
        ("Load", f"{running} of {slots} slots running, {output.format_count(node.queued)} queued"),
        ("In flight", f"{output.format_count(node.in_flight)} jobs of this network"),
        ("Jobs", f"{done} done, {failed} failed"),
        ("Round trip", output.format_ms(node.rtt_ms)),
        ("Seen", output.ago(node.last_seen_at, now_s=time.time())),
    ]


def _describe_reputation(found: Reputation) -> str:
    said = f"{found.score:.0%}, at least {found.lower:.0%}"
    if found.jobs is None:  # another owner's node
        return said
    causes = ", ".join(f"{output.format_count(each.count)} {each.cause}" for each in found.causes)
    failed = f"{output.format_count(found.failures)} of {output.format_count(found.jobs)} jobs failed"
    return f"{said}; {failed}{f': {causes}' if causes else ''}"


def _hardware_rows(node: Node) -> list[output.Row]:
    claimed, measured = node.claimed or NodeClaims(), node.measured or NodeMeasures()
    rows: list[output.Row] = [
        ["hardware", "memory", output.format_bytes(claimed.vram_bytes), output.UNKNOWN],
        ["hardware", "TFLOPS", output.format_rate(claimed.tflops), output.format_rate(measured.tflops)],
    ]
    if claimed.hourly_usd is not None:  # an owner may ask by the token alone
        rows.append(["hardware", "price per hour", output.format_usd(claimed.hourly_usd), output.UNKNOWN])
    return rows + [row for gpu in node.gpus if gpu.measured.copy_bytes_s for row in _gpu_rows(gpu)]


def _gpu_rows(gpu: NodeGpu) -> list[output.Row]:
    return [
        [gpu.model, "copies per second", output.UNKNOWN, output.format_bytes(gpu.measured.copy_bytes_s)],
        [gpu.model, "dense FP16 TFLOPS", output.UNKNOWN, output.format_rate(gpu.measured.fp16_tflops)],
    ]


def _speed_rows(model: NodeModel) -> list[output.Row]:
    claimed, measured = model.claimed or Speeds(), model.measured or Speeds()
    first_token_ms = None if measured.ttft_s is None else measured.ttft_s * 1000
    prefill = [output.format_rate(speeds.prefill_tps) for speeds in (claimed, measured)]
    decode = [output.format_rate(speeds.decode_tps) for speeds in (claimed, measured)]
    return [
        [model.id, "prefill tokens/s", *prefill],
        [model.id, "decode tokens/s", *decode],
        *([_batch_row(model.id, measured)] if measured.batch_decode_tps else []),
        [model.id, "first token", output.UNKNOWN, output.format_ms(first_token_ms)],
    ]


def _batch_row(name: str, measured: Speeds) -> output.Row:
    what = f"decode tokens/s, {measured.batch} at once"
    return [name, what, output.UNKNOWN, output.format_rate(measured.batch_decode_tps)]


def _print_node_models(found: list[NodeModel]) -> None:
    columns = [
        *output.left("MODEL", "STATE"),
        *output.right("CONTEXT"),
        *output.left("QUANTIZATION"),
        *output.right("$/1M IN", "$/1M OUT"),
    ]
    may_drop = ("QUANTIZATION", "CONTEXT", "$/1M IN", "$/1M OUT")
    output.print_table(columns, [_model_row(model) for model in found], may_drop=may_drop)


def _print_derivations(found: list[NodeModel]) -> None:
    """Where the prices come from: the hour divided by what was measured, or the owner's word."""
    prices = [(model.id, model.price) for model in found if model.price and model.price.completion_derivation]
    if not prices:
        return
    output.print_title("How the prices come about")
    rows = [
        [name, what, text or output.UNKNOWN]
        for name, price in prices
        for what, text in (("in", price.prompt_derivation), ("out", price.completion_derivation))
    ]
    output.print_table([*output.left("MODEL", "TOKENS"), *output.prose("PRICE")], rows)


def _model_row(model: NodeModel) -> output.Row:
    price = model.price or Price()
    return [
        model.id,
        model.state.replace("_", " "),
        output.format_count(model.context_length),
        model.quantization or output.UNKNOWN,
        output.format_usd(price.prompt_usd_per_mtok),
        output.format_usd(price.completion_usd_per_mtok),
    ]
