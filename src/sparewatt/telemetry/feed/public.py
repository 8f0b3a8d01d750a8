"""What is public of a node and of a match: region and state, never a name, an address, an exact size or a price. Pure.

A node has a public handle that does not lead to its address. Its owner and operators see more in `GET /v1/nodes`.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from sparewatt.accounts.principal import Principal
from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.inference.matcher.node_row import NodeRow, NodeState
from sparewatt.policy.gpus import gpu_class_of
from sparewatt.protocol.api.feed import FeedMatch, FeedNode, NodeStateName
from sparewatt.telemetry.feed.places import public_region, spot_of

BYTES_PER_GB = 10**9
NO_CLASS = "other"
NO_GPU = "cpu"
_HANDLE_BYTES = 6
_STATE_CODES = {state: code for code, state in enumerate(NodeState)}
STATES: list[NodeStateName] = [state.value for state in NodeState]
"""In a frame a state is an index into this list."""

Size = Literal["XS", "S", "M", "L", "XL"]
_SIZES: tuple[tuple[int, Size], ...] = ((64, "XS"), (512, "S"), (4_096, "M"), (32_768, "L"))


def handle_of(node_id: NodeId, *, secret: bytes) -> str:
    """A node's public name: always the same in one network, and no way back to its address."""
    keyed = hashlib.blake2b(node_id.encode(), key=secret[:64], digest_size=_HANDLE_BYTES, person=b"sparewatt handle")
    return f"n{keyed.hexdigest()}"


def may_know_all(row: NodeRow, principal: Principal) -> bool:
    """Load, failures and temperature of a node are for its owner and for operators."""
    return principal.is_operator or (row.owner is not None and row.owner == principal.account_id)


def code_of(state: NodeState) -> int:
    return _STATE_CODES[state]


def class_of(row: NodeRow) -> str:
    gpu = row.specs.gpu
    return NO_GPU if row.specs.gpu_count == 0 or gpu.lower() == NO_GPU else gpu_class_of(gpu) or NO_CLASS


def vram_gb_of(row: NodeRow) -> int:
    """In whole gigabytes; without a GPU a power of two, since exact memory would be a fingerprint."""
    gb = max(1, round(row.specs.vram_bytes / BYTES_PER_GB))
    return gb if row.specs.gpu_count else 1 << (gb.bit_length() - 1)


def feed_node(row: NodeRow, *, number: int, secret: bytes, state: NodeState) -> FeedNode:
    region = public_region(row.specs.region)
    lon, lat = spot_of(row.id, row.specs.region, secret=secret) or (None, None)
    handle = handle_of(row.id, secret=secret)
    return FeedNode(
        number, handle, region, lon, lat, vram_gb_of(row), class_of(row), row.specs.gpu_count, code_of(state)
    )


class PublicNode(NamedTuple):
    """A match's node in a frame."""

    number: int | None
    region: str | None


def feed_match(record: MatchRecord, nodes: list[PublicNode]) -> FeedMatch:
    """`nodes`: one for each attempt."""
    decision = record.decision
    return FeedMatch(
        id=record.id,
        at=round(record.created_unix_s, 1),
        model=decision.job.model,
        outcome=record.outcome.value,
        candidates=decision.total,
        eligible=decision.eligible_count,
        nodes=[node.number for node in nodes],
        region=nodes[-1].region if nodes else None,
        size=size_of(decision.job.prompt_tokens + decision.job.output_tokens),
        first_token_ms=two_digits(record.first_token_ms),
        moved=sum(attempt.outcome not in (Outcome.DONE, Outcome.RUNNING) for attempt in record.attempts[:-1]),
    )


def size_of(tokens: int) -> Size:
    """A rough size: the exact length of a prompt is private."""
    return next((name for limit, name in _SIZES if tokens <= limit), "XL")


def two_digits(ms: float | None) -> int | None:
    return None if ms is None else int(digits(ms, 2))


def digits(value: float, count: int) -> float:
    """Rounded to so many significant digits: exact values could identify a job."""
    return float(f"{value:.{count}g}")
