"""Status and logs of this machine's node, against a control socket that records its requests."""

from __future__ import annotations

import json

import pytest

from sparewatt.cli.node.status import format_log_line
from sparewatt.node.log_file import FILE
from tests.unit.cli.conftest import run_alone
from tests.unit.cli.fake_agent import STATUS, Node

COMMANDS = [
    *(["node", name] for name in ("status", "pause", "resume", "drain", "schedule", "doctor", "logs", "service")),
    ["node", "price", "set"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example_and_json(words: list[str]) -> None:
    shown = run_alone(*words, "--help").stdout
    assert " ".join(["sparewatt", *words]) in shown.split("Example:")[1]
    assert "--json" in shown


def test_status_is_shown_and_printed_as_json(node: Node) -> None:
    shown = node.run("status").stdout
    assert all(
        text in shown for text in ("attic", "online", "ollama", "on disk", "160 (4)", "RTX 4090", "88 W", "300 W")
    )
    assert json.loads(node.run("status", "--json").stdout) == STATUS


FACTS = {
    "kind": "vllm",
    "slots": {"value": 256, "source": "default"},
    "kv_tokens": {"value": 35312, "source": "server"},
    "chunked_prefill": {"value": True, "source": "default"},
    "bandwidth_bytes_s": {"value": 1.008e12, "source": "card table"},
    "models": [
        {
            "id": "llama3",
            "context": {"value": 32768, "source": "server"},
            "quantization": None,
            "weights_bytes": {"value": 16 << 30, "source": "family table"},
            "kv_bytes_per_token": {"value": 131072, "source": "owner"},
            "prefix_cache_tokens": {"value": 0, "source": "default"},
        }
    ],
}


def lines_of(node: Node, *, state: str) -> list[list[str]]:
    """The words of each line of `node status` for a server with these facts."""
    server = {"kind": "vllm", "trouble": None, "facts": FACTS}
    node.answer = {"status": STATUS | {"server": server, "models": [STATUS["models"][0] | {"state": state}]}}
    return [line.split() for line in node.run("status").stdout.splitlines()]


def test_each_figure_of_the_server_is_shown_with_its_source(node: Node) -> None:
    shown = lines_of(node, state="warm")
    for expected in (
        "server answers at once 256 default of vllm",
        "server KV cache 35,312 tokens server",
        "server reads in chunks yes default of vllm",
        "server memory bandwidth 1,008 GB/s card table",
        "llama3 context 32,768 tokens server",
        "llama3 weights 16.0 GiB family table",
        "llama3 KV cache per token 131,072 bytes owner",
    ):
        assert expected.split() in shown
    assert not [line for line in shown if "quantization" in line]


def test_figures_of_models_that_are_not_loaded_are_left_to_json(node: Node) -> None:
    assert not [line for line in lines_of(node, state="on_disk") if "weights" in line]
    assert json.loads(node.run("status", "--json").stdout)["server"]["facts"] == FACTS


@pytest.mark.parametrize("command", ["status", "drain"])
def test_without_an_agent_there_is_a_next_step(away: Node, command: str) -> None:
    result = away.run(command)
    assert result.exit_code == 1
    assert "No node runs here" in result.stderr
    assert "sparewatt node join" in result.stderr


def test_prices_per_token_are_shown_where_they_were_set(node: Node) -> None:
    assert "$0.10 an hour" in node.run("status").stdout
    node.answer = {"status": STATUS | {"prompt_usd_per_mtok": "0.5", "completion_usd_per_mtok": "1"}}
    for shown in (node.run("status").stdout, node.run("price", "set", "--prompt", "0.5", "--completion", "1").stdout):
        assert "$0.50 per 1M read, $1.00 per 1M written" in shown
        assert "an hour" not in shown


def test_leases_are_shown_where_they_are_offered(node: Node) -> None:
    assert "Leases" not in node.run("status").stdout
    node.answer = {"status": STATUS | {"leases": True, "lease_wallet": None}}
    assert "Leases" in node.run("status").stdout
    node.answer = {"status": STATUS | {"leases": True, "lease_wallet": "0xfee"}}
    assert "for the wallet 0xfee only" in node.run("status").stdout


def test_a_model_server_that_is_gone_is_shown(node: Node) -> None:
    gone = {"state": "no_server", "server": {"kind": "ollama", "trouble": "/v1/models did not answer"}}
    node.answer = {"status": STATUS | gone}
    shown = node.run("status").stdout
    assert "its model server is gone" in shown
    assert "did not answer" in shown
    assert "online" not in shown


def test_logs_are_shown_in_words_and_as_they_are(away: Node) -> None:
    away.folder.mkdir()
    lines = [
        '{"t": 1.0, "level": "warning", "logger": "x", "event": "measure_failed", "model": "m"}',
        "not JSON\x1b[31m",
    ]
    (away.folder / FILE).write_text("\n".join(lines) + "\n")
    shown = away.run("logs").stdout.splitlines()
    assert shown[0].endswith("WARNING measure_failed  model=m")
    assert "\x1b" not in shown[1]
    assert away.run("logs", "-n", "1", "--json").stdout.startswith("not JSON")
    assert "told" not in format_log_line('{"t": 1, "level": "info", "event": "told", "text": "joined"}')


def test_without_a_log_there_is_a_next_step(away: Node) -> None:
    result = away.run("logs")
    assert (result.exit_code, "no log" in result.stderr) == (1, True)


def test_status_says_what_a_price_keeps_from_the_node(node: Node) -> None:
    assert "Notice" not in node.run("status").stdout
    node.answer = {"status": STATUS | {"price_notices": {"m": "Its price is too dear."}}}
    assert "m: Its price is too dear." in " ".join(node.run("status").stdout.split())
