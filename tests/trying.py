"""How often hypothesis tries: as its profile says (tests/conftest.py), and more where a miss is dear."""

from __future__ import annotations

from hypothesis import settings


def at_least(examples: int) -> settings:
    return settings(max_examples=max(examples, settings().max_examples))


def walks(examples: int, *, steps: int) -> settings:
    """For a machine of rules: so many walks, or as many as the profile has examples if that is more."""
    return settings(at_least(examples), stateful_step_count=steps)
