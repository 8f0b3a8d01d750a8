"""Some of the nodes that cannot have a job, as a decision keeps them: the same ones whatever the table's order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.limits import REJECTIONS_KEPT
from sparewatt.inference.matcher.columns import NodeColumns
from sparewatt.inference.matcher.match_query import Positions
from sparewatt.inference.matcher.model import TOLD_OF_STOPPED


def pick_stopped(entries: NodeColumns, stops: NDArray[np.int8], named: Positions) -> bytes:
    """Those of the lowest hashes. `stops`: of all places or of the named ones, what stopped each, or -1."""
    looked = np.flatnonzero(stops >= 0)
    places = named[looked] if named.size else looked
    hashes = entries.hashes[places]
    lowest = np.arange(places.size)
    if places.size > REJECTIONS_KEPT:
        lowest = np.argpartition(hashes, REJECTIONS_KEPT)[:REJECTIONS_KEPT]
    lowest = lowest[np.argsort(hashes[lowest])]
    places, reasons = places[lowest], stops[looked[lowest]]
    return np.column_stack((places, reasons, entries.numbers[places[:, None], np.array(TOLD_OF_STOPPED)])).tobytes()
