"""A pytest plugin for suites of others: takes out what is listed, and lets openai-python's tests use a key of ours.

Runs in the suite's own environment, with nothing of ours imported. It is told by environment variables.
"""

from __future__ import annotations

import json
import os
import sys
from fnmatch import fnmatchcase

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    patterns = json.loads(os.environ.get("SUITE_DESELECTED", "[]"))
    taken = [item for item in items if any(fnmatchcase(item.nodeid.replace("[", "("), each) for each in patterns)]
    if taken:
        config.hook.pytest_deselected(items=taken)
        items[:] = [item for item in items if item not in taken]


def pytest_collection_finish(session: pytest.Session) -> None:
    """openai-python's fixtures read these names when they run."""
    conftest = sys.modules.get("tests.conftest")
    for name in ("api_key", "admin_api_key"):
        if hasattr(conftest, name):
            setattr(conftest, name, os.environ["SUITE_API_KEY"])
