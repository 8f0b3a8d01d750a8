"""Whether this process is draining: it finishes what runs, takes nothing new, and then stops."""

from __future__ import annotations


class DrainState:
    """One per process, set once when it is asked to stop; read by everything that takes new work."""

    __slots__ = ("is_draining",)

    def __init__(self) -> None:
        self.is_draining = False
