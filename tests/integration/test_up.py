"""`sparewatt up` as its user runs it: real Postgres, real llama.cpp, started, used, broken, stopped."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.integration.asking import ask, stream_chat
from tests.integration.cascade import kill_under_streams
from tests.integration.networks import Network, start_network
from tests.processes import alive, wait_until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def child_pid(network: Network, *words: str) -> int:
    """The one process below the network whose command line has all these words."""
    found = []
    for pid, _ in network.descendants():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        if all(word in command for word in words):
            found.append(pid)
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """As a user starts it."""
    with start_network(tmp_path_factory.mktemp("real")) as network:
        yield network


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with start_network(tmp_path_factory.mktemp("small"), "--engine=deterministic", "--nodes=2") as network:
        yield network


def test_a_real_model_answers_at_three_nodes_and_the_user_is_told_how(real: Network) -> None:
    assert set(real.ready) >= {"base_url", "api_key", "dashboard_url", "join_token", "pid"}
    assert real.base_url.endswith("/v1")
    assert mode(real.data / "ready.json") == mode(real.data / "demo.key") == 0o600
    printed = real.output.read_text()
    assert real.base_url in printed
    assert "curl" in printed
    assert "from openai import OpenAI" in printed
    answer = stream_chat(real, "Say hello.", max_tokens=12)
    assert answer.text.strip()
    assert answer.done
    assert len(ask(real, "GET", "/v1/nodes").json()["data"]) == 3


def test_the_official_client_reads_a_real_model(real: Network) -> None:
    with openai.OpenAI(base_url=real.base_url, api_key=real.api_key, max_retries=0, timeout=60.0) as client:
        chunks = list(
            client.chat.completions.create(
                model=real.model,
                messages=[{"role": "user", "content": "Say hello."}],
                max_tokens=16,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.strip()
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert usage.prompt_tokens > 0
    assert 0 < usage.completion_tokens <= 16


def test_a_node_killed_under_streams_that_have_not_begun_fails_none(real: Network) -> None:
    best = ask(real, "POST", "/v1/match", {"model": real.model}).json()["ranked"][0]["name"]
    prompt = "Count the words. " + "word " * 150
    done = kill_under_streams(real, best, prompt=prompt, max_tokens=8, streams=8)
    assert [answer.error for answer in done.answers] == [None] * 8
    assert all(answer.done and answer.text for answer in done.answers)
    assert done.moved > 0


def test_a_restart_keeps_keys_and_nodes(tmp_path: Path) -> None:
    flags = ("--engine=deterministic", "--nodes=1")
    with start_network(tmp_path, *flags) as network:
        key = ask(network, "POST", "/v1/keys", {"name": "kept"}).json()["key"]
        nodes = {node["id"] for node in ask(network, "GET", "/v1/nodes").json()["data"]}
        assert len(nodes) == 1
    assert not (network.data / "ready.json").exists()
    with start_network(tmp_path, *flags) as again:
        assert again.api_key == network.api_key
        assert ask(again, "GET", "/v1/models", key=key).status == 200
        assert {node["id"] for node in ask(again, "GET", "/v1/nodes").json()["data"]} == nodes


def test_kill_9_of_the_parent_leaves_no_process(tmp_path: Path) -> None:
    with start_network(tmp_path, "--nodes=1") as network:
        below = network.descendants()
        assert len(below) > 4
        os.kill(network.pid, signal.SIGKILL)
        network.process.wait(10)
        wait_until(lambda: not alive(below), "all processes of the network gone")
    with start_network(tmp_path, "--engine=deterministic", "--nodes=1") as again:
        assert stream_chat(again, "Still there?", max_tokens=4).done


def test_two_networks_run_side_by_side(small: Network, tmp_path: Path) -> None:
    with start_network(tmp_path, "--engine=deterministic", "--nodes=0") as other:
        assert small.api_key != other.api_key
        assert ask(small, "GET", "/v1/models").status == ask(other, "GET", "/v1/models").status == 200
        assert ask(small, "GET", "/v1/models", key=other.api_key).status == 401
        assert small.ready["metrics_url"] != other.ready["metrics_url"]
        assert small.ready["metrics_url"] in small.output.read_text()


def test_a_second_up_on_the_same_data_is_refused_and_disturbs_nothing(small: Network) -> None:
    argv = [sys.executable, "-m", "sparewatt", "up", f"--data={small.data}", "--port=1"]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert str(small.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert stream_chat(small, "undisturbed").done


def test_a_taken_port_is_said_plainly(small: Network, tmp_path: Path) -> None:
    port = small.root_url.rsplit(":", 1)[1]
    argv = [sys.executable, "-m", "sparewatt", "up", f"--data={tmp_path}", f"--port={port}"]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert "--port" in second.stderr


def test_a_killed_gateway_and_a_killed_database_come_back_by_themselves(small: Network) -> None:
    os.kill(child_pid(small, "gateway\0run"), signal.SIGKILL)
    wait_until(lambda: nodes_serving(small) == 2, "the gateway and its nodes back")
    assert stream_chat(small, "after the gateway").done
    postmaster = int((small.data / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGKILL)
    assert stream_chat(small, "without the database").done
    seen = {503}

    def key_can_be_made() -> bool:
        seen.add(ask(small, "POST", "/v1/keys", {"name": "after"}).status)
        return 201 in seen

    wait_until(key_can_be_made, "the database is not back")
    assert seen == {201, 503}


def nodes_serving(network: Network) -> int:
    try:
        return int(ask(network, "GET", "/readyz").json()["nodes_serving"])
    except OSError:
        return 0
