"""Finds and loads the compiled scan that the package brings for this platform (native/build.py makes it).

The library's function carries a digest of the sources in its name. Where they were changed since, or the platform has
no library, there is none to load, and `scan` does the same with numpy.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("native")
SOURCES = ("columns.py", "compiled.py", "formula.py", "model.py", "scan.py")
"""Whatever of the matcher is compiled in: functions, constants, the layout of rows."""
DIGEST_CHARS = 16

EntryFunction = Callable[[int, int | None, int], int]
"""Address of the result, None, address of the arguments. As numba compiles it; returns a status, which is always 0."""


@cache
def source_digest() -> str:
    """Names the sources' text."""
    texts = [FOLDER.with_name(name).read_bytes() for name in SOURCES]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:DIGEST_CHARS]


def entry_name() -> str:
    return f"scan_{source_digest()}"


def own_platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


def path_of(platform_name: str) -> Path:
    return FOLDER / f"scan-{platform_name}.so"


def load(path: Path | None = None) -> EntryFunction | None:
    """The scan's function; None if there is no library for this platform or it is not of these sources."""
    path = path or path_of(own_platform())
    if not path.exists():
        return None
    try:
        # PyDLL keeps the interpreter's lock: a scan is shorter than handing it over.
        function = ctypes.PyDLL(str(path))[entry_name()]
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64), ctypes.c_int32
    return function
