"""Prefix affinity: a node that still holds the beginning of a prompt need not read that part again.

The scan ranks everybody as if nobody held anything. The few holders are then priced once more by the same formula, with
less to read, and merged into the ranking. Only reading gets shorter: context, memory and price stay those of the whole
prompt. Pure; who holds what is remembered by dispatch (`dispatch/prefixes.py`), and whether a node keeps prompts at all
is the node's own word (`ModelReport.prefix_cache_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import CANDIDATES_KEPT, PREFIX_HOLDERS_MAX
from sparewatt.inference.matcher.columns import ColumnField, Floats, NodeColumns
from sparewatt.inference.matcher.formula import SHORT_PROMPT_TOKENS
from sparewatt.inference.matcher.match_query import NOBODY, MatchQuery, Positions, ScanFunction, ScanResult, told_of
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.scan import ranked
from sparewatt.inference.matcher.table import NodeTable

TOKENS_READ_MIN = 1
"""A server reads the last token of a prompt in any case: the first one of the answer follows from it."""


def cached_tokens(job: MatchJob, held: Mapping[NodeId, int], table: NodeTable) -> dict[NodeId, int]:
    """Tokens of the prompt that each node need not read: no more than it says it can keep, never the whole prompt.

    `held` is what it is believed to hold. Of too many holders those with the most count; ties go by id.
    """
    found: dict[NodeId, int] = {}
    for node_id in sorted(held, key=lambda holder: (-held[holder], holder))[:PREFIX_HOLDERS_MAX]:
        row = table.get(node_id)
        model = row.models.get(job.model) if row is not None else None
        if model is not None and model.state == "warm":
            found[node_id] = min(held[node_id], model.prefix_cache_tokens, job.prompt_tokens - TOKENS_READ_MIN)
    return {node_id: tokens for node_id, tokens in found.items() if tokens > 0}


def merged(
    job: MatchQuery,
    entries: NodeColumns,
    result: ScanResult,
    holders: Positions,
    tokens: Floats,
    *,
    rank: ScanFunction,
) -> ScanResult:
    """The ranking with these holders priced by what is left for them to read. They must be allowed and untried."""
    found = rank(job, with_less_to_read(job, entries, holders, tokens), NOBODY, NOBODY, k=holders.size)
    again = holders[found.places]
    others = (result.places[:, None] != again).all(axis=1)
    places = np.concatenate((result.places[others], again))
    lines = np.concatenate((result.lines[others], found.lines))
    order = ranked(lines[:, 0], entries, places, k=CANDIDATES_KEPT)
    return result._replace(told=told_of(places[order], lines[order]), found=order.size)


def with_less_to_read(job: MatchQuery, entries: NodeColumns, holders: Positions, tokens: Floats) -> NodeColumns:
    """The holders alone, each with a token's reading time made as much shorter as it has tokens already.

    What even a short prompt takes is left as it is.
    """
    part = entries.some(holders)
    whole = job.prompt_tokens - SHORT_PROMPT_TOKENS
    if whole > 0.0:
        unread = np.maximum(0.0, whole - tokens) / whole
        part.write_column(ColumnField.READ_TOKEN_S, part.numbers[:, ColumnField.READ_TOKEN_S] * unread)
    return part
