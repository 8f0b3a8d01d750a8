"""What viewers of the live feed are sent, encoded once for all of them: a snapshot, and what changed since, in order.

Frames are kept in a short ring. A viewer is only a number, the last frame that it has: whoever fell behind the ring
gets a snapshot again. So a viewer costs no queue, and a slow one no memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from sparewatt.core.limits import FEED_FRAMES_KEPT
from sparewatt.protocol.api.feed import FeedDelta, FeedSnapshot

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class FeedFrame:
    number: int
    data: bytes


def as_event(name: str, frame_id: str, body: FeedSnapshot | FeedDelta) -> bytes:
    """As server-sent events are written. JSON has no bare line break, so one line of data is enough."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), frame_id.encode(), _encode(body))


class FrameRing:
    def __init__(self, run: str) -> None:
        self.run = run
        """Names this process, so that a number of another one is not taken for ours."""
        self._ring: deque[FeedFrame] = deque(maxlen=FEED_FRAMES_KEPT)
        self._snapshot: FeedFrame | None = None
        self.number = 0

    def add(self, body: FeedDelta) -> None:
        """A change. The snapshot before it is out of date."""
        self.number += 1
        self._ring.append(FeedFrame(self.number, as_event("delta", self._id(), body)))
        self._snapshot = None

    def start_over(self) -> None:
        """Something may have changed without a frame: whoever has an older one must see it all again."""
        self.number += 1
        self._ring.clear()
        self._snapshot = None

    def snapshot(self, body: FeedSnapshot) -> None:
        """Everything as it stands after the last change."""
        self._snapshot = FeedFrame(self.number, as_event("snapshot", self._id(), body))

    @property
    def has_snapshot(self) -> bool:
        return self._snapshot is not None

    @property
    def whole(self) -> FeedFrame:
        if self._snapshot is None:
            raise LookupError("nobody made the snapshot")
        return self._snapshot

    def after(self, number: int) -> list[FeedFrame] | None:
        """What came after a frame; None if not all of it is kept."""
        if number > self.number or number < self.number - len(self._ring):
            return None
        return [frame for frame in self._ring if frame.number > number]

    def number_of(self, last_id: str) -> int | None:
        """Of a frame that a viewer says it has."""
        run, _, number = last_id.rpartition("-")
        return int(number) if run == self.run and number.isascii() and number.isdigit() and len(number) < 18 else None

    def _id(self) -> str:
        return f"{self.run}-{self.number}"
