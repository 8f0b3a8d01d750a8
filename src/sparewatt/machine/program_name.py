"""What a user types to call this program again, for lines that are meant to be copied."""

from __future__ import annotations

import shutil
from pathlib import Path


def program_name(argv0: str, *, cwd: Path) -> str:
    """The bare name if PATH leads to this very file, else its path: relative to `cwd` if it is below."""
    called = Path(argv0).absolute()
    found = shutil.which(called.name)
    if found is not None and Path(found).absolute() == called:
        return called.name
    return str(called.relative_to(cwd)) if called.is_relative_to(cwd) else str(called)
