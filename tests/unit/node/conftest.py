from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test shares the account of the real machine, unless it names a folder itself."""
    made: list[Path] = []

    def folder() -> Path:
        if not made:
            made.append(tmp_path_factory.mktemp("machine"))
        return made[0]

    monkeypatch.setattr("sparewatt.node.leases.machine.machine_market.default_machine_dir", folder)
