from __future__ import annotations

from pathlib import Path

from sparewatt.node.hardware.cpu import CpuPower


def test_power_of_the_processor_is_the_counters_difference(tmp_path: Path) -> None:
    now = [10.0]
    for number, joules in ((0, 1_000_000), (1, 5_000_000)):
        (tmp_path / f"intel-rapl:{number}").mkdir()
        (tmp_path / f"intel-rapl:{number}" / "energy_uj").write_text(str(joules))
    (tmp_path / "intel-rapl:0:0").mkdir()
    (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text("999")
    cpu = CpuPower(now_s=lambda: now[0], root=tmp_path)
    assert cpu.watts() is None
    now[0] = 12.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("61000000")
    assert cpu.watts() == 30.0
    now[0] = 13.0
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("0")  # the counter wrapped around
    assert cpu.watts() is None


def test_unreadable_power_counters_mean_unknown_power(tmp_path: Path) -> None:
    assert CpuPower(now_s=lambda: 0.0, root=tmp_path / "none").watts() is None
