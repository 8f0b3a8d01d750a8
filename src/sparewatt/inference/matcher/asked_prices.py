"""What the nodes of a model ask, as columns. Pure."""

from __future__ import annotations

import numpy as np

from sparewatt.inference.matcher.columns import ColumnField, Floats, NodeColumns

_NONE: Floats = np.empty(0)


def asked_prices(columns: NodeColumns | None) -> tuple[Floats, Floats]:
    """Dollars per token of prompt and completion, of connected and measured nodes; of all, if there are none."""
    if columns is None:
        return _NONE, _NONE
    data = columns.by_field
    usable = (data[ColumnField.CONNECTED] != 0) & (data[ColumnField.MEASURED] != 0)
    usable = usable if usable.any() else np.ones(len(columns), bool)
    return data[ColumnField.PROMPT_USD][usable], data[ColumnField.COMPLETION_USD][usable]
