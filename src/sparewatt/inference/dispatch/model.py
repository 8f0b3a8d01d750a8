"""A job, its attempts, the records kept of them, and the protocols of what dispatch talks to (sink, tab, gate)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.limits import ATTEMPTS_MAX, JOB_TIMEOUT_S, REFUSALS_MAX
from sparewatt.core.money import Nano
from sparewatt.inference.call import ModelCall
from sparewatt.inference.matcher.model import AllowedNodes, Candidate, Decision, MatchJob
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.protocol.openai.chat import Usage

SEAMS_MAX = 8
"""Nodes that may take over one answer after another has begun it: on the shakiest network a long answer still ends."""


class WriteBatch:
    """What the direct path writes at the end of this tick of the event loop, for all clients of a server."""

    __slots__ = ("_at_end_of_tick", "pieces")

    def __init__(self, at_end_of_tick: Callable[[Callable[[], None]], object]) -> None:
        self._at_end_of_tick = at_end_of_tick
        self.pieces: dict[DirectPath, bytes] = {}
        """The caller that adds the first piece calls `schedule`."""

    def schedule(self) -> None:
        self._at_end_of_tick(self._write_all)

    def _write_all(self) -> None:
        pieces = self.pieces
        try:
            for path in list(pieces):
                path.write(pieces.pop(path))
        finally:
            if pieces:  # a client whose write failed must not hold up the others
                self.schedule()


class DirectPath:
    """The direct path from a node's link to one client's socket, used while chunks differ in their text only.

    Once two chunks of an answer have the same shape (`reply.ChunkShape`), the next need not be parsed as JSON. Instead
    of calling `Sink.data`, the attempt adds such a chunk to the `WriteBatch`: each client gets all its chunks of a tick
    in one write. Any other event falls back to `Attempt.on_data`. Worth 10 to 18 % of a streamed token's processor time
    (ADR 37). The sink updates `is_open`, and takes unwritten pieces back before it writes itself.
    """

    __slots__ = ("batch", "frame_format", "is_open", "last_added_s", "unread_bytes", "write")

    def __init__(self, write: Callable[[bytes], object], form: bytes, batch: WriteBatch, *, is_open: bool) -> None:
        self.write = write
        self.frame_format = form
        """A bytes format with two fields: the length of a piece and the piece."""
        self.batch = batch
        self.is_open = is_open
        """Whether the client reads: False is back-pressure."""
        self.unread_bytes = 0
        """Written here and not read by the client yet."""
        self.last_added_s = 0.0
        """When a piece was last added."""

    def take_unwritten(self) -> bytes:
        """The pieces not written yet: they come before anything that the sink writes itself."""
        return self.batch.pieces.pop(self, b"")


class Sink(Protocol):
    """Where a reply goes. Either `fail`, or `start`, then `data` any number of times, then `finish`."""

    def start(self, headers: Mapping[str, str]) -> None: ...

    def data(self, data: bytes) -> None: ...

    def direct_path(self) -> DirectPath | None:
        """A faster way than `data` for the next chunks, if there is one; valid until `finish`."""
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


class BilledAnswer(NamedTuple):
    """What the books will say of an answer: the same that its client is told, and that its nodes are paid for."""

    usage: Usage
    cost: Nano


class RunState(enum.Enum):
    TRYING = "trying"
    """The client has nothing yet: a failed attempt is invisible."""
    REPLYING = "replying"
    """The client has a part of the answer."""
    RESUMING = "resuming"
    """The node was lost; the run looks for another that can continue the answer."""
    OVER = "over"


class Tab(Protocol):
    """The bill of one job. Dispatch reports what was delivered; metering does the rest."""

    def settle(self, attempts: Sequence[AttemptRecord], units: CompletionUnits) -> None:
        """The last attempt has sent all that it will: decide what of it is paid. `units` is what a client can read."""
        ...

    def billed(self, attempts: Sequence[AttemptRecord]) -> BilledAnswer:
        """What these attempts have delivered so far, and what it costs."""
        ...

    def note_complete(self, attempts: Sequence[AttemptRecord]) -> None:
        """The answer is whole, and its client does not have the end yet. Raises if it cannot be journalled."""
        ...

    def close(self, outcome: Outcome, attempts: Sequence[AttemptRecord]) -> None:
        """The job is over. Called once."""
        ...


class Gate(Protocol):
    """The nodes that a job's policy allows, and where they should be."""

    @property
    def near(self) -> str | None:
        """A country or group that nodes should be near to."""
        ...

    def stages(self) -> Sequence[AllowedNodes | None]:
        """The sets of nodes to match among, in order of preference; None stands for all nodes."""
        ...

    def payer_nodes(self) -> Collection[NodeId]: ...

    def relaxations(self) -> list[str]:
        """What the client could relax so that a node becomes eligible, in words."""
        ...

    def admits(self, node_id: NodeId) -> bool:
        """Check one node by what is known now. A node that fails is left out of later `stages`."""
        ...


class Job(msgspec.Struct, frozen=True):
    """A call that was routed and has its hold: what to send to a node, which nodes may serve it, and its bill."""

    match: MatchJob
    """What the matcher looks at: sizes and preference."""
    call: ModelCall
    """The client's request."""
    key_id: KeyId
    body: bytes
    """For the node's model server."""
    tab: Tab | None = None
    gate: Gate | None = None
    """The nodes that may serve it; None if all may."""
    attempts_max: int = ATTEMPTS_MAX
    prefix: tuple[int, ...] = ()
    """Its prompt as hashed blocks (see `prefix_index`); empty if no node has a prefix cache."""
    allow_resume: bool = True
    """Whether another node may continue an answer that has begun."""
    body_model: str = ""
    """The model that `body` names; where a node's server calls it otherwise, the name is replaced."""
    reply_model: str = ""
    """What the client calls the model, which the reply repeats."""
    output_limit: int | None = None
    """Tokens that all its answers together may have; None if there is no limit."""
    is_check: bool = False
    """Whether the network sends it to compare answers: it goes to nodes that get nothing else, too."""
    may_check: bool = True
    """Whether the network may send it to a second node to compare the answers."""


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """Deadlines. An attempt gets a multiple of what was predicted (see `deadlines`)."""

    first_token_min_s: float = 2.0
    """The shortest time to a first token after which another node gets the job."""
    first_token_floor_s: float = 30.0
    """The shortest while no other node can take it."""
    first_token_factor: float = 4.0
    p99_factor: float = 2.0
    """Of what the slowest of a hundred first tokens took, for a node whose predictions are poor."""
    hedge_min_s: float = 1.0
    hedge_factor: float = 2.0
    """After how long, and how many times the prediction, a second node may be asked as well."""
    whole_reply_floor_s: float = 120.0
    """As `first_token_floor_s`, for a reply of which no first token is seen."""
    idle_s: float = 60.0
    """Silence allowed in an answer that no other node could continue."""
    stall_floor_s: float = 2.5
    stall_ceiling_s: float = 10.0
    stall_factor: float = 8.0
    """Silence allowed in an answer that another node can continue: a multiple of a predicted step, and of this node's
    longest pause so far up to the ceiling."""
    resume_wait_s: float = 30.0
    """How long a broken answer waits for a free node that can continue it."""
    job_s: float = JOB_TIMEOUT_S


class DeliveryCount(msgspec.Struct, array_like=True, gc=False):
    """What the gateway counted of an answer, and the token counts that the node reported."""

    chunks: int = 0
    text_bytes: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    """As sent to the client; with several choices, the last one sent."""
    paid_prompt_tokens: int | None = None
    paid_completion_tokens: int | None = None
    """What of the reported counts is paid, once that is settled."""
    is_marked: bool = False
    """Whether the node claimed far more than what it sent can hold."""


class AttemptRecord(msgspec.Struct, array_like=True, gc=False):
    """One node's attempt at a job. Times are milliseconds after the job arrived.

    Packed as an array (`match_ring.pack`), and not seen by the garbage collector: it holds nothing that could hold it.
    """

    node_id: NodeId
    started_ms: float
    outcome: Outcome = Outcome.RUNNING
    reason: str | None = None
    first_token_ms: float | None = None
    ended_ms: float | None = None
    tokens: int = 0
    """As the node reported, else the chunks that were counted."""
    owner: AccountId | None = None
    prompt_price_nano: int = 0
    completion_price_nano: int = 0
    """Nano-USD per million tokens, as the node charged when it was chosen."""
    delivered: DeliveryCount | None = None
    """The part that was forwarded to the client."""
    chars: int = 0
    """Characters of text in that part."""
    carried_tokens: int = 0
    carried_chars: int = 0
    """What the client had from earlier nodes when this one continued the answer: the position of the seam."""


class Reassignment(NamedTuple):
    """A later match for the same job: the candidates from which this attempt's node was chosen."""

    attempt: int
    ranked: tuple[Candidate, ...]
    """The best of the nodes that were left, as many as a decision keeps."""


class MatchRecord(msgspec.Struct, gc=False):
    """What is recorded of a match: numbers and ids, never content. Part of no reference cycle, like its attempts."""

    id: MatchId
    key_id: KeyId
    created_unix_s: float
    decision: Decision
    outcome: Outcome = Outcome.RUNNING
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    reassignments: tuple[Reassignment, ...] = ()
    """One per attempt after the first."""
    error_status: int | None = None
    """The HTTP status of the error that the client got instead of a reply, and its code."""
    error_code: str | None = None
    """And its code."""
    stream_error_code: str | None = None
    """The code of the error event that ended a reply which had begun."""
    match_s: float = 0.0
    """How long the match took."""
    streamed: bool = True
    """False for an answer in one piece: then the time of its first token is unknown."""

    @property
    def refusals(self) -> int:
        return sum(attempt.outcome is Outcome.REFUSED for attempt in self.attempts)

    def has_attempts_left(self, attempts_max: int) -> bool:
        """Allowed are `attempts_max` attempts without output, plus two refusals, which cost nothing.

        A lost race costs nothing either. Attempts that wrote a part of the answer are bounded by SEAMS_MAX instead.
        """
        idle = seams = 0
        for attempt in self.attempts:
            seams += attempt.delivered is not None
            idle += attempt.delivered is None and attempt.outcome is not Outcome.CANCELLED
        return seams <= SEAMS_MAX and idle - min(self.refusals, REFUSALS_MAX) < attempts_max

    def insert_before_last(self, attempt: AttemptRecord) -> None:
        """One that lost a race: the last is the one that goes on."""
        at = len(self.attempts) - 1
        self.attempts.insert(at, attempt)
        self.reassignments = tuple(
            move._replace(attempt=move.attempt + (move.attempt >= at)) for move in self.reassignments
        )

    @property
    def first_token_ms(self) -> float | None:
        """As the client saw it: the first token of the first node that wrote any."""
        if self.streamed:
            for attempt in self.attempts:
                if attempt.first_token_ms is not None:
                    return attempt.first_token_ms
        return None
