"""Failover in the middle of an answer: whether another node can continue it, from where, and which nodes can.

A seam is the place where one node's part of an answer ends and the next one's begins. To continue, the gateway keeps
the text that it has sent (`EmittedText`), cuts it out of a node's repetition, and watches for a stop text that begins
in one part and ends in the next, where neither node can see it (`StraddlingStop`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import KIB, MIB, REQUEST_BODY_BYTES_MAX
from sparewatt.inference.dispatch.model import AttemptRecord, Gate, Job
from sparewatt.inference.matcher.model import AllowedNodes
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.text_units import NOTHING, CompletionUnits, units_of_json
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.chat import CALLED, TOKENS_MAX, CompletionChunk, Usage
from sparewatt.protocol.openai.continuation import ContinuationTerms, continuation_terms, with_reduced_limits

EMITTED_TEXT_BYTES_MAX = 1 * MIB
"""Text of an answer that is kept so that another node can go on with it: some 250,000 tokens."""

COUNTED_BYTES = 32 * KIB
"""Text that no node could continue is counted and dropped in pieces of this size."""

_NOTHING = (b"null", b'""', b"[]", b"{}")
_TEXT_FIELDS = ("role", "content")


class EmittedText:
    """One node's part of an answer."""

    __slots__ = ("_choices", "_counted", "_others", "_raw", "finished", "is_more_than_text", "opening")

    def __init__(self) -> None:
        self._raw = bytearray()
        """Its text as raw JSON: the insides of all strings, concatenated."""
        self._others: dict[tuple[int, str], bytearray] = {}
        """The same of text that no node could continue, by choice and field."""
        self._counted = NOTHING
        """What was in these and is dropped."""
        self._choices: set[int] = set()
        self.opening: bytes | None = None
        """The first chunk: its id and model are those of the whole answer."""
        self.finished: frozenset[int] = frozenset()
        """Choices that are complete."""
        self.is_more_than_text = False
        """Tool calls, reasoning, several choices or too much text: no node could continue that."""

    def add(self, chunk: CompletionChunk, data: bytes) -> None:
        if self.opening is None:
            self.opening = data
        for choice in chunk.choices or ():
            self._choices.add(choice.index)
            if choice.finish_reason:
                self.finished |= {choice.index}
            if choice.index or any(_is_more(name, bytes(part)) for name, part in (choice.delta or {}).items()):
                self._give_up()
            for name, inside in choice.readable():
                self._add_piece(choice.index, "content" if name == "text" else name, inside)

    def add_text(self, inside: bytes, field: str = "content") -> None:
        """Add a piece of the first choice, given as the inside of a JSON string."""
        self._add_piece(0, field, inside)

    def _add_piece(self, index: int, field: str, inside: bytes) -> None:
        if len(self._raw) > EMITTED_TEXT_BYTES_MAX:
            self._give_up()
        if not self.is_more_than_text:
            self._raw += inside
            return
        pieces = self._others.setdefault((index, field), bytearray())
        pieces += inside
        if len(pieces) > COUNTED_BYTES:
            self._count(pieces)

    def buffer(self, field: str = "content") -> bytearray:
        """Where `add_text` puts a piece, for the direct path."""
        return self._raw if not self.is_more_than_text else self._others.setdefault((0, field), bytearray())

    def _count(self, pieces: bytearray) -> None:
        self._counted += units_of_json(pieces)
        pieces.clear()

    def _give_up(self) -> None:
        if not self.is_more_than_text:
            self.is_more_than_text = True
            self._others[0, "content"], self._raw = self._raw, bytearray()

    def text(self) -> str:
        return msgspec.json.decode(b'"' + self._raw + b'"', type=str)

    def units(self) -> CompletionUnits:
        """What of it a client can read."""
        text = self._counted
        for pieces in (self._raw, *self._others.values()):
            if pieces:
                text += units_of_json(pieces)
        calls = sum(name.startswith(CALLED) for _, name in self._others)
        return CompletionUnits(text, len(self._choices), calls)


def _is_more(name: str, part: bytes) -> bool:
    """Whether a field of a delta is more than text that another node could continue."""
    return part not in _NOTHING and name != "role" and (name not in _TEXT_FIELDS or part[:1] != b'"')


StopState = Literal["clear", "wait", "hit"]


class StraddlingStop:
    """Feed the text that follows. Once `clear`, it stays so: a stop text that begins later is seen by the node."""

    def __init__(self, before: str, stops: Sequence[str]) -> None:
        longest = max((len(stop) for stop in stops), default=0)
        self._joined = before[-(longest - 1) :] if longest > 1 else ""
        self._open = [(at, stop) for at in range(len(self._joined)) for stop in stops]
        self.state: StopState = self._look()

    def feed(self, text: str) -> StopState:
        if self.state == "wait":
            self._joined += text
            self.state = self._look()
        return self.state

    def _look(self) -> StopState:
        if any(self._joined.startswith(stop, at) for at, stop in self._open):
            return "hit"
        self._open = [(at, stop) for at, stop in self._open if stop.startswith(self._joined[at:])]
        return "wait" if self._open else "clear"


_SAME = ("id", "object", "created", "model")
"""What every chunk of one answer has in common."""


@dataclass(frozen=True, slots=True)
class Seam:
    text: str
    """All that the client has, from all nodes."""
    tokens: int
    """How many were counted in it."""
    fields: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Those of the answer's first chunk that all chunks share."""
    stops: tuple[str, ...] = ()

    def fit(self, data: bytes) -> bytes:
        """A chunk of the second node, with the fields of the first."""
        return msgspec.json.encode({**msgspec.json.decode(data, type=dict[str, msgspec.Raw]), **self.fields})

    def counts(self, own: Usage) -> Usage:
        """The usage of the whole answer: the text that the second node continued is no part of the prompt."""
        return Usage(
            prompt_tokens=max(0, own.prompt_tokens - self.tokens),
            completion_tokens=min(own.completion_tokens + self.tokens, 1 << 24),
        )


def fields_of(opening: bytes | None) -> dict[str, msgspec.Raw]:
    found = msgspec.json.decode(opening or b"{}", type=dict[str, msgspec.Raw])
    return {name: found[name] for name in _SAME if name in found}


def ending(seam: Seam, finish: str, *, usage: Usage | None = None, cost_usd: float | None = None) -> bytes:
    """The end of an answer in place of its node: the finish reason (unless it was sent), the usage, and [DONE]."""
    is_chat = bytes(seam.fields.get("object", b"")) != b'"text_completion"'
    nothing: dict[str, object] = {"delta": {}} if is_chat else {"text": ""}
    choice = {"index": 0, **nothing, "finish_reason": finish}
    events = [_event(seam, {"choices": [choice]})] if finish else []
    if usage is not None:
        counts: dict[str, object] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        cost = {} if cost_usd is None else {"cost": cost_usd}
        events.append(_event(seam, {"choices": [], "usage": counts | cost}))
    return b"".join([*events, b"data: [DONE]\n\n"])


def _event(seam: Seam, own: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode({"object": "chat.completion.chunk", **seam.fields, **own}) + b"\n\n"


CONTINUES = "continue"
"""The filter that keeps the rest of an answer off nodes that could only start it again."""
CANDIDATES_FRESH_S = 1.0
"""The list changes seldom, and when a node dies under many answers, all of them read it at once."""


class ContinuationCandidates:
    """The nodes that can continue an answer: one cached list for all jobs."""

    def __init__(self, table: NodeTable, *, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._known: dict[tuple[str, frozenset[Capability]], tuple[float, frozenset[NodeId]]] = {}

    def nodes(self, model: str, methods: frozenset[Capability]) -> frozenset[NodeId]:
        """At most a second old."""
        now_s, known = self._clock.now_s(), self._known.get((model, methods))
        if known is None or now_s - known[0] >= CANDIDATES_FRESH_S:
            self._known = {key: entry for key, entry in self._known.items() if now_s - entry[0] < CANDIDATES_FRESH_S}
            found = frozenset(row.id for row in self._table if _can_continue(row, model, methods))
            known = self._known[model, methods] = (now_s, found)
        return known[1]

    def includes(self, node_id: NodeId, model: str, methods: frozenset[Capability]) -> bool:
        """As of now."""
        row = self._table.get(node_id)
        return row is not None and _can_continue(row, model, methods)


def _can_continue(row: NodeRow, model: str, methods: frozenset[Capability]) -> bool:
    report = row.models.get(model)
    return report is not None and not methods.isdisjoint(report.capabilities or ())


class Failover:
    """The broken answer of one job: what the client has, and what is left."""

    def __init__(self, job: Job, candidates: ContinuationCandidates) -> None:
        self._job = job
        self._candidates = candidates
        self._texts: list[str] = []
        self._opening: bytes | None = None
        self._is_more_than_text = False
        self._finished: set[int] = set()
        self.tokens = 0
        """Tokens of the answer that the client has."""

    @cached_property
    def terms(self) -> ContinuationTerms:
        job = self._job
        found = continuation_terms(job.call.path, job.body)
        if job.allow_resume and job.attempts_max > 1:
            return found
        return found._replace(
            methods=frozenset(), why_not="the request's policy does not allow another node to continue it"
        )

    def add(self, emitted: EmittedText, tokens: int) -> int:
        """Add the part that one node wrote. Returns its length in characters."""
        self._opening = self._opening or emitted.opening
        self._is_more_than_text |= emitted.is_more_than_text
        self._finished |= emitted.finished
        self.tokens += tokens
        text = "" if emitted.is_more_than_text else emitted.text()
        self._texts.append(text)
        return len(text)

    def can_continue(self, emitted: EmittedText | None) -> bool:
        """Whether another node could continue after what the running one has emitted."""
        emitted = emitted or EmittedText()
        is_text = not (self._is_more_than_text or emitted.is_more_than_text or emitted.finished)
        return is_text and bool(self.terms.methods)

    def finish_reason(self) -> str | None:
        """The finish reason if all is written and only the end is missing ("" if it was sent already); else None."""
        terms = self.terms
        if terms.choices and len(self._finished) >= terms.choices:
            return ""
        is_text = terms.choices == 1 and not self._is_more_than_text
        if is_text and terms.output_limit is not None and self.tokens >= terms.output_limit:
            return "length"
        return None

    def why_not(self) -> str | None:
        if self.terms.why_not:
            return self.terms.why_not
        if self._is_more_than_text:
            return "more than plain text was sent, which no node can continue"
        if len(self._job.body) + len(self.text.encode()) > REQUEST_BODY_BYTES_MAX:
            return "request and answer together are too large for another node"
        return None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def claimed(self, attempts: Sequence[AttemptRecord]) -> Usage:
        """The token counts of the whole answer as the nodes reported them; a prompt that none counted, estimated."""
        prompt = self._job.match.prompt_tokens
        for attempt in attempts:
            if attempt.delivered is not None and attempt.delivered.prompt_tokens is not None:
                prompt = max(0, attempt.delivered.prompt_tokens - attempt.carried_tokens)
        return Usage(prompt, min(self.tokens, TOKENS_MAX))

    def seam(self) -> Seam:
        return Seam(self.text, self.tokens, fields_of(self._opening), self.terms.stops)

    def remaining_job(self) -> Job:
        """The rest of the job, for nodes that can continue it."""
        job = self._job
        match = msgspec.structs.replace(
            job.match,
            prompt_tokens=job.match.prompt_tokens + self.tokens,
            prompt_tokens_floor=job.match.prompt_tokens_floor + self.tokens // 2,
            output_tokens=max(1, job.match.output_tokens - self.tokens),
        )
        body = with_reduced_limits(job.body, self.tokens)
        return msgspec.structs.replace(job, match=match, body=body, gate=self.gate)

    @cached_property
    def gate(self) -> FailoverGate:
        return FailoverGate(self._job.gate, self._candidates, self._job.match.model, self.terms.methods)


class FailoverGate:
    """Implements Gate: of the nodes that the request's policy allows, those that can continue an answer."""

    def __init__(
        self, inner: Gate | None, candidates: ContinuationCandidates, model: str, methods: frozenset[Capability]
    ) -> None:
        self.inner = inner
        self._candidates = candidates
        self._model = model
        self._methods = methods

    @property
    def near(self) -> str | None:
        return self.inner.near if self.inner is not None else None

    def stages(self) -> Sequence[AllowedNodes]:
        candidates = self._candidates.nodes(self._model, self._methods)
        inner = self.inner.stages() if self.inner is not None else (None,)
        return [_both(stage, candidates) for stage in inner]

    def payer_nodes(self) -> Collection[NodeId]:
        return self.inner.payer_nodes() if self.inner is not None else ()

    def relaxations(self) -> list[str]:
        return []

    def admits(self, node_id: NodeId) -> bool:
        return self.can_continue(node_id) and (self.inner is None or self.inner.admits(node_id))

    def can_continue(self, node_id: NodeId) -> bool:
        return self._candidates.includes(node_id, self._model, self._methods)

    def may_recover(self, tried: Collection[NodeId]) -> bool:
        """Whether a node that was not tried is only busy, or offline for a moment."""
        left_out = {*tried, *self.payer_nodes()}
        return any(not stage.nodes <= left_out for stage in self.stages())


def _both(stage: AllowedNodes | None, candidates: frozenset[NodeId]) -> AllowedNodes:
    if stage is None:
        return AllowedNodes(candidates)
    nodes = stage.nodes & candidates
    return AllowedNodes(nodes, {**stage.rejected_by_field, CONTINUES: len(stage.nodes) - len(nodes)})
