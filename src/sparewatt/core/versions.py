"""Which releases work together: agent and gateway may be one minor version apart. Pure.

So either side can be updated first. The link checks its protocol number as well: that says what is possible, this says
what was tested.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Side = Literal["agent", "gateway"]
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})(?!\d)")


class Release(NamedTuple):
    major: int
    minor: int


def read_release(version: str) -> Release | None:
    """`1.4.2`, `1.4` and `1.4.0.dev3` are release 1.4; None if it is no version."""
    match = _RELEASE.match(version)
    return Release(int(match[1]), int(match[2])) if match else None


def side_to_update(*, agent: str, gateway: str) -> Side | None:
    """None if the two work together, else the older one. Without a version the protocol number alone decides."""
    theirs, ours = read_release(agent), read_release(gateway)
    if theirs is None or ours is None:
        return None
    if theirs.major == ours.major and abs(theirs.minor - ours.minor) <= 1:
        return None
    return "agent" if theirs < ours else "gateway"


def version_conflict(*, agent: str, gateway: str) -> str | None:
    """None if the two work together, else a message: what is wrong, and what to do."""
    side = side_to_update(agent=agent, gateway=gateway)
    if side is None:
        return None
    apart = f"The agent is version {agent} and the gateway {gateway}; they may be one minor version apart."
    fitting = "the gateway serves one that fits, at /dl under its address"
    if side == "agent":
        return f"{apart} Update the agent ({fitting})."
    return f"{apart} Update the gateway, or install an older agent ({fitting})."
