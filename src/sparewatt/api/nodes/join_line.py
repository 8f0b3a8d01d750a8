"""The shell line with which a machine joins the network, ready to be copied.

It imports nothing of the gateway: `sparewatt up` prints the line without loading one.
"""

from __future__ import annotations

import shlex


def line_of(install: str, root_url: str, token: str) -> str:
    """`install`: the shell command that installs the package."""
    return f"{install} && sparewatt node join {shlex.quote(root_url)} --token {shlex.quote(token)}"
