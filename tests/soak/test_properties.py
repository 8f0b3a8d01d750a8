"""Every property with three hundred examples of chance, where CI tries twenty that are always the same.

Run by `make soak`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CEILING_S = 3600.0


def test_what_holds_for_twenty_examples_holds_for_three_hundred() -> None:
    argv = [sys.executable, "-m", "pytest", "tests/unit", "tests/property", "-q", "-n", "2", "--dist", "worksteal"]
    env = os.environ | {"HYPOTHESIS_PROFILE": "random"}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=CEILING_S, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
