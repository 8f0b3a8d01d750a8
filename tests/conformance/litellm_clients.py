"""LiteLLM as a library and as a proxy, pointed at a network: three turns with a tool call, and a context that is full.

Runs in an environment of its own (litellm.lock), with nothing of ours imported.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litellm
import pytest

BASE_URL, API_KEY, MODEL = (os.environ[name] for name in ("SUITE_BASE_URL", "SUITE_API_KEY", "SUITE_MODEL"))
PROXY_KEY = "sk-proxy"
READY_S = 90.0
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of LiteLLM's proxy in front of the network."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path_factory.mktemp("proxy") / "config.yaml"
    served = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": API_KEY, "max_retries": 0}
    config.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": MODEL, "litellm_params": served}],
                "general_settings": {"master_key": PROXY_KEY},
                "router_settings": {"num_retries": 0},
            }
        )
    )
    argv = [
        str(Path(sys.executable).parent / "litellm"),
        "--config",
        str(config),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}/health/liveliness", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s:
        assert process.poll() is None, "the proxy ended"
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 (our own loopback address)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError("the proxy did not become ready")


@pytest.fixture(params=["library", "proxy"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    is_proxy = request.param == "proxy"
    url = request.getfixturevalue("proxy") if is_proxy else BASE_URL
    return {
        "model": f"openai/{MODEL}",
        "api_base": url,
        "api_key": PROXY_KEY if is_proxy else API_KEY,
        "max_retries": 0,
    }


def test_three_turns_with_a_tool_call(options: dict[str, Any]) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    called = litellm.completion(messages=messages, tools=[TOOL], tool_choice="required", **options)
    (choice,) = called.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert "city" in json.loads(call.function.arguments)
    messages += [choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "snow"}]
    told = litellm.completion(messages=messages, tools=[TOOL], tool_choice="none", **options)
    assert told.choices[0].message.content
    messages += [told.choices[0].message.model_dump(), {"role": "user", "content": "And tomorrow?"}]
    pieces = litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **options)
    chunks = list(pieces)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert any(getattr(chunk, "usage", None) for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_overflow_is_litellms_own_error(options: dict[str, Any], stream: bool) -> None:  # noqa: FBT001
    with pytest.raises(litellm.ContextWindowExceededError):
        list(litellm.completion(messages=[{"role": "user", "content": "word " * 9000}], stream=stream, **options))
