"""The C programs of `make bench-gateway`: they say what the stand-in nodes say, and count what they get."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.gateway import answers
from bench.gateway.tools import HERE

from sparewatt.machine.spawn import free_port
from tests.processes import end_process, start_process, wait_until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
PACE_MS = 1


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("backend", "load"):
        argv = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(folder / name), str(HERE / f"{name}.c")]
        subprocess.run(argv, check=True)
    return folder


@pytest.fixture(scope="module")
def port(programs: Path) -> Iterator[int]:
    found = free_port()
    process = start_process([str(programs / "backend"), str(found)], output=programs / "backend.txt")
    try:
        wait_until(lambda: answers_on(found), "the backend does not answer")
        yield found
    finally:
        end_process(process, signal.SIGKILL)


def answers_on(port: int) -> bool:
    try:
        return ask(port, "GET", "/health")[0] == 200
    except OSError:
        return False


def ask(port: int, method: str, path: str, body: dict[str, object] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def chat(port: int, **wish: object) -> tuple[bytes, int]:
    """The answer, and the prompt's tokens by the common rule."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **wish}
    status, answer = ask(port, "POST", "/v1/chat/completions", body)
    assert status == 200
    return answer, answers.prompt_tokens(len(json.dumps(body)))


def test_a_whole_answer_is_the_nodes_answer(port: int) -> None:
    answer, prompt = chat(port, stream=False)
    assert answer == answers.whole(prompt)


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_stream_is_the_nodes_stream(port: int, limit: str, *, wants_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if wants_usage else {}
    answer, prompt = chat(port, stream=True, **{limit: answers.TOKENS + PACE_MS}, **options)
    moments = [int(found) for found in re.findall(rb"@(\d+)", answer)]
    expected = answers.first_token(moments[0]) + b"".join(map(answers.next_token, moments[1:]))
    assert len(moments) == answers.TOKENS
    assert answer == expected + answers.stream_end(prompt, wants_usage=wants_usage)
    assert moments[-1] - moments[0] >= PACE_MS * 1_000_000 * (answers.TOKENS - 2)


def test_the_generator_counts_answers_tokens_and_refusals(programs: Path, port: int, tmp_path: Path) -> None:
    def load(*flags: str, **wish: object) -> dict[str, object]:
        body = tmp_path / "body.json"
        body.write_text(json.dumps({"model": "m", "messages": "########", **wish}))
        argv = [str(programs / "load"), f"--port={port}", f"--body={body}", *flags]
        found: dict[str, object] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
        return found

    streams = load("--connections=2", "--seconds=0.1", stream=True, max_tokens=answers.TOKENS + PACE_MS)
    assert (streams["errors"], streams["tokens_min"], streams["tokens_max"]) == (0, answers.TOKENS, answers.TOKENS)
    wholes = load("--rate=100", "--seconds=0.1")
    assert (wholes["errors"], wholes["completed"], wholes["non_2xx"]) == (0, 10, 0)


def test_the_generator_says_how_it_is_used(programs: Path) -> None:
    done = subprocess.run([programs / "load"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("usage: load")) == (2, True)
