"""What all tests share: hypothesis tries the same cases every time, so that a failure is found once and for all.

HYPOTHESIS_PROFILE=random looks for new ones, and for longer.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("random", deadline=None, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests live until the end: the collector need not walk them again and again."""
    gc.collect()
    gc.freeze()
