"""`sparewatt validator`: what it shows, and what it says if something is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.cli import validator as cli_validator
from sparewatt.core.errors import NotFound
from sparewatt.market.match import replay as replay_module
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.replay import Replay
from sparewatt.protocol.api.validators import PeerStatus, SignedEntry, ValidatorStatus
from sparewatt.validator import commands, record_fetch
from sparewatt.validator.membership import StakeState
from tests.market_network.by_hand import USD, HandMatch
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import FakeNetwork
from tests.unit.cli.leases.lease_replies import a_lease
from tests.unit.validator.test_api import STATUS

ORDER = "0x" + "ab" * 32
STAKED = StakeState(
    vote_key="0x" + "22" * 20,
    url="https://v.example",
    stake_uusd=1_000_000_000,
    pending_uusd=0,
    pending_since=0,
    activates_at=0,
    unbonding_uusd=0,
    ready_at=0,
    is_jailed=False,
)


@pytest.fixture(autouse=True)
def no_chain_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAIN_URL", raising=False)


def answers_status(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[str]:
    asked: list[str] = []

    async def read_status(url: str) -> ValidatorStatus:
        asked.append(url)
        return msgspec.structs.replace(STATUS, **changes)

    monkeypatch.setattr(commands, "read_status", read_status)
    return asked


def test_status_shows_stake_weight_and_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peer = PeerStatus(
        vote_key="0x" + "77" * 20,
        operator="0x" + "78" * 20,
        url="http://127.0.0.1:8702",
        weight=1,
        is_reachable=True,
        queued=0,
        dropped=0,
    )
    asked = answers_status(monkeypatch, stake_uusd=1_500_000_000, pending_uusd=2_000_000, peers=[peer])
    (tmp_path / "url").write_text("http://127.0.0.1:8701")
    result = run_alone("validator", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert asked == ["http://127.0.0.1:8701"]
    for text in ("$1500", "$2", "25.0 % of 4 validators", "http://127.0.0.1:8702", "yes", "epoch 2"):
        assert text in result.stdout


def test_status_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_status(
        monkeypatch,
        url="",
        registered_vote_key="0x" + "99" * 20,
        is_jailed=True,
        is_syncing=True,
        snapshot_epoch=0,
        unbonding_uusd=5,
        total_weight=0,
    )
    result = run_alone("validator", "status", "--url", "http://127.0.0.1:1/")
    for text in (
        "not registered",
        "the registry has 0x9999",
        "a fault was proven",
        "(syncing)",
        "none yet",
        "Unbonding",
    ):
        assert text in result.stdout


def test_status_as_json_is_the_whole_status(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_status(monkeypatch)
    result = run_alone("validator", "status", "--url", "http://127.0.0.1:1", "--json")
    assert json.loads(result.stdout)["vote_key"] == STATUS.vote_key


def test_status_without_a_validator_says_how_to_start_one(tmp_path: Path) -> None:
    result = run_alone("validator", "status", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "sparewatt validator run" in result.stderr


def test_votes_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entries = [
        SignedEntry(kind="vote", signed_at=1, order_id=ORDER, attempt=0, round=2, hash="0x" + "cd" * 32),
        SignedEntry(kind="snapshot", signed_at=1, epoch=7, round=0, hash="0x" + "ef" * 32),
    ]
    monkeypatch.setattr(commands, "signed_entries", lambda data, *, limit: entries[:limit])
    result = run_alone("validator", "votes", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    for text in ("vote", ORDER[:18], "epoch 7"):
        assert text in result.stdout
    limited = run_alone("validator", "votes", "--data", str(tmp_path), "--limit", "1", "--json")
    assert [entry["kind"] for entry in json.loads(limited.stdout)["signed"]] == ["vote"]


def test_no_votes_is_said(tmp_path: Path) -> None:
    result = run_alone("validator", "votes", "--data", str(tmp_path))
    assert result.exit_code == 0
    assert "Nothing was signed" in result.stderr


def test_stake_that_unbonds_says_when_it_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def do(**_arguments: Any) -> StakeState:
        return replace(STAKED, stake_uusd=0, unbonding_uusd=1_000_000_000, ready_at=1_794_861_385)

    monkeypatch.setattr(commands, "leave", do)
    words = ["--chain-url", "http://127.0.0.1:8545", "--contracts", "c.json", "--data", str(tmp_path)]
    shown = " ".join(run_alone("validator", "leave", *words).stdout.split())
    assert "$1000.00, free from 2026-11-16 20:36:25 UTC; then run 'sparewatt validator leave' again" in shown


def test_stake_that_is_pending_says_when_it_can_weigh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def do(**_arguments: Any) -> StakeState:
        return replace(STAKED, stake_uusd=0, pending_uusd=1_000_000_000, activates_at=1_794_861_385)

    monkeypatch.setattr(commands, "join", do)
    words = ["--chain-url", "http://127.0.0.1:8545", "--contracts", "c.json", "--data", str(tmp_path)]
    shown = run_alone("validator", "join", "--stake", "1000", "--url", "https://v.example", *words).stdout
    assert "$1000.00, can weigh from 2026-11-16 20:36:25 UTC" in " ".join(shown.split())


@pytest.mark.parametrize("command", ["join", "leave"])
def test_joining_and_leaving_show_the_stake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    given: dict[str, Any] = {}

    async def do(**arguments: Any) -> StakeState:
        given.update(arguments)
        return STAKED

    monkeypatch.setattr(commands, command, do)
    words = ["--chain-url", "http://127.0.0.1:8545", "--contracts", "c.json", "--data", str(tmp_path)]
    more = ["--stake", "1000", "--url", "https://v.example"] if command == "join" else []
    result = run_alone("validator", command, *words, *more)
    assert result.exit_code == 0, result.output
    assert "$1000" in result.stdout
    assert (given["chain_url"], given["contracts"]) == ("http://127.0.0.1:8545", Path("c.json"))
    shown = json.loads(run_alone("validator", command, *words, *more, "--json").stdout)
    assert shown["stake_uusd"] == 1_000_000_000


def test_a_chain_that_is_not_named_is_asked_for(tmp_path: Path) -> None:
    result = run_alone("validator", "leave", "--data", str(tmp_path), "--contracts", "c.json")
    assert result.exit_code == 1
    assert "--chain-url" in result.stderr
    result = run_alone("validator", "leave", "--data", str(tmp_path), "--chain-url", "http://127.0.0.1:1")
    assert "--contracts" in result.stderr


def gives_record(monkeypatch: pytest.MonkeyPatch, record: AuctionRecord | None) -> list[str]:
    asked: list[str] = []

    async def fetch_record(source: str, order_id: str, attempt: int, *, allows_private: bool) -> AuctionRecord:
        assert allows_private
        asked.append(f"{source} {order_id} {attempt}")
        if record is None or source == "lacks it":
            raise NotFound("The validator has nothing.")
        return record

    monkeypatch.setattr(record_fetch, "fetch_record", fetch_record)
    return asked


def test_a_replay_prints_the_digest_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    match = HandMatch.of({0: 2 * USD, 1: USD})
    asked = gives_record(monkeypatch, match.record())
    words = ("--attempt", "1", "--from", "http://127.0.0.1:1", "--from", "file.json")
    result = run_alone("validator", "replay", ORDER.upper().replace("0X", "0x"), *words)
    assert result.exit_code == 0, result.output
    assert asked == [f"http://127.0.0.1:1 {ORDER} 1", f"file.json {ORDER} 1"]
    assert "won" in result.stdout
    shown = json.loads(run_alone("validator", "replay", ORDER, *words, "--json").stdout)
    assert {bid["outcome"] for bid in shown["bids"]} == {"won", "standby"}
    assert shown["differences"] == []
    assert shown["task_hash"] in result.stdout


def test_a_replay_needs_one_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = gives_record(monkeypatch, HandMatch.of({0: USD}).record())
    result = run_alone("validator", "replay", ORDER, "--attempt", "0", "--from", "lacks it", "--from", "has it")
    assert (result.exit_code, len(asked)) == (0, 2)


def test_a_replay_finds_the_validators_of_the_network_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A record on disk is read as it is, so a match can be replayed after the network was stopped."""
    ready = tmp_path / "ready.json"
    ready.write_text("{}")
    monkeypatch.setattr(cli_validator, "last_started_network", lambda: (ready, {}))
    for number in (1, 2):
        folder = tmp_path / "validators" / f"v{number}"
        (folder / "records").mkdir(parents=True)
        (folder / "url").write_text(f"http://127.0.0.1:{number}")
    on_disk = tmp_path / "validators" / "v1" / "records" / f"{ORDER}-0.json"
    on_disk.write_text("{}")
    asked = gives_record(monkeypatch, HandMatch.of({0: USD}).record())
    assert run_alone("validator", "replay", ORDER, "--data", str(tmp_path / "none")).exit_code == 0
    assert asked == [f"{on_disk} {ORDER} 0", f"http://127.0.0.1:2 {ORDER} 0"]
    seen = answers_status(monkeypatch)
    assert run_alone("validator", "status", "--data", str(tmp_path / "none")).exit_code == 0
    assert seen == ["http://127.0.0.1:1"]


def test_a_lease_is_known_by_its_name(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = gives_record(monkeypatch, HandMatch.of({0: 2 * USD, 1: USD}).record())
    (tmp_path / "url").write_text("http://127.0.0.1:1")
    network.on("GET /v1/leases/trainer", a_lease(order_id=ORDER))
    result = run("validator", "replay", "trainer", "--attempt", "0", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert asked == [f"http://127.0.0.1:1 {ORDER} 0"]


def test_a_lease_without_an_order_cannot_be_replayed_yet(network: FakeNetwork, run: Run, tmp_path: Path) -> None:
    network.on("GET /v1/leases/trainer", a_lease(order_id=None))
    result = run("validator", "replay", "trainer", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "not on the chain yet" in result.stderr


def test_a_replay_that_differs_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gives_record(monkeypatch, HandMatch.of({0: 2 * USD, 1: USD}).record())
    whole = replay_module.replay

    def differs(*records: AuctionRecord) -> Replay:
        return replace(whole(*records), differences=("first is 1 here and 0 in the certified task.",))

    monkeypatch.setattr(replay_module, "replay", differs)
    result = run_alone("validator", "replay", ORDER, "--attempt", "0", "--from", "x")
    assert result.exit_code == 1
    assert "first is 1 here and 0" in result.stdout


@pytest.mark.parametrize("order", ["0x12", "order", ORDER + "0"])
def test_what_is_no_order_is_refused(order: str) -> None:
    result = run_alone("validator", "replay", order, "--from", "x")
    assert result.exit_code == 2
    assert "64 hex digits" in result.stderr


def test_a_record_that_nobody_has_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    gives_record(monkeypatch, None)
    assert run_alone("validator", "replay", ORDER, "--attempt", "0", "--from", "x").exit_code in {1, 4}


def test_a_validator_that_cannot_start_says_why(tmp_path: Path) -> None:
    words = ["--data", str(tmp_path), "--chain-url", "http://127.0.0.1:1"]
    result = run_alone("validator", "run", *words, "--contracts", str(tmp_path / "none.json"))
    assert result.exit_code == 1
    assert "sparewatt chain deploy" in result.stderr
    result = run_alone("validator", "run", *words, "--contracts", "x", "--host", "0.0.0.0")  # noqa: S104
    assert "without TLS" in result.stderr
