"""Types of admission: the job's size, account and key, free slots, and the bounds of the waiting line."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.ids import AccountId, KeyId, ModelId
from sparewatt.core.limits import MIB

WAITING_PER_BAND_MAX = 100
"""Jobs of one priority that wait for one model: at a job a second, the last of them just makes it in time."""

WAITING_PER_ACCOUNT_MAX = 50
"""Of those, one account's, however many keys it has: nobody fills a band alone."""

WAITING_BYTES_MAX = 256 * MIB
"""Bodies that wait, over all models: a dozen of the largest, a hundred thousand of the usual."""

ACCOUNT_BYTES_SHARE = 0.5
"""Of those bytes, how much may be one account's."""

WAITING_S_MAX = 60.0
"""Clients and proxies give up after a minute or so; an answer that says when to come back is better than theirs."""


class Priority(enum.Enum):
    """The bands of a line, first to last."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class TicketState(enum.Enum):
    """A ticket starts or is refused, once, unless its owner leaves first."""

    WAITING = "waiting"
    STARTED = "started"
    REFUSED = "refused"
    LEFT = "left"


class AdmissionRequest(msgspec.Struct, frozen=True):
    """A job as admission sees it."""

    account_id: AccountId
    key_id: KeyId
    model: ModelId
    cost_tokens: int
    priority: Priority = Priority.NORMAL
    body_bytes: int = 0


class CapacityView(Protocol):
    """Free capacity of a model. Both answers are look-ups."""

    def free(self, model: ModelId) -> int:
        """Free slots."""
        ...

    def nodes(self, model: ModelId) -> int:
        """Connected nodes that have the model, measured or not."""
        ...

    def subscribe(self, on_freed: Callable[[Iterable[str]], None]) -> None:
        """Call `on_freed` with the models of a node that gained a free slot."""
        ...


def _shares() -> Mapping[Priority, float]:
    return {Priority.NORMAL: 0.2, Priority.LOW: 0.05}


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Bounds of a line, and how it is shared."""

    per_band: int = WAITING_PER_BAND_MAX
    per_account: int = WAITING_PER_ACCOUNT_MAX
    bytes_max: int = WAITING_BYTES_MAX
    wait_s: float = WAITING_S_MAX
    quantum_tokens: int = 1_000
    """Quantum of deficit round robin, about one chat: whoever has small jobs sends a few, then the next is served."""
    guaranteed: Mapping[Priority, float] = field(default_factory=_shares)
    """What a band gets for each token that others get, however busy those above it are."""

    @property
    def account_bytes_max(self) -> int:
        return int(self.bytes_max * ACCOUNT_BYTES_SHARE)
