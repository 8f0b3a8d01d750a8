from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.cli.context import remember_network
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import FakeNetwork

ADDRESS, SENDER = "0x" + "11" * 20, "0x" + "22" * 20
SHOWN = {
    "object": "chain",
    "rpc": "/v1/chain/rpc",
    "chain_id": 31337,
    "contracts": {"token": ADDRESS},
    "start_block": 1,
    "indexed_block": 1234,
    "head_block": 1240,
    "events": 56,
    "outbox": {"final": 3, "decided": 1},
    "senders": {SENDER: 2},
    "note": None,
}


@pytest.fixture(autouse=True)
def no_chain_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAIN_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)


def test_status_shows_the_chain_the_index_the_outbox_and_the_contracts(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/chain", SHOWN)
    result = run("chain")
    assert result.exit_code == 0
    sender = f"{SENDER}, 2 under way"
    for text in ("31337", "1,234 of 1,240", "56", "1 decided, 3 final", sender, "Contract token", ADDRESS):
        assert text in result.stdout


def test_status_as_json_is_the_reply_of_the_network(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/chain", SHOWN)
    assert json.loads(run("chain", "status", "--json").stdout) == SHOWN


def test_status_of_a_network_without_a_chain_says_what_is_missing(network: FakeNetwork, run: Run) -> None:
    unknown = dict.fromkeys(("rpc", "chain_id", "indexed_block", "head_block"))
    network.on("GET /v1/chain", SHOWN | unknown | {"contracts": {}, "note": "This network has no chain."})
    result = run("chain", "status")
    assert result.exit_code == 0
    assert "This network has no chain." in result.stderr


def test_status_says_first_that_the_contracts_are_of_another_release(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/chain", SHOWN | {"note": "The contracts are of another release (escrow)."})
    result = run("chain", "status")
    assert "another release (escrow)" in result.stderr


@pytest.mark.parametrize("words", [("deploy",), ("guard", "strike"), ("fund", ADDRESS), ("sync",)])
def test_a_command_that_needs_a_chain_says_how_to_get_one(words: tuple[str, ...]) -> None:
    result = run_alone("chain", *words, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stderr)["error"]
    assert "CHAIN_URL" in told["next_step"]


def test_a_chain_over_an_open_wire_is_refused(tmp_path: Path) -> None:
    result = run_alone("chain", "deploy", "--chain-url", "http://rpc.example", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "plain http" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_chain_that_does_not_answer_is_an_error_and_no_trace(tmp_path: Path) -> None:
    result = run_alone("chain", "deploy", "--chain-url", "http://127.0.0.1:1", "--data", str(tmp_path / "chain"))
    assert result.exit_code == 1
    assert "does not answer" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("deploy", "--plan", "public"), "--token"),
        (("deploy", "--plan", "nowhere.json"), "no plan of a deployment"),
        (("guard", "strike"), "guardian's key"),
    ],
)
def test_what_is_missing_is_said_before_the_chain_is_asked(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    result = run_alone("chain", *words, "--chain-url", "http://127.0.0.1:1", "--data", str(tmp_path / "chain"))
    assert result.exit_code == 1
    assert told in result.stderr
    assert not (tmp_path / "chain").exists()


def test_fund_without_contracts_says_what_to_do(tmp_path: Path) -> None:
    result = run_alone("chain", "fund", ADDRESS, "--chain-url", "http://127.0.0.1:1", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "chain deploy" in result.stderr


@pytest.mark.parametrize("amount", ["0", "-1", "0.0000001", "much"])
def test_an_amount_that_the_token_cannot_hold_is_refused(tmp_path: Path, amount: str) -> None:
    words = ("chain", "fund", ADDRESS, f"--amount={amount}", "--chain-url", "http://127.0.0.1:1")
    assert run_alone(*words, "--data", str(tmp_path)).exit_code == 1


def test_the_chain_and_the_folder_of_the_network_started_last_are_taken(tmp_path: Path) -> None:
    ready_file = tmp_path / "data" / "ready.json"
    ready_file.parent.mkdir()
    ready_file.write_text(json.dumps({"chain_url": "http://127.0.0.1:1"}))
    remember_network(ready_file)
    result = run_alone("chain", "fund", ADDRESS)
    assert str(tmp_path / "data" / "chain") in result.stderr
