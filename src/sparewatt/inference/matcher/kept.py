"""What is kept of a decision: a few numbers per node. They become candidates and rejections when somebody looks.

Most decisions are never looked at beyond their best candidate, and there is one for every request.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REJECTIONS_KEPT
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.entries import Entries, Field, Floats
from sparewatt.inference.matcher.filters import REASONS
from sparewatt.inference.matcher.model import Candidate, MatchJob, Rejected, Rejection
from sparewatt.inference.matcher.question import Places

NANO = 1e9
HALF_A_STEP = 5e-7
"""Prices per million tokens come in millionths of a nano: rounding down must not slip below a whole one."""
_T = TypeVar("_T")
_TOLD: Places = np.array(
    [
        Field.CONTEXT_TOKENS,
        Field.WEIGHTS_BYTES,
        Field.KV_BYTES_PER_TOKEN,
        Field.VRAM_BYTES,
        Field.JOBS,
        Field.ROOM_JOBS,
    ]
)


class Kept(Sequence[_T]):
    """A sequence whose items are made when asked for; equal to any other that holds the same."""

    __slots__ = ("_numbers", "_places", "_seated")

    def __init__(self, entries: Entries, places: Places, numbers: Floats) -> None:
        self._seated = entries.seated
        self._places = places
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._places)

    def node_at(self, index: int) -> NodeId:
        place: int = self._places[index]
        return self._seated[place]

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_T]: ...
    def __getitem__(self, at: int | slice) -> _T | Sequence[_T]:
        if isinstance(at, slice):
            return tuple(self._made(index) for index in range(*at.indices(len(self))))
        return self._made(range(len(self))[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    @abstractmethod
    def _made(self, index: int) -> _T: ...


class Ranked(Kept[Candidate]):
    """The best nodes in order. Numbers: a line of `formula.SUMMARY`, the parts, and the jitter."""

    __slots__ = ()

    def _made(self, index: int) -> Candidate:
        cost, first_token_s, finish_s, usd, *parts = self._numbers[index].tolist()
        price_nano = int(usd * NANO + HALF_A_STEP)
        return Candidate(self.node_at(index), cost, tuple(parts), first_token_s, finish_s, price_nano)


class RankedHolders(Ranked):
    """The same, where some hold a part of the prompt."""

    __slots__ = ("_cached",)

    def __init__(self, entries: Entries, places: Places, numbers: Floats, cached: Mapping[NodeId, int]) -> None:
        super().__init__(entries, places, numbers)
        self._cached = cached

    def _made(self, index: int) -> Candidate:
        found = super()._made(index)
        return found._replace(cached_tokens=self._cached.get(found.node_id, 0))


class Stopped(Kept[Rejected]):
    """Some of those that have the model and cannot have the job."""

    __slots__ = ("_job", "_reasons")

    def __init__(self, job: MatchJob, entries: Entries, stops: NDArray[np.int8], named: Places) -> None:
        """`stops`: of all places or of the named ones, the number of what stopped each, or -1.

        The same are kept whatever the table's order.
        """
        if kernel.ready():
            places, numbers = kernel.pick_stopped(entries, stops, named, _TOLD, k=REJECTIONS_KEPT)
        else:
            places = _lowest(entries, stops, named)
            numbers = entries.numbers[places[:, None], _TOLD]
        super().__init__(entries, places, numbers)
        self._job = job
        at = np.searchsorted(named, places) if named.size else places
        self._reasons = stops[at].tobytes()

    def _made(self, index: int) -> Rejected:
        context_tokens, weights, kv_token, vram, jobs, room = self._numbers[index].tolist()
        reason = REASONS[self._reasons[index]]
        match reason:
            case Rejection.PROMPT_TOO_LONG:
                needed, had = float(self._job.prompt_tokens_floor), context_tokens
            case Rejection.TOO_LITTLE_VRAM:
                needed, had = weights + kv_token * (self._job.prompt_tokens + self._job.output_tokens), vram
            case Rejection.FULL:
                needed, had = jobs + 1, room
            case _:
                needed = had = 0.0
        return Rejected(self.node_at(index), reason, needed=needed, had=had)


def _lowest(entries: Entries, stops: NDArray[np.int8], named: Places) -> Places:
    """As `compiled.pick_stopped`."""
    places = np.flatnonzero(stops >= 0)
    places = named[places] if named.size else places
    hashes = entries.hashes[places]
    if places.size > REJECTIONS_KEPT:
        places = places[np.argpartition(hashes, REJECTIONS_KEPT)[:REJECTIONS_KEPT]]
        hashes = entries.hashes[places]
    lowest: Places = places[np.argsort(hashes)]
    return lowest
