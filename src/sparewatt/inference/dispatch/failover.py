"""Whether and from where another node can go on with a broken answer. One per job; idle until something breaks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.inference.dispatch.emitted_text import EmittedText
from sparewatt.inference.dispatch.model import Gate, Job
from sparewatt.inference.dispatch.seam import Seam, fields_of
from sparewatt.inference.matcher.model import AllowedNodes
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.continuation import ContinuationTerms, continuation_terms, with_reduced_limits

CONTINUES = "continue"
"""The filter that keeps the rest of an answer off nodes that could only start it anew."""


ABLE_FRESH_S = 1.0
"""Who can go on changes seldom, and a node that dies under many answers has all of them look at once."""


class ContinuationCandidates:
    """Who can go on with an answer, among all nodes: one list for all jobs that look."""

    def __init__(self, table: NodeTable, *, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._known: dict[tuple[str, frozenset[Capability]], tuple[float, frozenset[NodeId]]] = {}

    def nodes(self, model: str, ways: frozenset[Capability]) -> frozenset[NodeId]:
        """As of a second ago at most."""
        now_s, known = self._clock.now_s(), self._known.get((model, ways))
        if known is None or now_s - known[0] >= ABLE_FRESH_S:
            self._known = {key: entry for key, entry in self._known.items() if now_s - entry[0] < ABLE_FRESH_S}
            found = frozenset(row.id for row in self._table if _is_able(row, model, ways))
            known = self._known[model, ways] = (now_s, found)
        return known[1]

    def has(self, node_id: NodeId, model: str, ways: frozenset[Capability]) -> bool:
        """As of now."""
        row = self._table.get(node_id)
        return row is not None and _is_able(row, model, ways)


def _is_able(row: NodeRow, model: str, ways: frozenset[Capability]) -> bool:
    report = row.models.get(model)
    return report is not None and not ways.isdisjoint(report.capabilities or ())


class Failover:
    def __init__(self, job: Job, able: ContinuationCandidates) -> None:
        self._job = job
        self._able = able
        self._texts: list[str] = []
        self._opening: bytes | None = None
        self._is_more_than_text = False
        self._finished: set[int] = set()
        self.tokens = 0
        """Of the answer, that the client has."""

    @cached_property
    def terms(self) -> ContinuationTerms:
        job = self._job
        found = continuation_terms(job.call.path, job.body)
        if job.allow_resume and job.attempts_max > 1:
            return found
        return found._replace(methods=frozenset(), why_not="the request's policy does not let it go on elsewhere")

    def add(self, said: EmittedText, tokens: int) -> int:
        """A node's part is over. Tells how many characters of text it was."""
        self._opening = self._opening or said.opening
        self._is_more_than_text |= said.is_more_than_text
        self._finished |= said.finished
        self.tokens += tokens
        text = "" if said.is_more_than_text else said.text()
        self._texts.append(text)
        return len(text)

    def can_move(self, said: EmittedText | None) -> bool:
        """While a node is at it: whether another could go on after what it has said so far."""
        said = said or EmittedText()
        is_text = not (self._is_more_than_text or said.is_more_than_text or said.finished)
        return is_text and bool(self.terms.methods)

    def finish(self) -> str | None:
        """The reason to give where all is written and only the end is missing ("" if it was given); else None."""
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
            return "more than text was sent, which nobody can go on from"
        if len(self._job.body) + len(self.text.encode()) > REQUEST_BODY_BYTES_MAX:
            return "request and answer together are too large for another node"
        return None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def seam(self) -> Seam:
        return Seam(self.text, self.tokens, fields_of(self._opening), self.terms.stops)

    def rest(self) -> Job:
        """What is left of the job, for nodes that can go on with it."""
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
        return FailoverGate(self._job.gate, self._able, self._job.match.model, self.terms.methods)


class FailoverGate:
    """Implements Gate: whom the request's own policy allows, and of these who can go on with an answer."""

    def __init__(
        self, inner: Gate | None, able: ContinuationCandidates, model: str, ways: frozenset[Capability]
    ) -> None:
        self.inner = inner
        self._able = able
        self._model = model
        self._ways = ways

    def stages(self) -> Sequence[AllowedNodes]:
        able = self._able.nodes(self._model, self._ways)
        inner = self.inner.stages() if self.inner is not None else (None,)
        return [_both(stage, able) for stage in inner]

    def own_nodes(self) -> Collection[NodeId]:
        return self.inner.own_nodes() if self.inner is not None else ()

    def relaxations(self) -> list[str]:
        return []

    def admits(self, node_id: NodeId) -> bool:
        return self.is_able(node_id) and (self.inner is None or self.inner.admits(node_id))

    def is_able(self, node_id: NodeId) -> bool:
        return self._able.has(node_id, self._model, self._ways)

    def may_come(self, tried: Collection[NodeId]) -> bool:
        """Whether somebody is left who is only busy, or away for a moment."""
        left_out = {*tried, *self.own_nodes()}
        return any(not stage.nodes <= left_out for stage in self.stages())


def _both(stage: AllowedNodes | None, able: frozenset[NodeId]) -> AllowedNodes:
    if stage is None:
        return AllowedNodes(able)
    nodes = stage.nodes & able
    return AllowedNodes(nodes, {**stage.rejected_by_field, CONTINUES: len(stage.nodes) - len(nodes)})
