from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sparewatt.cli.main import cli

SMALL = ["simulate", "--nodes", "12", "--rate", "2", "--duration", "5", "--seeds", "1"]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_small_study_prints_a_table_and_writes_json_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers, picture = tmp_path / "a.json", tmp_path / "a.svg"
    words = ("--policy", "balanced,p2c", "--json", str(numbers), "--plot", str(picture), "--compare-spot")
    assert run(*SMALL, *words) == 0
    printed = capsys.readouterr().out
    for name in ("balanced", "p2c", "oracle", "bound", "Method:"):
        assert name in printed
    assert set(json.loads(numbers.read_text())) == {"policies", "oracle", "bound"}
    assert picture.read_text().startswith("<svg")


def test_numbers_can_go_to_stdout_and_then_nothing_else_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL, "--policy", "balanced", "--json", "-") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"policies", "oracle", "bound"}
    assert run(*SMALL, "--plot", "-") == 2
    assert not Path("-").exists()


def test_a_hostile_fleet_still_answers(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert run(*SMALL, "--policy", "balanced", "--hostile", "0.3", "--json", str(file)) == 0
    found = json.loads(file.read_text())
    assert found["policies"]["balanced"]["failed"] <= found["oracle"]["failed"] + 0.1


def test_garbage_is_counted_when_there_is_some(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert run(*SMALL, "--policy", "balanced", "--garbage", "0.5", "--no-checks", "--json", str(file)) == 0
    assert json.loads(file.read_text())["policies"]["balanced"]["garbage_answers"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "best"),
        ("--policy", ","),
        ("--nodes", "0"),
        ("--rate", "-1"),
        ("--rate", "nan"),
        ("--gateways", "9"),
        ("--heartbeat", "0"),
        ("--mtbf", "0"),
        ("--liars", "1.5"),
        ("--liars", "0.6", "--flaky", "0.6"),
        ("--seeds", "0"),
        ("--rate", "10000", "--duration", "80000"),
        ("--trace", "absent.csv.gz"),
        ("--json", "no/such/folder/a.json"),
    ],
)
def test_bad_options_are_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL, *words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "rror" in printed.err


def test_a_bad_trace_is_a_failure_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert run(*SMALL, "--policy", "balanced", "--trace", str(file)) == 1
    assert "bad.csv.gz" in capsys.readouterr().err


def test_affinity_can_be_switched_off(tmp_path: Path) -> None:
    trace, means = tmp_path / "talk.jsonl.gz", []
    row = {"input_tokens": 20_500, "output_tokens": 5}
    with gzip.open(trace, "wt") as file:
        for at in range(80):
            talk = list(range(100 * (at % 6), 100 * (at % 6) + 40))
            file.write(json.dumps(row | {"t_ms": 1000 * at, "prefix_blocks": talk}) + "\n")
    for switch in ((), ("--no-affinity",)):
        found = tmp_path / "a.json"
        words = ("--trace", str(trace), "--policy", "balanced", "--prefix-ram", "64", "--json", str(found))
        assert run(*SMALL, *words, *switch) == 0
        means.append(json.loads(found.read_text())["policies"]["balanced"]["e2e_mean"])
    assert means[0] != means[1]
