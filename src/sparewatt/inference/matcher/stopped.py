"""Who had the model and could not have the job, and why: written down in passing, put into words when somebody asks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REJECTIONS_KEPT
from sparewatt.inference.matcher.entries import Entries, Field
from sparewatt.inference.matcher.filters import REASONS
from sparewatt.inference.matcher.model import MatchJob, Rejected, Rejection

_KEPT = (
    Field.CONTEXT_TOKENS,
    Field.WEIGHTS_BYTES,
    Field.KV_BYTES_PER_TOKEN,
    Field.VRAM_BYTES,
    Field.JOBS,
    Field.ROOM_JOBS,
)


class Stopped(NamedTuple):
    """Some of those that were stopped. Bytes, because there is one of these per decision and few are ever read."""

    nodes: tuple[NodeId, ...]
    reasons: bytes
    numbers: bytes

    def described(self, job: MatchJob) -> tuple[Rejected, ...]:
        numbers = np.frombuffer(self.numbers).reshape(-1, len(_KEPT)).tolist()
        found = [
            _describe(job, node, REASONS[reason], values)
            for node, reason, values in zip(self.nodes, self.reasons, numbers, strict=True)
        ]
        return tuple(sorted(found, key=lambda item: item.node_id))


def write_down(entries: Entries, stops: NDArray[np.int8]) -> Stopped:
    """`stops`: by place, the number of what stopped it, or less than zero. The same ones whatever the table's order."""
    places = np.flatnonzero(stops >= 0)
    if places.size > REJECTIONS_KEPT:
        places = places[np.argpartition(entries.hashes[places], REJECTIONS_KEPT)[:REJECTIONS_KEPT]]
    places = places[np.argsort(entries.hashes[places])]
    nodes = entries.nodes
    kept = entries.numbers[places[:, None], _KEPT]
    return Stopped(tuple([nodes[place] for place in places.tolist()]), stops[places].tobytes(), kept.tobytes())


def _describe(job: MatchJob, node: NodeId, reason: Rejection, values: list[float]) -> Rejected:
    context_tokens, weights, kv_token, vram, jobs, room = values
    match reason:
        case Rejection.PROMPT_TOO_LONG:
            needed, had = float(job.prompt_tokens_floor), context_tokens
        case Rejection.TOO_LITTLE_VRAM:
            needed, had = weights + kv_token * (job.prompt_tokens + job.output_tokens), vram
        case Rejection.FULL:
            needed, had = jobs + 1, room
        case _:
            needed = had = 0.0
    return Rejected(node, reason, needed=needed, had=had)
