"""Words that all rules of checked answers share."""

from __future__ import annotations

import enum
from typing import Literal

CheckKind = Literal["rerun", "probe", "schema"]
"""A customer's request again on a second node; a prompt of the network's own; the form of tool calls and schemas."""


class CheckResult(enum.StrEnum):
    """What a check says of one node."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """Too few answered, or those that should know do not agree. It counts for nothing."""
