"""Diagnostics for `sparewatt node doctor`: this machine, the agent that may run on it, and the way to the gateway.

Each check looks at one thing and returns a verdict with advice; none changes anything, but that containers are tried
where leases are offered. `run_diagnostics` runs them all.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import shutil
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec
import psutil

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainRefused, ChainUnavailable, StartupError
from sparewatt.core.rng import SystemRng
from sparewatt.core.versions import version_conflict
from sparewatt.node.backends.backend_source import how_to_serve, http_address
from sparewatt.node.backends.discovery import DiscoveredServer, describe_servers, find_local_servers, inspect_server
from sparewatt.node.hardware.detection import HostGpuProbe, gpu_name
from sparewatt.node.hardware.gpu import GB, DetectedGpu
from sparewatt.node.hardware.gpu_bench import GpuSpeed, bench_in_subprocess
from sparewatt.node.identity import KEY_FILE
from sparewatt.node.leases.chain_check import ChainCheck
from sparewatt.node.leases.runtime.loading import NO_DRIVER, load_runtime
from sparewatt.node.leases.runtime.model import RuntimeAbility
from sparewatt.node.owner.control_socket import NodeNotRunning, ask
from sparewatt.node.process import check_gateway_url
from sparewatt.node.settings import read_saved_settings
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.node_report import GpuReading
from sparewatt.protocol.signing import SigningKey

PCI = Path("/sys/bus/pci/devices")
NVIDIA_PCI, DISPLAY_CLASS = "0x10de", "0x03"
MEMORY_BYTES_MIN = 2 * GB
DISK_BYTES_MIN = GB
HOT_C = 87.0
"""Where GPUs begin to throttle."""
REQUEST_S = 10.0
BLOCKS_BEHIND_MAX = 3
SKEW_S = 60.0
"""Signatures carry no time, but schedules and logs do; a larger skew confuses people."""
TOKEN_START = "join-sw-"  # noqa: S105 (how tokens begin)

CheckVerdict = Literal["ok", "warning", "failure"]


class DoctorCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    verdict: CheckVerdict
    found: str
    """What is so, in a sentence."""
    advice: str = ""
    """Empty if there is nothing to do."""


async def run_diagnostics(
    data_dir: Path,
    *,
    gateway_url: str | None,
    token: str | None,
    backend_url: str | None,
    chain_url: str | None,
    insecure: bool,
    measure: bool,
    clock: Clock,
    leases: bool = False,
    container_socket: Path | None = None,
    on_progress: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Ready for JSON: `ok`, `checks`, and what was found. `leases`: try containers, also if none are offered."""
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
    saved = read_saved_settings(data_dir)
    checks += await check_chain(chain_url or saved.chain_url, status, clock=clock)
    ability = None
    if leases or saved.leases or (status or {}).get("leases"):
        socket = container_socket or (Path(saved.container_socket) if saved.container_socket else None)
        ability = await try_containers(socket, gpu_count=len(gpus), clock=clock, on_progress=on_progress)
        checks += check_containers(ability)
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
        "containers": msgspec.to_builtins(ability),
        "agent": status,
    }


def ok(name: str, found: str) -> DoctorCheck:
    return DoctorCheck(name, "ok", found)


def warning(name: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(name, "warning", found, advice)


def failure(name: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(name, "failure", found, advice)


# this machine


def check_gpus(gpus: Sequence[DetectedGpu], readings: Sequence[GpuReading], *, pci: Path = PCI) -> list[DoctorCheck]:
    if not gpus:
        if _has_nvidia_card(pci):
            found = "there is an NVIDIA card in this machine, but its driver does not answer"
            advice = (
                "Install NVIDIA's driver, or start the machine again after an update. 'nvidia-smi' must list the card."
            )
            return [failure("GPU", found, advice)]
        return [warning("GPU", "none was found; the processor does the work", "Fine for small models.")]
    padded = (*readings, *[GpuReading()] * len(gpus))
    return [check for gpu, reading in zip(gpus, padded, strict=False) for check in _check_gpu(gpu, reading)]


def _check_gpu(gpu: DetectedGpu, reading: GpuReading) -> list[DoctorCheck]:
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    checks = [ok("GPU", f"{gpu.model}, {gpu.vram_bytes / GB:.1f} GB{driver}{_describe_reading(reading)}")]
    if reading.temperature_c is not None and reading.temperature_c >= HOT_C:
        found = f"{gpu.model} is at {reading.temperature_c:.0f} °C and slows itself down"
        advice = "Clean its fans, or set a ceiling: sparewatt node schedule --max-temperature 80."
        checks.append(warning("temperature", found, advice))
    return checks


def _describe_reading(reading: GpuReading) -> str:
    figures = (
        (reading.vram_free_bytes, 1 / GB, "{:.1f} GB free"),
        (reading.power_watts, 1, "{:.0f} W"),
        (reading.temperature_c, 1, "{:.0f} °C"),
        (reading.utilisation, 1, "{:.0%} busy"),
    )
    words = [text.format(value * scale) for value, scale, text in figures if value is not None]
    return f"; now {', '.join(words)}" if words else ""


def _has_nvidia_card(pci: Path) -> bool:
    for device in pci.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == NVIDIA_PCI and kind.startswith(DISPLAY_CLASS):
            return True
    return False


def check_memory(available_bytes: int | None = None) -> DoctorCheck:
    free = int(psutil.virtual_memory().available) if available_bytes is None else available_bytes
    if free < MEMORY_BYTES_MIN:
        advice = "Close what you do not need, or use a smaller model."
        return warning("memory", f"only {free / GB:.1f} GB are free", advice)
    return ok("memory", f"{free / GB:.1f} GB are free")


def check_disk(data_dir: Path, *, free_bytes: int | None = None) -> DoctorCheck:
    place = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free if free_bytes is None else free_bytes
    if free < DISK_BYTES_MIN:
        found = f"only {free / GB:.2f} GB are free at {place}"
        return failure("disk", found, "Make room: receipts and logs need some.")
    return ok("disk", f"{free / GB:.0f} GB are free at {place}")


def check_key(data_dir: Path) -> DoctorCheck:
    path = data_dir / KEY_FILE
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            return failure("key", f"{path} can be read by others", f"Run: chmod 600 {path}")
        address = SigningKey.read(path).address
    except FileNotFoundError:
        advice = "The first join makes one, and needs a token."
        return warning("key", "no node has joined from this directory yet", advice)
    except PermissionError:
        return failure("key", f"{path} belongs to another user", "Run this as the user that the node runs as.")
    except (OSError, ValueError):
        return failure("key", f"{path} holds no key", "Restore it from a backup, or delete it to join as a new node.")
    return ok("key", f"this node is {address}")


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


# the agent


def check_agent(data_dir: Path) -> tuple[list[DoctorCheck], dict[str, Any] | None]:
    """With the agent's own status, if it runs."""
    try:
        status = ask(data_dir, {"do": "status"}).get("status")
    except NodeNotRunning:
        return [warning("agent", "no agent runs here", "Start it: sparewatt node join URL --token T")], None
    if not isinstance(status, dict):
        return [failure("agent", "the agent here does not understand this command", "Start it again.")], None
    return _check_status(status), status


def _check_status(status: dict[str, Any]) -> list[DoctorCheck]:
    checks = [_check_link(status)]
    server, models = status.get("server") or {}, status.get("models") or []
    if server.get("trouble"):
        advice = "Start the model server again; the node comes back by itself."
        checks.append(failure("fronted server", f"{server.get('kind')}: {server['trouble']}", advice))
    if status.get("paused"):
        advice = "sparewatt node resume, or change the schedule."
        checks.append(warning("pause", f"it takes no jobs: {status['paused']}", advice))
    if not server.get("trouble") and not models:
        checks.append(failure("models", "the model server has no model", "Load one there, e.g. ollama pull llama3.2."))
    unmeasured = [model["id"] for model in models if not model.get("measured") and model.get("state") == "warm"]
    if unmeasured:
        advice = "A model gets jobs once it is measured; wait a minute, then see the log."
        checks.append(warning("models", f"not measured yet: {', '.join(unmeasured)[:200]}", advice))
    return checks


def _check_link(status: dict[str, Any]) -> DoctorCheck:
    if status.get("joined_at") is None:
        why = status.get("last_trouble") or "it has not joined yet"
        advice = "It keeps dialling by itself; the gateway's checks below say what is in the way."
        return failure("agent", f"it runs, but has no link to {status.get('gateway')} ({why})", advice)
    return ok("agent", f"it runs, version {status.get('version')}, joined to {status.get('gateway')}")


# the owner's chain


async def check_chain(url: str | None, status: dict[str, Any] | None, *, clock: Clock) -> list[DoctorCheck]:
    """Whether it answers, is the gateway's chain, and is not behind what the gateway has told."""
    market = (status or {}).get("lease_market") or {}
    if url is None:
        if not (status or {}).get("leases"):
            return []
        found = "leases are offered by the gateway's word on orders and validators"
        return [
            warning("chain", found, "Give the node a chain's node of your own: sparewatt node join … --chain-url URL")
        ]
    if http_address(url) is None:
        return [failure("chain", f"{url!r} is no address", "It looks like http://127.0.0.1:8545.")]
    chain = ChainCheck.at(url, clock=clock)
    try:
        async with asyncio.timeout(REQUEST_S):
            chain_id, head = (await chain.client.identity()).chain_id, (await chain.client.head()).number
    except (ChainUnavailable, ChainRefused, TimeoutError) as error:
        found = f"{url} does not answer as a chain's node ({error or 'no answer in time'})"
        return [
            failure("chain", found, "Start it, or give another with --chain-url. Without it the node makes no bid.")
        ]
    finally:
        await chain.close()
    return [_judge_chain(url, chain_id, head, market)]


def _judge_chain(url: str, chain_id: int, head: int, market: dict[str, Any]) -> DoctorCheck:
    expected, told = market.get("chain_id"), market.get("told_height") or 0
    if expected is not None and chain_id != expected:
        found = f"{url} is the chain {chain_id}, the network's is {expected}"
        return failure("chain", found, "Give a node of the network's own chain with --chain-url.")
    if head < told - BLOCKS_BEHIND_MAX:
        advice = "Wait until it has caught up; the node makes no bid meanwhile."
        return failure("chain", f"{url} is at block {head:,}, the gateway has told of {told:,}", advice)
    return ok("chain", f"{url} is the chain {chain_id}, at block {head:,}")


# containers for leases


async def try_containers(
    socket: Path | None, *, gpu_count: int, clock: Clock, on_progress: Callable[[str], None]
) -> RuntimeAbility:
    """Takes a few seconds, at most a minute and a half."""
    runtime = load_runtime(socket=socket, state_dir=None, gpu_count=gpu_count, clock=clock, rng=SystemRng())
    if runtime is None:
        return NO_DRIVER
    try:
        return await runtime.ability(again=True, on_progress=on_progress)
    finally:
        await runtime.close()


def check_containers(found: RuntimeAbility) -> list[DoctorCheck]:
    """Without limits no lease runs here. Without anything else, leases that need it do not."""
    if not found.limits:
        return [failure("containers", trouble.what, trouble.remedy) for trouble in found.troubles]
    disk = "the file system enforces disk limits" if found.disk_kind else "the disk is watched, and a full one paused"
    checks = [
        ok("containers", f"{found.engine} at {found.socket}: limits of memory, processor and processes hold; {disk}")
    ]
    if found.egress:
        checks.append(ok("egress", "leases reach public addresses only: host, private networks and others were tried"))
    if found.gpus is not None:
        checks.append(ok("GPUs in containers", f"whole cards, by {found.gpus.replace('_', ' ')}"))
    return checks + [warning("containers", trouble.what, trouble.remedy) for trouble in found.troubles]


# the way to the gateway


async def check_gateway(
    url: str, session: aiohttp.ClientSession, *, unix_s: Callable[[], float], insecure: bool = False
) -> list[DoctorCheck]:
    """Name, TLS, answer, version, clock, WebSocket. Each step needs the one before; the first failure is the last."""
    try:
        check_gateway_url(url, insecure=insecure)
    except StartupError as error:
        return [failure("gateway", error.message, "Check the address.")]
    root = url.rstrip("/").removesuffix("/v1")
    try:
        async with session.get(f"{root}/version", timeout=aiohttp.ClientTimeout(total=REQUEST_S)) as reply:
            answer: Any = await reply.json(content_type=None)
            date, status = reply.headers.get("Date"), reply.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return [describe_connection_error(root, error)]
    if status != 200 or not isinstance(answer, dict) or "link_protocol" not in answer:
        return [failure("gateway", f"{root} answers, but is no Sparewatt gateway ({status})", "Check the address.")]
    checks = [ok("gateway", f"{root} answers"), check_version(str(answer.get("version"))), check_clock(date, unix_s())]
    return [*checks, await _check_socket(root, session)]


def describe_connection_error(root: str, error: Exception) -> DoctorCheck:
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            found = f"the certificate of {root} is not to be trusted ({error})"
            advice = (
                "Check the address and this machine's clock; if a company proxy is in between, install its certificate."
            )
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            found = f"{root} does not speak TLS"
            advice = "Is it http:// and not https://, or another port?"
        case aiohttp.ClientConnectorDNSError():
            found = f"the name in {root} cannot be found"
            advice = "Check the address, and this machine's connection."
        case TimeoutError():
            found = f"{root} does not answer within {REQUEST_S:.0f} s"
            advice = "A firewall may let nothing out to that port; the node needs only this one outgoing connection."
        case aiohttp.ClientConnectorError():
            found = f"{root} refuses connections ({error.strerror or error})"
            advice = "Is the gateway running, and the port right?"
        case _:
            found = f"{root} answers nothing that makes sense ({type(error).__name__})"
            advice = "Check the address: is there a Sparewatt gateway?"
    return failure("gateway", found, advice)


def check_version(gateway: str) -> DoctorCheck:
    conflict = version_conflict(agent=__version__, gateway=gateway)
    if conflict is not None:
        return failure("version", conflict, "pip install the wheel that the gateway's join line names.")
    return ok("version", f"agent {__version__} and gateway {gateway} work together")


def check_clock(date: str | None, now_unix_s: float) -> DoctorCheck:
    """By the gateway's clock, to the second."""
    try:
        skew_s = now_unix_s - email.utils.parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return warning("clock", "the gateway does not tell its time", "Nothing to do.")
    if abs(skew_s) > SKEW_S:
        ahead = "ahead of" if skew_s > 0 else "behind"
        found = f"this machine's clock is {abs(skew_s):.0f} s {ahead} the gateway's"
        return warning("clock", found, "Switch on time synchronisation: schedules and certificates depend on it.")
    return ok("clock", f"within {max(1, round(abs(skew_s)))} s of the gateway's")


async def _check_socket(root: str, session: aiohttp.ClientSession) -> DoctorCheck:
    try:
        async with asyncio.timeout(REQUEST_S), session.ws_connect(root + LINK_PATH):
            return ok("link", "a WebSocket gets through: no port has to be open here")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        found = f"the gateway answers, but no WebSocket gets through ({type(error).__name__})"
        return failure("link", found, "A proxy on the way must let WebSockets pass; try another network.")


def check_token(token: str | None) -> list[DoctorCheck]:
    """Only its form: a real check would use it up."""
    if token is None:
        return []
    if not token.startswith(TOKEN_START):
        advice = f"It begins with {TOKEN_START}; 'sparewatt node token' makes one."
        return [failure("token", "this is no join token", advice)]
    return [ok("token", "it has the form of a join token (each is good once, for 24 hours)")]
