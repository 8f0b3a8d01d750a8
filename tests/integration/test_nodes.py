"""Nodes that join, refuse to die, leave, and lie about who they are."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sparewatt.core.errors import JoinRefused
from sparewatt.core.rng import SystemRng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.machine.spawn import free_port
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing import expected_text, render_chat
from tests.integration.asking import ask, at_once, chat_body, connection_to, stream_chat
from tests.integration.cascade import all_serving, check_texts, is_serving, kill_under_streams, nodes, pid_of
from tests.integration.networks import Network, start_network
from tests.processes import commands_of, end_process, start_process, tail, wait_until

SPECS = NodeSpecs(
    name="stranger",
    region="nowhere",
    gpu="cpu",
    gpu_count=0,
    vram_bytes=10**9,
    tflops=1.0,
    hourly_price_nano=0,
    slots=1,
    backend="openai",
    agent_version="0.1.0",
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedPostgres) -> Iterator[Network]:
    """Two nodes that report often, so that silence shows soon."""
    folder = tmp_path_factory.mktemp("nodes")
    env = {"SPAREWATT_GATEWAY_HEARTBEAT_S": "0.3"}
    with start_network(folder, "--engine=deterministic", "--nodes=2", env=env, server=server) as network:
        yield network


def new_token(network: Network, **more: object) -> str:
    token: str = ask(network, "POST", "/v1/join-tokens", more).json()["token"]
    return token


async def knock(network: Network, *, key: SigningKey, token: str | None, host: str | None = None) -> None:
    """Dial in and introduce oneself, then leave."""
    async with aiohttp.ClientSession() as session:
        socket = await dial(network.root_url + LINK_PATH, session=session)
        try:
            await authenticate_to_gateway(
                socket,
                key=key,
                host=host or host_of(network.root_url),
                token=token,
                specs=SPECS,
                agent_version="0.1.0",
                rng=SystemRng(),
            )
        finally:
            socket.close()
            await socket.wait_closed()


class Impostor(SigningKey):
    """Says that it is another node, and signs with its own key."""

    def __init__(self, secret: bytes, *, pretends: str) -> None:
        super().__init__(secret)
        self.address = pretends  # type: ignore[assignment]


async def refused(network: Network, *, reason: str, **how: Any) -> None:
    before = nodes(network)
    with pytest.raises(JoinRefused) as refusal:
        await knock(network, **how)
    assert refusal.value.reason == reason
    assert set(nodes(network)) == set(before)


async def test_a_node_without_a_token_or_with_an_unknown_one_is_refused(network: Network) -> None:
    key = SigningKey.generate(rng=SystemRng())
    await refused(network, reason="no_token", key=key, token=None)
    await refused(network, reason="token_unknown", key=key, token="join-sw-" + "0" * 40)


async def test_a_used_token_is_refused_for_another_node(network: Network) -> None:
    token = new_token(network)
    await knock(network, key=SigningKey.generate(rng=SystemRng()), token=token)
    await refused(network, reason="token_used", key=SigningKey.generate(rng=SystemRng()), token=token)


async def test_an_expired_token_is_refused(network: Network) -> None:
    token = new_token(network, life_s=0.001)
    await refused(network, reason="token_expired", key=SigningKey.generate(rng=SystemRng()), token=token)


async def test_a_registered_node_needs_no_token_any_more(network: Network) -> None:
    key = SigningKey.generate(rng=SystemRng())
    await knock(network, key=key, token=new_token(network))
    await knock(network, key=key, token=None)


async def test_a_forged_key_is_refused_and_does_not_use_up_the_token(network: Network) -> None:
    token = new_token(network)
    own = SigningKey.generate(rng=SystemRng())
    stranger = SigningKey.generate(rng=SystemRng())
    forged = Impostor(bytes.fromhex(own.secret_hex()), pretends=stranger.address)
    await refused(network, reason="bad_signature", key=forged, token=token)
    await knock(network, key=stranger, token=token)


async def test_a_node_that_claims_anothers_id_is_refused_and_the_real_one_stays(network: Network) -> None:
    real = nodes(network)["node-1"]["id"]
    liar = Impostor(SystemRng().randbytes(32), pretends=real)
    await refused(network, reason="bad_signature", key=liar, token=None)
    assert nodes(network)["node-1"]["state"] == "online"


async def test_a_proof_for_another_gateway_is_refused(network: Network) -> None:
    key = SigningKey.generate(rng=SystemRng())
    await refused(network, reason="wrong_host", key=key, token=new_token(network), host="evil.example:443")


@contextlib.contextmanager
def running(output: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    process = start_process([sys.executable, "-m", *argv], output=output)
    try:
        yield process
    finally:
        end_process(process, signal.SIGKILL)


@contextlib.contextmanager
def home_node(network: Network, folder: Path, name: str, *, token: str, **engine: object) -> Iterator[HomeNode]:
    """A stranger's machine: a model server that was there before, and a node that fronts it."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    engine_flags = [f"--{flag.replace('_', '-')}={value}" for flag, value in engine.items()]
    join = ("sparewatt", "node", "join", network.root_url, f"--token={token}", f"--name={name}", "--region=attic")
    backend = f"http://127.0.0.1:{port}"
    with (
        running(folder / "engine.txt", "sparewatt.testing", f"--port={port}", f"--model={name}", *engine_flags),
        running(folder / "node.txt", *join, f"--backend={backend}", f"--data={folder}") as process,
    ):
        wait_until(lambda: is_serving(network, name), f"{name} is not serving; it said: {tail(folder / 'node.txt')}")
        yield HomeNode(name, backend, process)


@dataclasses.dataclass(frozen=True, slots=True)
class HomeNode:
    name: str
    backend: str
    process: subprocess.Popen[bytes]

    def stats(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.backend}/engine/stats", timeout=10) as reply:  # noqa: S310 (loopback)
            found: dict[str, int] = json.load(reply)
            return found


def test_a_strangers_node_joins_is_measured_serves_and_drains(network: Network, tmp_path: Path) -> None:
    token = network.ready["join_token"]
    with home_node(network, tmp_path, "home", token=token, decode_tps=50, answer_tokens=60) as home:
        prompt = "hello from the attic"

        def stop_when_busy() -> None:
            wait_until(lambda: nodes(network)["home"]["in_flight"] == 1, "the job is not there")
            home.process.send_signal(signal.SIGTERM)

        answer, _ = at_once([lambda: stream_chat(network, prompt, model="home"), stop_when_busy])
        assert answer is not None
        assert answer.text == expected_text(render_chat([{"role": "user", "content": prompt}]), answer_length=60)
        assert home.process.wait(20) == 0
        said = (tmp_path / "node.txt").read_text().splitlines()
        assert len([line for line in said if "joined" in line]) == 1
        assert not [line for line in said if line.startswith("{")], "the log belongs in its file"
        assert nodes(network)["home"]["state"] == "offline"
        reply = ask(network, "POST", "/v1/chat/completions", chat_body(network, "x", model="home"))
        assert (reply.status, reply.error()["code"]) == (503, "no_capacity")
        assert int(reply.headers["retry-after"]) > 0


def command(folder: Path, *words: str) -> Any:
    """`sparewatt node …` beside a running agent, as its owner would type it."""
    argv = [sys.executable, "-m", "sparewatt", "node", *words, f"--data={folder}", "--json"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def test_a_gpus_power_reaches_its_owner_as_electricity(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine whose NVML is a recorded one: the node finds the card and measures what its work draws."""
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests/contract/machine_with_gpu"), str(root)]))
    token = new_token(network)
    with home_node(network, tmp_path, "with-gpu", token=token, decode_tps=50, answer_tokens=200):
        assert stream_chat(network, "while the meter runs", model="with-gpu").done
        node = nodes(network)["with-gpu"]
        assert (node["gpu"], node["gpu_count"]) == ("NVIDIA H200", 1)
        assert node["gpus"][0]["vram_bytes"] == node["claimed"]["vram_bytes"] == 150_109_880_320
        wait_until(lambda: bool(nodes(network)["with-gpu"]["sensors"]), "no sensors are told")
        sensors = nodes(network)["with-gpu"]["sensors"]
        assert sensors["gpus"][0]["temperature_c"] == 41.0

        def drawn() -> Any:
            summary = ask(network, "GET", "/v1/earnings/summary").json()["data"]
            return next((each["working_watts"] for each in summary["nodes"] if each["name"] == "with-gpu"), None)

        wait_until(lambda: drawn() is not None, "its power is not in the books")
        assert drawn() >= 120.5  # and its processor's, where that can be read


def test_a_pause_finishes_what_runs_takes_nothing_new_and_costs_nothing(network: Network, tmp_path: Path) -> None:
    """And prices change, the log tells of it, and a drain ends the agent: one node's evening."""
    token = new_token(network)
    with home_node(network, tmp_path, "gamer", token=token, decode_tps=50, answer_tokens=100) as home:
        prompt = "before the game"

        def pause_when_busy() -> None:
            wait_until(lambda: nodes(network)["gamer"]["in_flight"] == 1, "the job is not there")
            assert command(tmp_path, "pause")["status"]["paused"] == "its owner paused it"

        answer, _ = at_once([lambda: stream_chat(network, prompt, model="gamer"), pause_when_busy])
        assert answer is not None
        assert answer.text == expected_text(render_chat([{"role": "user", "content": prompt}]), answer_length=100)
        wait_until(lambda: nodes(network)["gamer"]["state"] == "paused", "the gateway does not know of the pause")
        assert nodes(network)["gamer"]["paused"] == "its owner paused it"
        reply = ask(network, "POST", "/v1/chat/completions", chat_body(network, "x", model="gamer"))
        assert (reply.status, reply.error()["code"]) == (503, "no_capacity")
        assert nodes(network)["gamer"]["jobs_failed"] == 0

        command(tmp_path, "resume")
        wait_until(lambda: nodes(network)["gamer"]["state"] == "online", "it does not come back")
        assert stream_chat(network, "after the game", model="gamer").done
        command(tmp_path, "price", "set", "--hourly", "0.77")
        wait_until(lambda: nodes(network)["gamer"]["claimed"]["hourly_usd"] == "0.77", "the price is the old one")
        assert command(tmp_path, "doctor")["ok"]
        assert command(tmp_path, "status")["server"]["kind"] == "llama.cpp"
        assert "paused: its owner paused it" in (tmp_path / "node.log").read_text()
        command(tmp_path, "drain")
        assert home.process.wait(20) == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--serve=/nowhere/model.gguf",), "no file"),
        (("--colour=red",), "No such option"),
        (("--backend=banana",), "http://127.0.0.1:8080"),
        (("--hourly-usd=-1", "--backend=http://127.0.0.1:9"), "less than nothing"),
    ],
)
def test_a_join_that_cannot_work_says_why_and_ends(
    network: Network, tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    argv = [sys.executable, "-m", "sparewatt", "node", "join", network.root_url, f"--data={tmp_path}", *flags]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode != 0
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_plain_http_to_another_machine_is_refused(network: Network, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "sparewatt", "node", "join", "http://gateway.invalid", f"--data={tmp_path}"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "--insecure" in ended.stderr


def test_a_silent_node_becomes_offline_and_comes_back(network: Network) -> None:
    pid = pid_of(network, "node-2")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: nodes(network)["node-2"]["state"] == "offline", "the silent node offline")
        assert stream_chat(network, "while it is away").done
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: is_serving(network, "node-2"), "the node back")


def test_a_dropped_socket_is_offline_at_once(network: Network) -> None:
    os.kill(pid_of(network, "node-2"), signal.SIGKILL)
    wait_until(lambda: nodes(network)["node-2"]["state"] == "offline", "the killed node offline", ceiling_s=5)
    wait_until(lambda: is_serving(network, "node-2"), "the node back")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_the_generation(network: Network, tmp_path: Path, *, stream: bool) -> None:
    name = f"slow-{stream}"
    token = new_token(network)
    with home_node(network, tmp_path, name, token=token, decode_tps=200, answer_tokens=20_000) as home:
        with connection_to(network) as connection:
            body = json.dumps(chat_body(network, "go on for ever", stream=stream, model=name))
            headers = {"authorization": f"Bearer {network.api_key}"}
            connection.request("POST", "/v1/chat/completions", body=body, headers=headers)
            wait_until(lambda: nodes(network)[name]["in_flight"] == 1, "the job is not under way")
            wait_until(lambda: home.stats()["running"] == 1, "the node still measures beside the job")
            before = home.stats()
        wait_until(lambda: home.stats()["running"] == 0, "the generation goes on", ceiling_s=10)
        after = home.stats()
        assert after["cancelled"] > before["cancelled"]
        assert after["finished"] == before["finished"]


def test_twenty_streams_survive_a_node_killed_before_their_first_token(network: Network) -> None:
    wait_until(lambda: all_serving(network), "not all nodes are serving")
    prompt = "read this first " * 1500
    done = kill_under_streams(network, "node-1", prompt=prompt, max_tokens=20)
    check_texts(done, prompt=prompt, max_tokens=20)
    assert done.broken == 0
    assert done.moved > 0
    wait_until(lambda: "link_lost" in causes_of(network, "node-1"), "the killed node shows no cause", ceiling_s=60)


def causes_of(network: Network, name: str) -> dict[str, int]:
    told = ask(network, "GET", f"/v1/nodes/{nodes(network)[name]['id']}/reputation").json()
    assert 0 < told["lower"] < told["score"] < 1
    return {cause["cause"]: cause["count"] for cause in told["causes"]}


def join(network: Network, folder: Path, *flags: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """A join that must end by itself."""
    argv = [sys.executable, "-m", "sparewatt", "node", "join", url or network.root_url, f"--data={folder}", *flags]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_dead_model_server_is_told_before_a_token_is_spent(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAREWATT_NODE_BACKEND_WAIT_S", "0.5")
    token = new_token(network)
    ended = join(network, tmp_path, f"--token={token}", f"--backend=http://127.0.0.1:{free_port()}")
    assert ended.returncode == 1
    assert "No model server answers" in ended.stderr
    monkeypatch.undo()
    with home_node(network, tmp_path / "again", "late", token=token):
        assert is_serving(network, "late")


def test_a_wrong_address_and_a_wrong_token_are_told_at_once(network: Network, tmp_path: Path) -> None:
    with home_node(network, tmp_path / "a", "other", token=new_token(network)) as home:
        ended = join(network, tmp_path / "c", f"--backend={home.backend}", "--token=join-sw-nonsense")
        assert ended.returncode == 1
        assert "join token is not known" in ended.stderr
        ended = join(network, tmp_path / "b", f"--backend={home.backend}", url=home.backend)
        assert ended.returncode == 1
        assert "no Sparewatt gateway" in ended.stderr


def test_a_second_agent_on_the_same_key_is_refused(network: Network, tmp_path: Path) -> None:
    with home_node(network, tmp_path, "twin", token=new_token(network)) as home:
        ended = join(network, tmp_path, f"--backend={home.backend}")
        assert ended.returncode == 1
        assert str(home.process.pid) in ended.stderr
        assert is_serving(network, "twin")


def test_a_hung_model_server_loses_its_jobs_to_others(network: Network, tmp_path: Path) -> None:
    wait_until(lambda: all_serving(network), "not all nodes are serving")
    engines = [pid for pid, command in commands_of(network.descendants()).items() if "sparewatt.testing" in command]
    best = ask(network, "POST", "/v1/match", {"model": network.model}).json()["ranked"][0]["name"]
    port = next(
        word for word in commands_of(network.descendants())[pid_of(network, best)].split() if "--backend" in word
    )
    hung = next(pid for pid in engines if port.rsplit(":", 1)[1] in commands_of(network.descendants())[pid])
    os.kill(hung, signal.SIGSTOP)
    try:
        reply = ask(network, "POST", "/v1/chat/completions", chat_body(network, "anybody there", max_tokens=5))
        assert reply.status == 200
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_until(lambda: bool(nodes(network)[best]["models"]), "its model is not back")
