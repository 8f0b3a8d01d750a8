"""An error reply in the shape of one protocol."""

from __future__ import annotations

from typing import Any, NamedTuple


class ShapedError(NamedTuple):
    status: int
    """Protocols differ in this too."""
    body: dict[str, Any]
