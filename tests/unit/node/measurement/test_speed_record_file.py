from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.node.measurement.speed_record import SpeedFile
from sparewatt.protocol.link.node_report import Speed

SPEED = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.2)


def test_a_file_of_an_older_version_without_batches_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(b'{"x":{"prefill_tps":1000.0,"decode_tps":50.0,"ttft_s":0.2}}')
    assert SpeedFile(tmp_path / "m.json", Speed).get("x") == SPEED


def test_figures_survive_a_restart(tmp_path: Path) -> None:
    SpeedFile(tmp_path / "m.json", Speed).put("llama|1", SPEED)
    again = SpeedFile(tmp_path / "m.json", Speed)
    assert (again.get("llama|1"), again.get("other")) == (SPEED, None)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'{"x":{}}', b'{"x":{"prefill_tps":-1,"decode_tps":1}}', b"[]"]
)
def test_a_broken_file_means_measuring_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content)
    file = SpeedFile(path, Speed)
    assert file.get("x") is None
    file.put("x", SPEED)
    assert SpeedFile(path, Speed).get("x") == SPEED


def test_on_an_unwritable_disk_figures_stay_in_memory(tmp_path: Path) -> None:
    file = SpeedFile(tmp_path / "absent" / "m.json", Speed)
    file.put("x", SPEED)
    assert file.get("x") == SPEED
