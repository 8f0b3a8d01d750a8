"""Environments of others' clients and suites, made beside the first tests: those wait more than they work.

python -m tests.integration.environments MODULE...

Whoever needs one asks for it all the same, and waits if it is being made (`tests/clients/installing.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping

from tests.clients.installing import ai_sdk_package, node_package, python_with_agents, python_with_openai2
from tests.clients.wheels import node_wheels
from tests.conformance.suites import LANGCHAIN, OPENAI, openai_source, schemathesis

NEEDED: Mapping[str, tuple[Callable[[], object], ...]] = {
    "test_agent_clients": (ai_sdk_package, python_with_agents),
    "test_clients": (python_with_openai2, node_package),
    "test_conformance": (OPENAI.python, openai_source, LANGCHAIN.python, schemathesis(1).python),
    "test_home": (node_wheels,),
}
"""By the module whose tests need them, in the order in which those are run."""


def main(modules: Collection[str]) -> None:
    os.nice(19)
    for module, makers in NEEDED.items():
        for make in makers if module in modules else ():
            make()


if __name__ == "__main__":
    main(sys.argv[1:])
