"""One job's slot on one node, and the counts of jobs by model that reservations change."""

from __future__ import annotations

import msgspec

from sparewatt.core.ids import ModelId, NodeId


class Reservation(msgspec.Struct, eq=False, gc=False):
    """One job's slot on one node. Released exactly once, however the job ends."""

    node_id: NodeId
    model: ModelId
    prefill_s: float
    """To read its prompt, by what is known of the node."""
    figures_s: float
    """The same by the node's figures alone."""
    kv_bytes: float
    made_at_s: float
    reading_prompt: bool = True
    """False once its first token came, or where that is not seen."""
    was_loaded: bool = True
    """Whether its model was: else its first token says how long loading took, not how fast the node reads."""
    steps_before: float = 0.0
    """Steps that the node's figures had allowed when its first token came; when it was sent, if that is not seen."""
    is_streamed: bool = True
    is_trial: bool = False
    """Whether it waits for its first token at a node that has failed."""
    released: bool = False


def count_up(counts: dict[str, int], name: str) -> bool:
    """Whether it is the first."""
    before = counts.get(name, 0)
    counts[name] = before + 1
    return not before


def count_down(counts: dict[str, int], name: str) -> bool:
    """Whether that was the last."""
    left = counts.get(name, 0) - 1
    if left > 0:
        counts[name] = left
        return False
    counts.pop(name, None)
    return True
