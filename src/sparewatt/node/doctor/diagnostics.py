"""Runs all checks of a node, and collects the facts that they are made from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.node.backends.backend_source import how_to_serve
from sparewatt.node.backends.discovery import DiscoveredServer, describe_servers, find_local_servers, inspect_server
from sparewatt.node.doctor.checks import (
    DoctorCheck,
    check_agent,
    check_disk,
    check_gateway,
    check_gpus,
    check_key,
    check_memory,
    check_token,
    failure,
    ok,
    warning,
)
from sparewatt.node.hardware.detection import HostGpuProbe, gpu_name
from sparewatt.node.hardware.gpu_bench import GpuSpeed, bench_in_subprocess


async def run_diagnostics(
    data_dir: Path,
    *,
    gateway_url: str | None,
    token: str | None,
    backend_url: str | None,
    insecure: bool,
    measure: bool,
    clock: Clock,
) -> dict[str, Any]:
    """Ready for JSON: `ok`, `checks`, and what was found."""
    checks, status = check_agent(data_dir)
    gpu_probe = await asyncio.to_thread(HostGpuProbe)
    gpus, readings = gpu_probe.gpus(), await asyncio.to_thread(gpu_probe.read)
    checks += [*check_gpus(gpus, readings), check_memory(), check_disk(data_dir), check_key(data_dir)]
    speed = await bench_in_subprocess() if measure else None
    if speed is not None:
        checks.append(_check_speed(speed))
    url = gateway_url or (status or {}).get("gateway")
    server_url = backend_url or ((status or {}).get("server") or {}).get("url")
    async with aiohttp.ClientSession() as session:
        if server_url is None:
            servers = await find_local_servers(session)
        else:
            servers = [found for found in [await inspect_server(server_url, session)] if found is not None]
        checks.append(_check_servers(servers, server_url))
        if isinstance(url, str):
            checks += await check_gateway(url, session, unix_s=clock.unix_s, insecure=insecure)
    checks += check_token(token)
    return {
        "ok": all(check.verdict != "failure" for check in checks),
        "version": __version__,
        "checks": msgspec.to_builtins(checks),
        "gpu": gpu_name(gpus),
        "gpus": msgspec.to_builtins(gpus),
        "readings": msgspec.to_builtins(readings),
        "measured": msgspec.to_builtins(speed),
        "servers": msgspec.to_builtins(servers),
        "agent": status,
    }


def _check_speed(speed: GpuSpeed) -> DoctorCheck:
    if speed.why_not:
        return warning("measurement", speed.why_not, "Install torch or CuPy here to measure the GPU itself.")
    copies = (speed.copy_bytes_s or 0) / 1e12
    return ok("measurement", f"copies {copies:.2f} TB/s, {speed.fp16_tflops} TFLOP/s")


def _check_servers(servers: Sequence[DiscoveredServer], backend_url: str | None) -> DoctorCheck:
    if not servers:
        where = backend_url or "the usual ports of this machine"
        return failure(
            "model server",
            f"none answers at {where}",
            f"Start Ollama, LM Studio, vLLM, SGLang or llama.cpp, or join{how_to_serve()}.",
        )
    loaded = sum(server.warm for server in servers)
    return ok("model server", f"{describe_servers(servers)}; {sum(s.models for s in servers)} models, {loaded} loaded")
