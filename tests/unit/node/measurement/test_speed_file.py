from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.node.measurement.speed_file import SpeedFile
from sparewatt.protocol.link.node_report import Speed

SPEED = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.2)


def test_what_was_measured_before_two_at_once_were_is_still_good(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b'{"x":{"prefill_tps":1000.0,"decode_tps":50.0,"ttft_s":0.2}}')
    assert SpeedFile(tmp_path / "m.json", Speed).get("x") == SPEED


def test_what_was_measured_is_there_after_a_restart(tmp_path: Path) -> None:
    SpeedFile(tmp_path / "m.json", Speed).put("llama|1", SPEED)
    again = SpeedFile(tmp_path / "m.json", Speed)
    assert (again.get("llama|1"), again.get("other")) == (SPEED, None)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'{"x":{}}', b'{"x":{"prefill_tps":-1,"decode_tps":1}}', b"[]"]
)
def test_a_broken_file_means_measuring_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content)
    kept = SpeedFile(path, Speed)
    assert kept.get("x") is None
    kept.put("x", SPEED)
    assert SpeedFile(path, Speed).get("x") == SPEED


def test_a_disk_that_cannot_be_written_costs_no_more_than_the_memory_of_it(tmp_path: Path) -> None:
    kept = SpeedFile(tmp_path / "absent" / "m.json", Speed)
    kept.put("x", SPEED)
    assert kept.get("x") == SPEED
