"""Deep JSON is refused only while the interpreter's recursion limit is small enough for its C stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = "import sys, {module}; print(any(name.partition('.')[0] == 'web3' for name in sys.modules))"
PRINT_LIMIT = "import sys, {module}; print(sys.getrecursionlimit())"


def limit_after(module: str) -> str:
    return printed_by(PRINT_LIMIT.format(module=module))


def printed_by(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("module", ["sparewatt.chain.process", "sparewatt.gateway.process", "sparewatt.node.process"])
def test_nothing_that_a_process_imports_raises_the_recursion_limit(module: str) -> None:
    assert limit_after(module) == limit_after("sys")


def test_only_the_chains_own_process_loads_web3() -> None:
    others = [
        "sparewatt.gateway.process",
        "sparewatt.node.process",
        "sparewatt.supervisor.network",
        "sparewatt.cli.main",
    ]
    assert {printed_by(LOADED.format(module=module)).strip() for module in others} == {"False"}
    assert printed_by(LOADED.format(module="sparewatt.chain.process")).strip() == "True"
