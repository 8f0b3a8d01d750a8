"""A job, its attempts, and who receives the reply."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.limits import ATTEMPTS_MAX, JOB_TIMEOUT_S
from sparewatt.core.money import Nano
from sparewatt.inference.call import ModelCall
from sparewatt.inference.dispatch.direct_path import DirectPath
from sparewatt.inference.matcher.model import AllowedNodes, Candidate, Decision, MatchJob


class Sink(Protocol):
    """Where a reply goes. Either `fail`, or `start`, then `data` any number of times, then `finish`."""

    def start(self, headers: Mapping[str, str]) -> None: ...

    def data(self, data: bytes) -> None: ...

    def direct_path(self) -> DirectPath | None:
        """A shorter way than `data` for what comes next, if there is one; it lasts until `finish`."""
        ...

    def finish(self) -> None: ...

    def fail(self, error: SparewattError, headers: Mapping[str, str]) -> None: ...


class Outcome(enum.Enum):
    """How a job or an attempt ended. An attempt may also be REFUSED or TIMED_OUT."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class Tab(Protocol):
    """What a job costs whoever asked for it. Dispatch says what was delivered; the rest is not its business."""

    def cost(self, attempts: Sequence[AttemptRecord]) -> Nano:
        """Of what these have delivered so far."""
        ...

    def close(self, outcome: Outcome, attempts: Sequence[AttemptRecord]) -> None:
        """The job is over. Called once."""
        ...


class Gate(Protocol):
    """What a job's policy says about who may serve it."""

    def stages(self) -> Sequence[AllowedNodes | None]:
        """Whom to look among, first to last; None is everybody."""
        ...

    def own_nodes(self) -> Collection[NodeId]: ...

    def relaxations(self) -> list[str]:
        """What would let somebody through, in words."""
        ...

    def admits(self, node_id: NodeId) -> bool:
        """Judged anew, by what is known right now. Who is refused is not among the stages afterwards."""
        ...


class Job(msgspec.Struct, frozen=True):
    """A call that was routed and held for: what to send to a node, who may have it, and who pays."""

    match: MatchJob
    """What the matcher looks at: sizes and preference."""
    call: ModelCall
    """What the client asked for."""
    key_id: KeyId
    body: bytes
    """For the node's model server."""
    tab: Tab | None = None
    gate: Gate | None = None
    """Who may serve it, where not everybody may."""
    attempts_max: int = ATTEMPTS_MAX
    prefix: tuple[int, ...] = ()
    """Its prompt as hashed blocks (see `prefixes`); empty where no node keeps prompts."""
    allow_resume: bool = True
    """Whether another node may go on with an answer that has begun."""


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """Deadlines. An attempt gets a multiple of what was predicted, never less than the floor."""

    first_token_floor_s: float = 30.0
    first_token_factor: float = 4.0
    whole_reply_floor_s: float = 120.0
    idle_s: float = 60.0
    """Silence in the middle of an answer that nobody else could go on with."""
    stall_floor_s: float = 10.0
    stall_factor: float = 8.0
    """Silence in the middle of one that another node can have: so many times the longest pause seen of this node."""
    resume_wait_s: float = 30.0
    """How long a broken answer waits for a node that can go on with it and has room."""
    job_s: float = JOB_TIMEOUT_S


class DeliveryCount(msgspec.Struct, array_like=True, gc=False):
    """An answer as the gateway counted it, beside what the node says of it."""

    chunks: int = 0
    text_bytes: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    """Why the answer ended, as the client was told; the last one told, of several answers."""


class AttemptRecord(msgspec.Struct, array_like=True, gc=False):
    """One node's turn at a job. Times are milliseconds after the job arrived.

    Written as an array (`ring`), and not seen by the garbage collector: it holds nothing that could hold it.
    """

    node_id: NodeId
    started_ms: float
    outcome: Outcome = Outcome.RUNNING
    reason: str | None = None
    first_token_ms: float | None = None
    ended_ms: float | None = None
    tokens: int = 0
    """By the node's own word, else by the chunks that were counted."""
    owner: AccountId | None = None
    prompt_price_nano: int = 0
    completion_price_nano: int = 0
    """Nano-USD per million tokens, as the node asked for them when it was chosen."""
    delivered: DeliveryCount | None = None
    """What of it was passed on to the client."""
    chars: int = 0
    """Of text, in that."""
    carried_tokens: int = 0
    carried_chars: int = 0
    """What the client had from the nodes before, and this one went on from: where the seam is."""


class Reassignment(NamedTuple):
    """A later choice for the same job: among whom the attempt of this number was chosen."""

    attempt: int
    ranked: Sequence[Candidate]
    """The best of those who were left, as few as a decision keeps."""


class MatchRecord(msgspec.Struct, gc=False):
    """What is kept of a match: numbers and ids, never content. Like its attempts, it is part of no ring."""

    id: MatchId
    key_id: KeyId
    created_unix_s: float
    decision: Decision
    outcome: Outcome = Outcome.RUNNING
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    moves: tuple[Reassignment, ...] = ()
    """Empty unless something broke; as many as there are attempts after the first, which are bounded."""
    error_status: int | None = None
    """The HTTP status of the error that the client got instead of a reply."""
    error_code: str | None = None
    """And its code."""
    broke: str | None = None
    """The code of the error in which a reply ended that had begun."""
    match_s: float = 0.0
    """What the choice took."""
    streamed: bool = True
    """Else the answer came in one piece, and nobody here saw when its first token was written."""

    @property
    def first_token_ms(self) -> float | None:
        """As its client saw it; a node that went on with the answer later wrote another first one."""
        if self.streamed:
            for attempt in self.attempts:
                if attempt.first_token_ms is not None:
                    return attempt.first_token_ms
        return None
