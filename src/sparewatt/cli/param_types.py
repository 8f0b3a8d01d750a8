"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """click's range lets nan through, which is neither below nor above anything, and inf where it has no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


NUMBER = FiniteRange()
"""Any number; what a setting may be is checked with the other settings."""
NUMBER.name = "float"
