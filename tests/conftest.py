"""What all tests share: hypothesis tries the same cases every time, so that a failure is found once and for all.

HYPOTHESIS_PROFILE=random looks for new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
