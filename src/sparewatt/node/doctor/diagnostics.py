"""All checks of a node, one after the other, and the facts that they are made from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.node.backends.backend import BackendError
from sparewatt.node.backends.backend_source import how_to_serve
from sparewatt.node.backends.discovery import DiscoveredServer, describe_servers, detect_backend, find_local_servers
from sparewatt.node.doctor.check import DoctorCheck, failure, ok, warning
from sparewatt.node.doctor.gateway_checks import check_gateway, check_token
from sparewatt.node.doctor.machine_checks import check_agent, check_disk, check_gpus, check_key, check_memory
from sparewatt.node.hardware.detection import HostGpuProbe, gpu_name
from sparewatt.node.hardware.gpu_bench import bench_in_subprocess
from sparewatt.node.hardware.sensor_sampler import as_gpu_reading


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
    """As JSON would have it: `ok`, `checks`, and what was found."""
    checks, status = check_agent(data_dir)
    machine = await asyncio.to_thread(HostGpuProbe)
    readings = await asyncio.to_thread(machine.read)
    checks += [*check_gpus(machine.gpus(), readings), check_memory(), check_disk(data_dir), check_key(data_dir)]
    speed = await bench_in_subprocess() if measure else None
    if speed is not None:
        checks.append(
            warning("measurement", speed.why_not, "Install torch or CuPy here to measure the GPU itself.")
            if speed.why_not
            else ok("measurement", f"copies {(speed.copy_bytes_s or 0) / 1e12:.2f} TB/s, {speed.fp16_tflops} TFLOP/s")
        )
    url = gateway_url or (status or {}).get("gateway")
    async with aiohttp.ClientSession() as session:
        server_url = backend_url or ((status or {}).get("server") or {}).get("url")
        servers = await _servers(session, server_url)
        checks.append(_check_servers(servers, server_url))
        if isinstance(url, str):
            checks += await check_gateway(url, session, unix_s=clock.unix_s, insecure=insecure)
    checks += check_token(token)
    return {
        "ok": all(check.verdict != "failure" for check in checks),
        "version": __version__,
        "checks": [msgspec.to_builtins(check) for check in checks],
        "gpu": gpu_name(machine.gpus()),
        "gpus": [msgspec.to_builtins(gpu) for gpu in machine.gpus()],
        "readings": [msgspec.to_builtins(as_gpu_reading(reading)) for reading in readings],
        "measured": msgspec.to_builtins(speed) if speed is not None else None,
        "servers": [msgspec.to_builtins(server) for server in servers],
        "agent": status,
    }


async def _servers(session: aiohttp.ClientSession, backend_url: str | None) -> list[DiscoveredServer]:
    if backend_url is None:
        return await find_local_servers(session)
    adapter = await detect_backend(backend_url, session)
    try:
        models = await adapter.models()
    except BackendError:
        return []
    return [DiscoveredServer(backend_url, adapter.kind, len(models), sum(model.state == "warm" for model in models))]


def _check_servers(servers: list[DiscoveredServer], backend_url: str | None) -> DoctorCheck:
    if not servers:
        where = backend_url or "the usual ports of this machine"
        return failure(
            "model server",
            f"none answers at {where}",
            f"Start Ollama, LM Studio, vLLM, SGLang or llama.cpp, or join{how_to_serve()}.",
        )
    loaded = sum(server.warm for server in servers)
    return ok("model server", f"{describe_servers(servers)}; {sum(s.models for s in servers)} models, {loaded} loaded")
