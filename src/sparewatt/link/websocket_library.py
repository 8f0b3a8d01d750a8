"""Which WebSocket library a link is on. Imports neither before it is asked."""

from __future__ import annotations

import functools
import importlib
from typing import Literal

WebSocketLibrary = Literal["auto", "picows", "aiohttp"]


@functools.cache
def has_picows() -> bool:
    """There are machines without a wheel of it, or on which it does not load; aiohttp is everywhere."""
    try:
        importlib.import_module("picows")
    except ImportError:
        return False
    return True
