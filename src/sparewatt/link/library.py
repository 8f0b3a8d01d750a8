"""Which WebSocket library a link is on. Imports neither."""

from __future__ import annotations

import importlib.util
from typing import Literal

Library = Literal["auto", "picows", "aiohttp"]


def has_picows() -> bool:
    """There are machines without a wheel of it; aiohttp is everywhere."""
    return importlib.util.find_spec("picows") is not None
