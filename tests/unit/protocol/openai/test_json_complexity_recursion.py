"""Deep JSON is refused only while the interpreter's recursion limit is small enough for its C stack."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRINT = """
import sys, {module}
print(sys.getrecursionlimit(), any(name.partition('.')[0] == 'web3' for name in sys.modules))
"""


def limit_and_web3_after(module: str) -> list[str]:
    code = PRINT.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("module", "loads_web3"),
    [
        ("sparewatt.chain.process", True),
        ("sparewatt.gateway.process", False),
        ("sparewatt.node.process", False),
        ("sparewatt.localnet.network", False),
    ],
)
def test_no_process_raises_the_recursion_limit_and_only_the_chains_loads_web3(module: str, *, loads_web3: bool) -> None:
    limit, web3 = limit_and_web3_after(module)
    assert int(limit) == int(limit_and_web3_after("sys")[0])
    assert web3 == str(loads_web3)
