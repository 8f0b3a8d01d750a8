"""Words that all rules of checked answers share."""

from __future__ import annotations

from typing import Literal

CheckKind = Literal["rerun", "probe", "schema"]
"""A customer's request again on a second node; a prompt of the network's own; the form of tool calls and schemas."""
