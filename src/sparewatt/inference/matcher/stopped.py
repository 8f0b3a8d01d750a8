"""Some of the nodes that cannot have a job, as a decision keeps them: the same ones whatever the table's order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparewatt.core.limits import REJECTIONS_KEPT
from sparewatt.inference.matcher.entries import Entries
from sparewatt.inference.matcher.model import TOLD_OF_STOPPED
from sparewatt.inference.matcher.question import Places


def pick_stopped(entries: Entries, stops: NDArray[np.int8], named: Places) -> bytes:
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
