"""Which WebSocket library a link uses. Importing this module imports neither of them."""

from __future__ import annotations

import functools
import importlib
from typing import Literal

WebSocketLibrary = Literal["auto", "picows", "aiohttp"]


@functools.cache
def has_picows() -> bool:
    """Some machines have no wheel of picows, or cannot load it; aiohttp is always installed."""
    try:
        importlib.import_module("picows")
    except ImportError:
        return False
    return True
