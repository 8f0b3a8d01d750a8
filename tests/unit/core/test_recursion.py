"""Deep JSON is refused only while the interpreter's recursion limit is small enough for its C stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRINT_LIMIT = "import sys, {module}; print(sys.getrecursionlimit())"


def limit_after(module: str) -> str:
    code = PRINT_LIMIT.format(module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("module", ["sparewatt.gateway.process", "sparewatt.node.process"])
def test_nothing_that_a_process_imports_raises_the_recursion_limit(module: str) -> None:
    assert limit_after(module) == limit_after("sys")
