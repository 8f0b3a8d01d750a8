"""Explanations of past matches: which nodes were candidates, why one was chosen, and what became of each attempt.

The dispatcher has the records of the last matches in memory; a record is put into words when an explanation is
requested or stored. Other processes of this gateway and Postgres (for some days) return JSON, which is passed through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import structs

from sparewatt.accounts.keys import KeyRing
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import MATCH, MATCHES, MatchesReply, MatchesRequest, MatchReply, MatchRequest
from sparewatt.core.cleanup import on_failure
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.limits import MATCHES_LOOKED_BACK_MAX
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Reassignment
from sparewatt.inference.matcher.explain import describe, describe_ranked
from sparewatt.inference.matcher.model import Decision
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.matches import (
    ContinuationPoint,
    DecisionExplanation,
    MatchAttempt,
    MatchExplanation,
    MatchReassignment,
    MatchSummary,
)
from sparewatt.store.database import StoredMatch

MATCHES_STORED_AT_ONCE = 100
"""Explanations written in one go, which takes about 20 ms to put into words."""
_MATCH_ID = re.compile(r"match_[0-9a-z_]{1,60}")


class MatchStore(Protocol):
    """Implemented by `Database`."""

    async def save_matches(self, matches: Sequence[StoredMatch]) -> None: ...

    async def find_match(self, match_id: MatchId) -> tuple[KeyId, bytes] | None: ...


class OwnedExplanation(NamedTuple):
    account: AccountId | None
    """Of the request; None if its key is no longer known."""
    body: bytes
    """A `MatchExplanation` as JSON."""


@dataclass(slots=True, kw_only=True)
class Explanations:
    dispatcher: Dispatcher
    table: NodeTable
    keys: KeyRing
    database: MatchStore
    peers: PeerClient

    def explain(self, record: MatchRecord) -> MatchExplanation:
        decision = structs.asdict(self.explain_decision(record.decision))
        decision["chosen"] = record.attempts[-1].node_id if record.attempts else None
        return MatchExplanation(
            **decision,
            match_id=record.id,
            created_at=record.created_unix_s,
            outcome=record.outcome.value,
            streamed=record.streamed,
            attempts=self._describe_attempts(record),
            moves=[self._describe_move(move, record) for move in record.reassignments],
        )

    def explain_decision(self, decision: Decision) -> DecisionExplanation:
        """A dry run has a decision and no record."""
        nodes = [item.node_id for item in decision.ranked] + [item.node_id for item in decision.rejected]
        return describe(decision, self._rows(nodes))

    async def find(self, match_id: str) -> OwnedExplanation | None:
        """From memory, else from the other processes' memory, else from Postgres, which stores some of them longer."""
        record = self.dispatcher.record(MatchId(match_id))
        if record is not None:
            return self._owned(record.key_id, self._encode(record))
        if not _MATCH_ID.fullmatch(match_id):
            return None
        for reply in await self.peers.ask_all(MATCH, MatchRequest(match_id)):
            if bytes(reply.explanation):
                return self._owned(KeyId(reply.key_id), bytes(reply.explanation))
        stored = await self.database.find_match(MatchId(match_id))
        return self._owned(*stored) if stored else None

    async def last(self, account: AccountId | None, limit: int) -> list[MatchSummary]:
        """The last matches of an account (None: of all) over all processes, the latest first."""
        summaries = self._last_here(account, limit)
        for reply in await self.peers.ask_all(MATCHES, MatchesRequest(account, limit)):
            summaries += reply.matches
        summaries.sort(key=lambda summary: -summary.created_at)
        return summaries[:limit]

    async def store(self) -> None:
        """Store some of the queued explanations. If that fails they are queued again."""
        queue = self.dispatcher.explanations
        records = queue.take(MATCHES_STORED_AT_ONCE)
        if not records:
            return
        with on_failure(queue.return_unstored, records):
            await self.database.save_matches([self._stored(record) for record in records])

    # called by the other processes of this gateway

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(MATCH, self.answer_match), PeerHandler(MATCHES, self.answer_matches)]

    async def answer_match(self, request: MatchRequest) -> MatchReply:
        record = self.dispatcher.record(MatchId(request.id))
        return MatchReply(record.key_id, msgspec.Raw(self._encode(record))) if record else MatchReply()

    async def answer_matches(self, request: MatchesRequest) -> MatchesReply:
        account = AccountId(request.account) if request.account is not None else None
        return MatchesReply(self._last_here(account, request.limit))

    # parts

    def _owned(self, key_id: KeyId, body: bytes) -> OwnedExplanation:
        return OwnedExplanation(self.keys.account_of(key_id), body)

    def _encode(self, record: MatchRecord) -> bytes:
        return msgspec.json.encode(self.explain(record))

    def _stored(self, record: MatchRecord) -> StoredMatch:
        return StoredMatch(
            id=record.id,
            key_id=record.key_id,
            created_unix_s=record.created_unix_s,
            outcome=record.outcome.value,
            explanation=self._encode(record),
        )

    def _last_here(self, account: AccountId | None, limit: int) -> list[MatchSummary]:
        account_of = self.keys.account_of
        records = self.dispatcher.last_records(MATCHES_LOOKED_BACK_MAX)
        own = (record for record in records if account is None or account_of(record.key_id) == account)
        return [self._summarize(record) for record in islice(own, limit)]

    def _summarize(self, record: MatchRecord) -> MatchSummary:
        return MatchSummary(
            match_id=record.id,
            created_at=record.created_unix_s,
            model=record.decision.job.model,
            policy=record.decision.ranking,
            key_id=record.key_id,
            outcome=record.outcome.value,
            candidates_total=record.decision.total,
            streamed=record.streamed,
            attempts=self._describe_attempts(record),
        )

    def _describe_move(self, move: Reassignment, record: MatchRecord) -> MatchReassignment:
        attempt = record.attempts[move.attempt]
        rows = self._rows(item.node_id for item in move.ranked)
        return MatchReassignment(
            attempt=move.attempt,
            after_tokens=attempt.carried_tokens,
            chosen=attempt.node_id,
            candidates=describe_ranked(move.ranked, record.decision.ranking, rows, model=record.decision.job.model),
        )

    def _describe_attempts(self, record: MatchRecord) -> list[MatchAttempt]:
        return [self._describe_attempt(attempt, is_streamed=record.streamed) for attempt in record.attempts]

    def _describe_attempt(self, attempt: AttemptRecord, *, is_streamed: bool) -> MatchAttempt:
        """Without streaming there is no first token: the record's time is that of the end."""
        row = self.table.get(attempt.node_id)
        return MatchAttempt(
            node=attempt.node_id,
            name=row.specs.name if row else None,
            outcome=attempt.outcome.value,
            reason=attempt.reason,
            started_ms=attempt.started_ms,
            first_token_ms=attempt.first_token_ms if is_streamed else None,
            ended_ms=attempt.ended_ms,
            tokens=attempt.tokens,
            chars=attempt.chars,
            continued_from=ContinuationPoint(tokens=attempt.carried_tokens, chars=attempt.carried_chars)
            if attempt.carried_chars
            else None,
        )

    def _rows(self, nodes: Iterable[NodeId]) -> dict[NodeId, NodeRow]:
        """Rows of those nodes that are still known."""
        return {node_id: row for node_id in nodes if (row := self.table.get(node_id)) is not None}
