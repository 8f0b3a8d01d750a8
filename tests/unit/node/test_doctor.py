from __future__ import annotations

import email.utils
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt import __version__
from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.machine.spawn import free_port
from sparewatt.node.doctor import (
    DoctorCheck,
    check_agent,
    check_chain,
    check_clock,
    check_containers,
    check_disk,
    check_gateway,
    check_gpus,
    check_key,
    check_memory,
    check_token,
    check_version,
    describe_connection_error,
    run_diagnostics,
)
from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.node.identity import KEY_FILE, load_or_create_key
from sparewatt.node.leases.runtime.loading import NO_DRIVER
from sparewatt.node.leases.runtime.model import RuntimeAbility, RuntimeTrouble
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.node_report import GpuReading

CARD = DetectedGpu("nvidia", "RTX 4090", 24 * 10**9, "580.1")


def verdicts(checks: list[DoctorCheck]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


# the machine


def test_a_gpu_without_its_driver_is_a_failure_and_no_gpu_is_a_warning(tmp_path: Path) -> None:
    assert verdicts(check_gpus([], [], pci=tmp_path)) == {"GPU": "warning"}
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030000\n")
    (wrong,) = check_gpus([], [], pci=tmp_path)
    assert wrong.verdict == "failure"
    assert "driver" in wrong.advice


def test_a_gpu_is_shown_with_its_current_readings() -> None:
    (found,) = check_gpus([CARD], [GpuReading(10 * 10**9, 99.6, 50.0, 0.25)])
    assert found.found == "RTX 4090, 24.0 GB, driver 580.1; now 10.0 GB free, 100 W, 50 °C, 25% busy"


def test_a_hot_gpu_is_a_warning() -> None:
    assert verdicts(check_gpus([CARD], [GpuReading(temperature_c=90.0)])) == {"GPU": "ok", "temperature": "warning"}


def test_little_memory_is_a_warning_and_little_disk_a_failure(tmp_path: Path) -> None:
    assert check_memory(10**9).verdict == "warning"
    assert check_memory(10**10).verdict == "ok"
    assert check_disk(tmp_path / "not" / "there", free_bytes=10**8).verdict == "failure"
    assert check_disk(tmp_path, free_bytes=10**10).verdict == "ok"


def test_the_key_must_exist_be_private_and_be_valid(tmp_path: Path) -> None:
    assert check_key(tmp_path).verdict == "warning"
    load_or_create_key(tmp_path, rng=seeded(1))
    assert check_key(tmp_path).verdict == "ok"
    (tmp_path / KEY_FILE).chmod(0o644)
    assert "chmod 600" in check_key(tmp_path).advice
    (tmp_path / KEY_FILE).write_text("no key")
    (tmp_path / KEY_FILE).chmod(0o600)
    assert check_key(tmp_path).verdict == "failure"


def status(**changes: Any) -> dict[str, Any]:
    warm = {"id": "m", "state": "warm", "measured": {}}
    plain = {"joined_at": 1.0, "gateway": "http://g", "version": "0.1.0", "server": {"kind": "vllm", "trouble": None}}
    return plain | {"models": [warm | {"measured": {"decode_tps": 1}}], "paused": None} | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"agent": "ok"}),
        ({"joined_at": None, "last_trouble": "refused"}, {"agent": "failure"}),
        ({"server": {"kind": "vllm", "trouble": "hangs"}}, {"agent": "ok", "fronted server": "failure"}),
        ({"paused": "its owner paused it"}, {"agent": "ok", "pause": "warning"}),
        ({"models": []}, {"agent": "ok", "models": "failure"}),
        ({"models": [{"id": "m", "state": "warm", "measured": None}]}, {"agent": "ok", "models": "warning"}),
    ],
)
def test_the_status_of_a_running_agent_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: dict[str, str]
) -> None:
    answer = {"status": status(**changes)}
    monkeypatch.setattr("sparewatt.node.doctor.ask", lambda _folder, _question: answer)
    checks, reported = check_agent(tmp_path)
    assert verdicts(checks) == expected
    assert reported == answer["status"]


def test_without_an_agent_the_advice_is_how_to_start_one(tmp_path: Path) -> None:
    (check,), reported = check_agent(tmp_path)
    assert reported is None
    assert "sparewatt node join" in check.advice


# the gateway


@asynccontextmanager
async def gateway(*, version: Any = None, has_link: bool = True) -> AsyncIterator[str]:
    async def answer_version(_: web.Request) -> web.Response:
        return web.json_response({"version": __version__, "link_protocol": 1} if version is None else version)

    async def link(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.close()
        return ws

    app = web.Application()
    app.router.add_get("/version", answer_version)
    if has_link:
        app.router.add_get(LINK_PATH, link)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def look(url: str) -> list[DoctorCheck]:
    async with aiohttp.ClientSession() as session:
        return await check_gateway(url, session, unix_s=SystemClock().unix_s)


async def test_a_healthy_gateway_passes_every_check() -> None:
    async with gateway() as url:
        assert verdicts(await look(url)) == {"gateway": "ok", "version": "ok", "clock": "ok", "link": "ok"}


async def test_a_proxy_that_blocks_websockets_is_a_failure() -> None:
    async with gateway(has_link=False) as url:
        checks = await look(url)
    assert checks[-1].verdict == "failure"
    assert "proxy" in checks[-1].advice


async def test_a_server_that_is_no_gateway_is_a_failure() -> None:
    async with gateway(version=["hello"]) as url:
        (check,) = await look(url)
    assert "no Sparewatt gateway" in check.found


async def test_a_refused_connection_is_a_failure() -> None:
    (check,) = await look(f"http://127.0.0.1:{free_port()}")
    assert (check.verdict, "port right" in check.advice) == ("failure", True)


async def test_an_unknown_host_name_and_plain_http_to_another_machine_are_failures() -> None:
    (unsafe,) = await look("http://gateway.example")
    assert "plain http://" in unsafe.found
    (unknown,) = await look("https://no-such-gateway.invalid")
    assert unknown.verdict == "failure"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ssl.SSLCertVerificationError("self-signed"), "certificate"),
        (ssl.SSLError("wrong version"), "TLS"),
        (TimeoutError(), "firewall"),
        (ValueError("no JSON"), "gateway"),
    ],
)
def test_a_connection_error_is_described_in_words(error: Exception, word: str) -> None:
    check = describe_connection_error("https://g", error)
    assert word in check.found + check.advice


def test_an_incompatible_version_names_the_side_to_update() -> None:
    assert check_version("9.9.9").verdict == "failure"
    assert "Update the agent" in check_version("9.9.9").found
    assert check_version(__version__).verdict == "ok"


@pytest.mark.parametrize(("ahead_s", "verdict"), [(0, "ok"), (300, "warning"), (-300, "warning")])
def test_a_skewed_clock_is_a_warning(ahead_s: float, verdict: str) -> None:
    assert check_clock(email.utils.formatdate(1e9, usegmt=True), 1e9 + ahead_s).verdict == verdict


def test_a_gateway_without_a_date_is_a_warning_and_a_malformed_token_a_failure() -> None:
    assert check_clock(None, 0.0).verdict == "warning"
    assert check_token(None) == []
    assert verdicts(check_token("sk-sw-123")) == {"token": "failure"}
    assert verdicts(check_token("join-sw-123")) == {"token": "ok"}


async def test_diagnostics_of_a_machine_without_anything_list_what_is_missing(tmp_path: Path) -> None:
    found = await run_diagnostics(
        tmp_path,
        gateway_url=f"http://127.0.0.1:{free_port()}",
        token=None,
        backend_url=f"http://127.0.0.1:{free_port()}",
        chain_url="localhost",
        insecure=False,
        measure=False,
        clock=SystemClock(),
    )
    assert found["ok"] is False
    wrong = {check["name"] for check in found["checks"] if check["verdict"] == "failure"}
    assert wrong >= {"model server", "gateway", "chain"}
    assert all(check.get("advice") for check in found["checks"] if check["verdict"] != "ok")


# containers


def test_containers_without_limits_are_a_failure_with_its_remedy() -> None:
    trouble = RuntimeTrouble("neither Docker nor podman is installed", "Install one")
    (found,) = check_containers(RuntimeAbility(troubles=(trouble,)))
    assert (found.verdict, found.advice) == ("failure", "Install one")
    assert verdicts(check_containers(NO_DRIVER)) == {"containers": "failure"}


def test_containers_without_an_egress_table_are_a_warning() -> None:
    able = RuntimeAbility(engine="podman 4.3.1", socket="/s", limits=True, egress=True, gpus="cdi")
    assert verdicts(check_containers(able)) == {"containers": "ok", "egress": "ok", "GPUs in containers": "ok"}
    trouble = RuntimeTrouble("no egress table: nft is not installed", "Install it")
    less = check_containers(RuntimeAbility(engine="podman 4.3.1", limits=True, troubles=(trouble,)))
    assert [check.verdict for check in less] == ["ok", "warning"]
    assert "is watched" in less[0].found


async def test_containers_are_tried_only_where_leases_are_offered(tmp_path: Path) -> None:
    async def names(*, leases: bool) -> set[str]:
        report = await run_diagnostics(
            tmp_path,
            gateway_url=None,
            token=None,
            backend_url=f"http://127.0.0.1:{free_port()}",
            chain_url=None,
            insecure=False,
            measure=False,
            clock=SystemClock(),
            leases=leases,
            container_socket=tmp_path / "none.sock",
        )
        return {check["name"] for check in report["checks"]}

    assert "containers" not in await names(leases=False)
    assert "containers" in await names(leases=True)
    (tmp_path / "terms.json").write_text('{"leases": true}')
    assert "containers" in await names(leases=False)


# the owner's chain


@asynccontextmanager
async def chain_node(*, height: int = 90, chain_id: int = 31337) -> AsyncIterator[str]:
    block = {"hash": "0x" + "1" * 64, "parentHash": "0x" + "2" * 64, "timestamp": "0x1"}

    async def handle(request: web.Request) -> web.Response:
        call = await request.json()
        number = hex(height) if call["params"][:1] == ["latest"] else "0x0"
        result = hex(chain_id) if call["method"] == "eth_chainId" else block | {"number": number}
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})

    app = web.Application()
    app.router.add_post("/", handle)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def market_status(**told: Any) -> dict[str, Any]:
    return {"leases": True, "lease_market": {"chain_id": 31337, "told_height": 92} | told}


async def test_a_chain_of_the_owners_choice_is_checked() -> None:
    async with chain_node() as url:
        (found,) = await check_chain(url, market_status(), clock=SystemClock())
        assert found.verdict == "ok"
        assert "block 90" in found.found
        assert verdicts(await check_chain(url, None, clock=SystemClock())) == {"chain": "ok"}


@pytest.mark.parametrize(("told", "word"), [({"chain_id": 1}, "the network's is 1"), ({"told_height": 94}, "94")])
async def test_another_chain_or_one_behind_is_a_failure(told: dict[str, Any], word: str) -> None:
    async with chain_node() as url:
        (found,) = await check_chain(url, market_status(**told), clock=SystemClock())
    assert found.verdict == "failure"
    assert word in found.found


async def test_a_chain_that_does_not_answer_is_a_failure() -> None:
    (found,) = await check_chain(f"http://127.0.0.1:{free_port()}", market_status(), clock=SystemClock())
    assert found.verdict == "failure"
    assert "no bid" in found.advice


async def test_without_a_chain_an_owner_of_leases_is_told_whose_word_counts() -> None:
    (found,) = await check_chain(None, market_status(), clock=SystemClock())
    assert (found.verdict, "gateway's word" in found.found) == ("warning", True)
    assert await check_chain(None, {"leases": False}, clock=SystemClock()) == []
