"""`sparewatt node status | doctor | logs`: how this machine's node is doing. Nothing here changes it.

Status comes from the running agent over its control socket; doctor and logs work without an agent, too.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.errors import CliError, ExitCode
from sparewatt.cli.groups import examples
from sparewatt.cli.node.agent import ask_running_agent, data_option, node_dir
from sparewatt.cli.node.lease_offer import describe_height, describe_leases, machine_facts
from sparewatt.cli.output import Cell, Column, Fact, left, prose, right
from sparewatt.protocol.link.node_report import Speed
from sparewatt.protocol.link.reference_load import REFERENCE_TOKENS

Json = dict[str, Any]


@click.command("status")
@data_option
@json_option
@examples("sparewatt node status", "sparewatt node status --json")
def status(*, data_dir: Path | None, as_json: bool) -> None:
    """Show this machine's node: its link, its models, its GPUs, its jobs and why it is paused."""
    report = ask_running_agent(node_dir(data_dir), {"do": "status"})
    if as_json:
        output.print_json(report)
        return
    output.print_facts(_facts(report, now_s=time.time()))
    if report["server"].get("facts"):
        _print_server(report["server"]["facts"], report["models"])
    if report["models"]:
        _print_models(report["models"])
    if report["gpus"]:
        _print_gpus(report["gpus"], report["readings"])


def _facts(report: Json, *, now_s: float) -> list[Fact]:
    running = f"{report['running']} of {report['slots']} running"
    trouble = report["server"]["trouble"]
    rules = (("watts_max", "{:g} W"), ("temperature_max_c", "{:g} °C"))
    ceilings = [text.format(report["wishes"][name]) for name, text in rules if report["wishes"].get(name)]
    return [
        ("Node", f"{report['name']} ({report['id']})"),
        ("State", _state(report)),
        *([("Paused", f"{report['paused']}{_until(report, now_s=now_s)}")] if report["paused"] else []),
        ("Gateway", f"{report['gateway']}{_since(report, now_s=now_s)}"),
        ("Server", f"{report['server']['kind']}{f': {trouble}' if trouble else ''}"),
        ("Jobs", f"{running}, {report['queued']} waiting, {report['foreign']} of others"),
        ("Price", describe_price(report)),
        *(("Notice", f"{model}: {notice}") for model, notice in report.get("price_notices", {}).items()),
        *_lease_facts(report),
        *([("Hours", report["hours"])] if report["hours"] else []),
        *([("Ceilings", ", ".join(ceilings))] if ceilings else []),
        *([("Power", f"{report['power_watts']:.0f} W now")] if report["power_watts"] is not None else []),
        *([("Measuring", report["measuring"])] if report["measuring"] else []),
    ]


def _state(report: Json) -> Cell:
    cell = output.state_cell(report["state"])
    if report["state"] != "no_server":
        return cell
    return Cell("✕ joined, but its model server is gone: no job comes until it is back", cell.style)


def describe_price(report: Json) -> str:
    """The prices that are set. Prices per token come first, since they are used before the price per hour."""
    per_token = [
        f"{output.format_usd(report[name])} per 1M {what}"
        for name, what in (("prompt_usd_per_mtok", "read"), ("completion_usd_per_mtok", "written"))
        if report.get(name) is not None
    ]
    if len(per_token) == 2:
        return ", ".join(per_token)
    return ", ".join([*per_token, f"{output.format_usd(report['hourly_usd'])} an hour"])


def _lease_facts(report: Json) -> list[Fact]:
    market = report.get("lease_market")
    if not report.get("leases"):
        return []
    held = sum(bid["state"] == "held" for bid in (market or {}).get("bids", ()))
    leases = describe_leases(report) + (f"; {held} held" if held else "")
    machine = machine_facts({"rules": {}} | market) if market else []
    return [("Leases", leases), *machine, *([("Chain", describe_height(market))] if market else [])]


def _since(report: Json, *, now_s: float) -> str:
    if report["joined_at"] is None:
        return f", no link ({report['last_trouble'] or 'dialling'})"
    return f", joined {output.ago(report['joined_at'], now_s=now_s)}"


def _until(report: Json, *, now_s: float) -> str:
    ends = report["pause_ends_at"]
    if not ends or ends <= now_s:
        return ""
    return f", until {dt.datetime.fromtimestamp(ends).astimezone():%Y-%m-%d %H:%M}"


MODELS_SHOWN_MAX = 8
"""With figures of their own; Ollama may have hundreds on disk. `--json` has all of them."""
_SERVER_FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("slots", "answers at once", "{:,}".format),
    ("kv_tokens", "KV cache", "{:,} tokens".format),
    ("chunked_prefill", "reads in chunks", lambda chunks: "yes" if chunks else "no"),
    ("bandwidth_bytes_s", "memory bandwidth", lambda bytes_s: f"{bytes_s / 1e9:,.0f} GB/s"),
)
_MODEL_FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("context", "context", "{:,} tokens".format),
    ("quantization", "quantization", str),
    ("weights_bytes", "weights", output.format_bytes),
    ("kv_bytes_per_token", "KV cache per token", "{:,} bytes".format),
    ("prefix_cache_tokens", "prefix cache", "{:,} tokens".format),
)


def _print_server(facts: Json, models: list[Json]) -> None:
    """Each figure of the model server that the matcher uses, and where it comes from."""
    output.print_title("Server")
    warm = {model["id"] for model in models if model["state"] == "warm"}
    shown = [model for model in facts["models"] if model["id"] in warm][:MODELS_SHOWN_MAX]
    rows = _figures(facts, _SERVER_FIGURES, kind=facts["kind"], of="server")
    rows += [row for model in shown for row in _figures(model, _MODEL_FIGURES, kind=facts["kind"], of=model["id"])]
    columns: list[Column[Json]] = [
        left("OF", lambda row: row["of"]),
        left("FIGURE", lambda row: row["figure"]),
        right("VALUE", lambda row: row["value"]),
        left("SOURCE", lambda row: row["source"]),
    ]
    output.print_table(columns, rows)


def _figures(facts: Json, shown: Sequence[tuple[str, str, Callable[[Any], str]]], *, kind: str, of: str) -> list[Json]:
    found = [(title, text, facts[name]) for name, title, text in shown if facts.get(name) is not None]
    return [
        {
            "of": of,
            "figure": title,
            "value": text(figure["value"]),
            "source": f"default of {kind}" if figure["source"] == "default" else figure["source"],
        }
        for title, text, figure in found
    ]


def _print_models(models: list[Json]) -> None:
    output.print_title("Models")

    def measured(model: Json, name: str) -> float | None:
        value: float | None = (model.get("measured") or {}).get(name)
        return value

    def at_once(model: Json) -> str:
        rate = measured(model, "batch_decode_tps")
        return f"{output.format_rate(rate)} ({measured(model, 'batch')})" if rate else output.UNKNOWN

    def first_token(model: Json) -> str:
        """After a prompt of 1,000 tokens."""
        speed = model.get("measured")
        return output.format_ms(msgspec.convert(speed, Speed).prefill_s(REFERENCE_TOKENS) * 1000 if speed else None)

    columns: list[Column[Json]] = [
        left("MODEL", lambda model: model["id"]),
        left("STATE", lambda model: model["state"].replace("_", " ")),
        right("READS/S", lambda model: output.format_rate(measured(model, "prefill_tps"))),
        right("WRITES/S", lambda model: output.format_rate(measured(model, "decode_tps"))),
        right("AT ONCE", at_once),
        right("FIRST TOKEN", first_token),
    ]
    output.print_table(columns, models, may_drop=("AT ONCE", "READS/S"))


def _print_gpus(gpus: list[Json], readings: list[Json]) -> None:
    """The GPUs, with those readings that there are."""
    output.print_title("GPUs")
    padded = [*readings, *[{}] * len(gpus)]
    columns: list[Column[Json]] = [
        left("GPU", lambda gpu: gpu["model"]),
        right("FREE", lambda gpu: output.format_bytes(gpu.get("vram_free_bytes"))),
        right("POWER", lambda gpu: output.format_optional(gpu.get("power_watts"), "{:.0f} W")),
        right("TEMPERATURE", lambda gpu: output.format_optional(gpu.get("temperature_c"), "{:.0f} °C")),
        right("BUSY", lambda gpu: output.format_optional(gpu.get("utilisation"), "{:.0%}")),
        right(
            "COPIES", lambda gpu: output.format_optional((gpu.get("copy_bytes_s") or 0) / 1e12 or None, "{:.2f} TB/s")
        ),
        right("TFLOP/S", lambda gpu: output.format_optional(gpu.get("fp16_tflops") or None, "{:.0f}")),
    ]
    merged = [reading | gpu for gpu, reading in zip(gpus, padded, strict=False)]
    output.print_table(columns, merged, may_drop=("COPIES", "TFLOP/S"))


_MARKS = {
    "ok": Cell("ok", "#2DD4BF"),
    "warning": Cell("look", "#F59E0B"),
    "failure": Cell("WRONG", "bold #F87171"),
}


@click.command("doctor")
@click.argument("gateway_url", metavar="[URL]", required=False)
@click.option("--token", metavar="T", help="A join token, whose form is checked; it is not used up.")
@click.option("--backend", "backend_url", metavar="URL", help="The model server to check; else known ports are tried.")
@click.option(
    "--chain-url", metavar="URL", help="The chain's node to check; else the one that the node was given, if any."
)
@click.option("--measure", is_flag=True, help="Also measure the GPU itself, where torch or CuPy is installed.")
@click.option("--leases", is_flag=True, help="Also try containers, if the node does not offer leases yet.")
@click.option(
    "--container-socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The Docker or podman socket to try; else the node's, or the usual places.",
)
@click.option("--insecure", is_flag=True, help="Allow plain http:// to another machine.")
@data_option
@json_option
@examples(
    "sparewatt node doctor",
    "sparewatt node doctor https://gateway.example --token join-sw-…",
    "sparewatt node doctor --chain-url http://127.0.0.1:8545",
    "sparewatt node doctor --measure --json",
)
def doctor(*, data_dir: Path | None, as_json: bool, **options: Any) -> None:
    """Check gateway, TLS, clock, version, model server, GPU driver, memory, disk, key, agent, chain, containers.

    Containers are tried, for some seconds, where leases are offered or with --leases. Prints each result and what to
    do about it. The gateway is that of the running node, or the URL given. Ends with status 1 if something is wrong.
    """
    import asyncio

    from sparewatt.core.clock import SystemClock
    from sparewatt.node.doctor import run_diagnostics

    def show(line: str) -> None:
        output.note(f"Trying in containers: {line} …")

    report = asyncio.run(run_diagnostics(node_dir(data_dir), **options, clock=SystemClock(), on_progress=show))
    if as_json:
        output.print_json(report)
    else:
        _print_checks(report["checks"])
    if not report["ok"]:
        sys.exit(ExitCode.FAILURE)


def _print_checks(checks: list[dict[str, Any]]) -> None:
    columns: list[Column[dict[str, Any]]] = [
        left("", lambda check: _MARKS[check["verdict"]]),
        left("WHAT", lambda check: check["name"]),
        prose("FOUND", lambda check: check["found"]),
        prose("WHAT TO DO", lambda check: check.get("advice", "")),
    ]
    output.print_table(columns, checks)
    wrong = sum(check["verdict"] == "failure" for check in checks)
    output.note("Nothing is wrong." if not wrong else f"{wrong} of {len(checks)} are wrong; begin with the first.")


FOLLOW_S = 0.3
_SHOWN = ("t", "level", "logger", "event", "text")


@click.command("logs")
@click.option("-n", "--lines", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many lines.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As in the file: one object per line.")
@data_option
@examples("sparewatt node logs -n 200", "sparewatt node logs --follow")
def logs(*, lines: int, follow: bool, as_json: bool, data_dir: Path | None) -> None:
    """Show the agent's log. It holds ids and counts, never a prompt or an answer."""
    from sparewatt.node.log_file import follow_lines, last_lines

    folder = node_dir(data_dir)
    try:
        for line in last_lines(folder, lines):
            print(line if as_json else format_log_line(line))
    except FileNotFoundError:
        raise CliError(
            f"There is no log in {folder}.",
            next_step="A node writes one when it runs. Give its --data if it is elsewhere.",
        ) from None
    if follow:
        with contextlib.suppress(KeyboardInterrupt):
            for line in follow_lines(folder, wait=lambda: time.sleep(FOLLOW_S)):
                print(line if as_json else format_log_line(line), flush=True)


def format_log_line(line: str) -> str:
    """Time, event and fields of a line of JSON; any other line as it is."""
    try:
        entry = json.loads(line)
        when = dt.datetime.fromtimestamp(entry["t"]).astimezone()
    except (ValueError, KeyError, TypeError, OverflowError):
        return output.clean(line)
    event = entry.get("text") or entry.get("event", "")
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _SHOWN)
    mark = "" if entry.get("level") == "info" else f"{str(entry.get('level')).upper()} "
    return output.clean(f"{when:%Y-%m-%d %H:%M:%S}  {mark}{event}  {fields}".rstrip())
