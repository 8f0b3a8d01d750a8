"""A pytest plugin for openai-python's own tests: they speak with a key of this network instead of the one they make up."""

from __future__ import annotations

import os
import sys

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    conftest = sys.modules["tests.conftest"]
    conftest.api_key = conftest.admin_api_key = os.environ["SPAREWATT_API_KEY"]  # type: ignore[attr-defined]
