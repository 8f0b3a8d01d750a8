"""Prefix affinity: a node that has the beginning of a prompt in its prefix cache need not read that part again.

The scan ranks all nodes as if none had anything cached. The few that have are then priced again by the same formula,
with a shorter prefill, and merged into the ranking. Context, memory and price stay those of the whole prompt. Pure:
`dispatch/prefix_index.py` remembers which node has which prefix, and whether a node caches prompts at all is its own
word (`ModelReport.prefix_cache_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.columns import NO_POSITIONS, ColumnField, Floats, NodeColumns, Positions
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, MatchJob
from sparewatt.inference.matcher.scan import MatchQuery, ScanFunction, ScanResult, lowest_costs, pack_ranked
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.prompt import PREFIX_HOLDERS_MAX

TOKENS_READ_MIN = 1
"""A server reads the last token of a prompt in any case: the first token of the answer follows from it."""


def cached_tokens(job: MatchJob, prefix_tokens: Mapping[NodeId, int], table: NodeTable) -> dict[NodeId, int]:
    """Tokens of the prompt that each node need not read: no more than it says it can cache, never the whole prompt.

    `prefix_tokens` is what each is believed to have. Of too many nodes those with the most count; ties go by id.
    """
    found: dict[NodeId, int] = {}
    for node_id in sorted(prefix_tokens, key=lambda node: (-prefix_tokens[node], node))[:PREFIX_HOLDERS_MAX]:
        row = table.get(node_id)
        model = row.models.get(job.model) if row is not None else None
        if model is not None and model.state == "warm":
            found[node_id] = min(prefix_tokens[node_id], model.prefix_cache_tokens, job.prompt_tokens - TOKENS_READ_MIN)
    return {node_id: tokens for node_id, tokens in found.items() if tokens > 0}


def merge_holders(
    query: MatchQuery,
    columns: NodeColumns,
    result: ScanResult,
    holders: Positions,
    tokens: Floats,
    *,
    rank: ScanFunction,
) -> ScanResult:
    """The ranking with these holders priced by what is left for them to read. They must be allowed and untried."""
    repriced = rank(
        query, with_shorter_prefill(query, columns, holders, tokens), NO_POSITIONS, NO_POSITIONS, k=holders.size
    )
    again = holders[repriced.positions]
    others = (result.positions[:, None] != again).all(axis=1)
    positions = np.concatenate((result.positions[others], again))
    costs = np.concatenate((result.costs[others], repriced.costs))
    order = lowest_costs(costs[:, 0], columns, positions, k=CANDIDATES_KEPT)
    return result._replace(rows=pack_ranked(positions[order], costs[order]), n_ranked=order.size)


def with_shorter_prefill(query: MatchQuery, columns: NodeColumns, holders: Positions, tokens: Floats) -> NodeColumns:
    """The holders alone, with a curve by which the whole prompt takes as long as what they do not have cached.

    What every prompt costs stays as it is, and attention still covers the cached part.
    """
    part = columns.subset(holders)
    whole = query.prompt_tokens
    unread = np.maximum(0.0, whole - tokens) / whole
    part.write_column(ColumnField.PREFILL_TOKEN_S, part.by_node[:, ColumnField.PREFILL_TOKEN_S] * unread)
    attended = unread * (whole + tokens) / whole
    part.write_column(ColumnField.PREFILL_SQUARE_S, part.by_node[:, ColumnField.PREFILL_SQUARE_S] * attended)
    return part
