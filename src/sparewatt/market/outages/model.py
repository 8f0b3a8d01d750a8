"""What a validator hears when it judges an outage, and what it wants done about one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.protocol.contracts.match import Down
from sparewatt.protocol.contracts.outage_messages import OutageMessage, SignedDown


class HeardBeats(Protocol):
    """Chain times of accepted heartbeats. Implemented by HeartbeatBook."""

    def heard_at(self, provider: str) -> int | None: ...

    def held_at(self, provider: str, lease_id: str, term: int) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """One validator's senses, now."""

    beats: HeardBeats
    unix_s: int
    """Chain time as it runs on."""
    now_ms: int
    """By its own clock, which never jumps."""
    is_current: bool
    """Whether it has read the chain up to its head. If not, a lease may have ended without its knowing."""
    validators: int = 0
    """Others with weight."""
    reached_validators: int = 0
    """Those of them that answered lately."""


@dataclass(frozen=True, slots=True)
class DownCertificate:
    """What `lease_moves` takes as evidence."""

    down: Down
    votes: tuple[SignedDown, ...]
    """Of a quorum, ascending by signer."""
    signers: tuple[str, ...]
    """Vote keys of `votes`, in their order."""


@dataclass(slots=True)
class OutageOutput:
    """What one step wants done, in this order: make `signed` durable, then send, then submit."""

    code: int = 0
    """0, or a `MessageRefusal`: the answer to a message."""
    signed: list[SignedDown] = field(default_factory=list)
    broadcast: list[OutageMessage] = field(default_factory=list)
    replies: list[SignedDown] = field(default_factory=list)
    certificates: list[DownCertificate] = field(default_factory=list)
    """Ready to be submitted now. Given again with every tick until the lease has moved."""
    is_asking: bool = False
    """Whether it depends on the other validators' answers, since it hears too few providers."""
