"""The short way of a stream's pieces to its client, where nothing needs to be asked but whether the client keeps up.

A sink hands out a `Straight`. Whoever has a piece for it puts it among the departures, in the place of `data`: at the
end of the event loop's turn every client gets all that came for it in one write. So the writes of a turn follow each
other, and a client that several pieces have come for, as when the gateway is behind, costs one.
"""

from __future__ import annotations

from collections.abc import Callable


class Departures:
    """What leaves at the end of this turn, for all clients of a server."""

    __slots__ = ("_at_end_of_turn", "pieces")

    def __init__(self, at_end_of_turn: Callable[[Callable[[], None]], object]) -> None:
        self._at_end_of_turn = at_end_of_turn
        self.pieces: dict[Straight, bytes] = {}
        """Whoever puts the first calls `set_off`."""

    def set_off(self) -> None:
        self._at_end_of_turn(self._leave)

    def _leave(self) -> None:
        pieces = self.pieces
        try:
            for straight in list(pieces):
                straight.write(pieces.pop(straight))
        finally:
            if pieces:  # what broke in one is not the others' fault
                self.set_off()


class Straight:
    """One client's. The sink keeps `is_open` true, and `recall`s what it must not come before."""

    __slots__ = ("at_s", "departures", "form", "is_open", "untaken_bytes", "write")

    def __init__(self, write: Callable[[bytes], object], form: bytes, departures: Departures, *, is_open: bool) -> None:
        self.write = write
        self.form = form
        """How a piece is written: with two places, for its length and for itself."""
        self.departures = departures
        self.is_open = is_open
        """Whether the client takes what it is sent."""
        self.untaken_bytes = 0
        """What went this way, and the client has not taken: for the sink to tell when it has."""
        self.at_s = 0.0
        """When a piece last went this way, by the clock of whoever put it."""

    def recall(self) -> bytes:
        """What has not left yet: it comes before whatever the sink writes itself."""
        return self.departures.pieces.pop(self, b"")
