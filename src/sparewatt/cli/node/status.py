"""`sparewatt node status`: this machine's node as it sees itself."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import click

from sparewatt.cli import output
from sparewatt.cli.context import json_option
from sparewatt.cli.node.agent import agent_not_running, ask_agent, data_option, node_dir


@click.command("status")
@data_option
@json_option
def status(*, data_dir: Path | None, as_json: bool) -> None:
    """Show this machine's node: its link, its models, its GPUs, what it does and why it rests.

    \b
    Example:
      sparewatt node status
      sparewatt node status --json
    """
    folder = node_dir(data_dir)
    found = ask_agent(folder, {"do": "status"})
    if found is None:
        raise agent_not_running(folder)
    if as_json:
        output.print_json(found)
        return
    print_status(found, now_s=time.time())


def print_status(found: dict[str, Any], *, now_s: float) -> None:
    output.print_facts(_facts(found, now_s=now_s))
    if found["models"]:
        output.print_title("Models")
        columns = [*output.left("MODEL", "STATE"), *output.right("READS/S", "WRITES/S", "AT ONCE", "FIRST TOKEN")]
        output.print_table(columns, [_model_row(model) for model in found["models"]], may_drop=("AT ONCE", "READS/S"))
    if found["gpus"]:
        output.print_title("GPUs")
        columns = [*output.left("GPU"), *output.right("FREE", "POWER", "TEMPERATURE", "BUSY", "COPIES", "TFLOP/S")]
        readings = [*found["readings"], *[{}] * len(found["gpus"])]
        rows = [_gpu_row(gpu, reading) for gpu, reading in zip(found["gpus"], readings, strict=False)]
        output.print_table(columns, rows, may_drop=("COPIES", "TFLOP/S"))


def _facts(found: dict[str, Any], *, now_s: float) -> list[tuple[str, output.Cell | str]]:
    facts: list[tuple[str, output.Cell | str]] = [
        ("Node", f"{found['name']} ({found['id']})"),
        ("State", _state(found)),
        ("Gateway", f"{found['gateway']}{_since(found, now_s)}"),
        ("Server", _server(found)),
        (
            "Jobs",
            f"{found['running']} of {found['slots']} running, {found['queued']} waiting, {found['foreign']} of others",
        ),
        ("Price", describe_price(found)),
    ]
    if found["paused"]:
        facts.insert(2, ("Paused", f"{found['paused']}{_until(found)}"))
    if found["hours"]:
        facts.append(("Hours", found["hours"]))
    wishes = found["wishes"]
    ceilings = [
        text
        for name, text in (("watts_max", "{:g} W"), ("temperature_max_c", "{:g} °C"))
        for text in ([text.format(wishes[name])] if wishes.get(name) else [])
    ]
    if ceilings:
        facts.append(("Ceilings", ", ".join(ceilings)))
    if found["power_watts"] is not None:
        facts.append(("Power", f"{found['power_watts']:.0f} W now"))
    if found["measuring"]:
        facts.append(("Measuring", found["measuring"]))
    return facts


def _state(found: dict[str, Any]) -> output.Cell:
    cell = output.state_cell(found["state"])
    if found["state"] != "no_server":
        return cell
    return output.Cell("✕ joined, but its model server is gone: no job comes until it is back", cell.style)


def describe_price(found: dict[str, Any]) -> str:
    """What was set: prices per token stand before the price per hour, as they do when a job is charged."""
    per_token = [
        f"{output.format_usd(found[name])} per 1M {what}"
        for name, what in (("prompt_usd_per_mtok", "read"), ("completion_usd_per_mtok", "written"))
        if found.get(name) is not None
    ]
    if len(per_token) == 2:
        return ", ".join(per_token)
    return ", ".join([*per_token, f"{output.format_usd(found['hourly_usd'])} an hour"])


def _since(found: dict[str, Any], now_s: float) -> str:
    if found["joined_at"] is None:
        return f", no link ({found['last_trouble'] or 'dialling'})"
    return f", joined {output.ago(found['joined_at'], now_s=now_s)}"


def _server(found: dict[str, Any]) -> str:
    trouble = found["server"]["trouble"]
    return f"{found['server']['kind']}: {trouble}" if trouble else str(found["server"]["kind"])


def _until(found: dict[str, Any]) -> str:
    ends = found["pause_ends_at"]
    if not ends or ends <= time.time():
        return ""
    return f", until {dt.datetime.fromtimestamp(ends).astimezone():%Y-%m-%d %H:%M}"


def _model_row(model: dict[str, Any]) -> list[str]:
    measured = model.get("measured") or {}
    batch = measured.get("batch_decode_tps")
    ttft_s = measured.get("ttft_s")
    return [
        model["id"],
        model["state"].replace("_", " "),
        output.format_rate(measured.get("prefill_tps")),
        output.format_rate(measured.get("decode_tps")),
        f"{output.format_rate(batch)} ({measured['batch']})" if batch else output.UNKNOWN,
        output.format_ms(None if ttft_s is None else ttft_s * 1000),
    ]


def _gpu_row(gpu: dict[str, Any], reading: dict[str, Any]) -> list[str]:
    copies, tflops = gpu.get("copy_bytes_s"), gpu.get("fp16_tflops")

    def told(name: str, text: str) -> str:
        value = reading.get(name)
        return output.UNKNOWN if value is None else text.format(value)

    return [
        gpu["model"],
        output.format_bytes(reading.get("vram_free_bytes")),
        told("power_watts", "{:.0f} W"),
        told("temperature_c", "{:.0f} °C"),
        told("utilisation", "{:.0%}"),
        f"{copies / 1e12:.2f} TB/s" if copies else output.UNKNOWN,
        f"{tflops:.0f}" if tflops else output.UNKNOWN,
    ]
