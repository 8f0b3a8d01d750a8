from __future__ import annotations

import subprocess
import sys

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.leases.runtime import loading
from sparewatt.node.leases.runtime.loading import NO_DRIVER, load_runtime
from sparewatt.node.leases.runtime.runtime import LeaseRuntime


def load() -> LeaseRuntime | None:
    return load_runtime(socket=None, state_dir=None, gpu_count=0, clock=SystemClock(), rng=seeded(1))


def test_without_the_driver_there_is_no_runtime_and_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load() is not None
    monkeypatch.setattr(loading, "DRIVER", "no_such_driver")
    assert load() is None
    assert "sparewatt[leases]" in NO_DRIVER.troubles[0].remedy


def test_a_node_without_leases_does_not_import_the_driver() -> None:
    script = "import sys, sparewatt.node.process, sparewatt.node.doctor; print('aiodocker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
