"""The refusals of one job, weighed with what the table knows of their nodes: which stand, and who has failed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparewatt.core.errors import SparewattError
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.inference.dispatch.failure_reasons import ErrorCode, ServerError, request_error
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome
from sparewatt.inference.dispatch.second_opinion import Contradiction, Opinion, SecondOpinion
from sparewatt.inference.matcher.table import NodeTable


class RefusalReview:
    __slots__ = ("_model", "_needs", "_opinions", "_table")

    def __init__(self, table: NodeTable, model: ModelId, needs: Collection[str] = ()) -> None:
        """`needs`: what the request needs of a model."""
        self._table = table
        self._model = model
        self._needs = needs
        self._opinions = SecondOpinion()

    @property
    def owners(self) -> set[AccountId]:
        """Of the nodes that refused."""
        return self._opinions.owners

    def add(self, record: AttemptRecord, error: ServerError, *, any_owner: bool) -> SparewattError | None:
        """The client's error, if a second node says the like. `any_owner`: none of another owner is left to ask."""
        opinion = Opinion(record, error, self._context_tokens(record.node_id))
        code = self._opinions.add(opinion, any_owner=any_owner)
        return None if code is None else self._error(code, nodes=2, stated=error.context_tokens)

    def last_word(self, attempts: Sequence[AttemptRecord]) -> SparewattError | None:
        """When no node is left to ask: a refusal stands if no other node got as far as to contradict it."""
        refusal = self._opinions.refusal()
        if refusal is None:
            return None
        others = [attempt.outcome for attempt in attempts if attempt is not refusal.record]
        if Outcome.FAILED in others or Outcome.TIMED_OUT in others:
            return None
        return self._error(refusal.error.code, nodes=1, stated=refusal.error.context_tokens)

    def contradict(self, by: NodeId, *, now_s: float) -> None:
        """A node does the job: those that said it cannot be done have failed."""
        table, model = self._table, self._model
        for node_id, kind in self._opinions.contradicted(context_tokens=self._context_tokens(by)):
            if kind is Contradiction.FAILED:
                table.note_failure(node_id, model=model, now_s=now_s)
            elif kind is Contradiction.LACKS_FEATURE:
                table.note_difference(node_id, model=model, now_s=now_s)

    def settle(self) -> None:
        """The job is over, and nobody was contradicted."""
        self._opinions.settle()

    def _error(self, code: ErrorCode, *, nodes: int, stated: int) -> SparewattError:
        """`stated`: a context's size in the server's own error, which counts if no node has reported one."""
        reported = max((self._context_tokens(row.id) for row in self._table if self._model in row.models), default=0)
        return request_error(code, self._model, context_tokens=reported or stated, nodes=nodes, needs=self._needs)

    def _context_tokens(self, node_id: NodeId) -> int:
        row = self._table.get(node_id)
        report = row.models.get(self._model) if row is not None else None
        return (report.context_length or 0) if report is not None else 0
