"""The line with which a machine joins, to be copied as it is. Alone here: printing it needs no gateway loaded."""

from __future__ import annotations

import shlex


def line_of(install: str, root_url: str, token: str) -> str:
    """Install, then join; `install` is what pip is told."""
    return f"{install} && sparewatt node join {shlex.quote(root_url)} --token {shlex.quote(token)}"
