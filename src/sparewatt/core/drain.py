"""Whether this process is draining: it finishes running jobs, takes no new work, and then stops."""

from __future__ import annotations


class DrainState:
    """One per process. Set once, when the process has to stop; read by everything that takes new work."""

    __slots__ = ("is_draining",)

    def __init__(self) -> None:
        self.is_draining = False
