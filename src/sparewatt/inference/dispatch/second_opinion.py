"""What model servers said is wrong with one request, and whether that is a verdict. Pure.

One node's word is none: an error reaches the client once a second node gives the like, of another owner where there is
one. A node that refused what another then did has failed; honest servers differ in their features and contexts, which
is no failure unless it happens again and again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.dispatch.failure_reasons import FEATURES, ErrorCode, ServerError, agreed_code
from sparewatt.inference.dispatch.model import AttemptRecord, Outcome


@dataclass(frozen=True, slots=True)
class Opinion:
    """One node's error, and the context that the node says it has (0: unknown)."""

    record: AttemptRecord
    error: ServerError
    context_tokens: int = 0

    @property
    def node_id(self) -> NodeId:
        return self.record.node_id

    @property
    def owner(self) -> AccountId | None:
        return self.record.owner


class Contradiction(enum.Enum):
    """What it means for a node that another did what it refused."""

    FAILED = "failed"
    LACKS_FEATURE = "lacks_feature"
    SMALLER_CONTEXT = "smaller_context"


class SecondOpinion:
    """The errors of one job, in their order; at most as many as it has attempts."""

    __slots__ = ("_opinions",)

    def __init__(self) -> None:
        self._opinions: list[Opinion] = []

    def __len__(self) -> int:
        return len(self._opinions)

    @property
    def owners(self) -> set[AccountId]:
        return {opinion.owner for opinion in self._opinions if opinion.owner is not None}

    def refusal(self) -> Opinion | None:
        """The first that puts the request at fault."""
        return next((opinion for opinion in self._opinions if opinion.error.is_clients_fault), None)

    def add(self, opinion: Opinion, *, any_owner: bool = False) -> ErrorCode | None:
        """The code that it and an earlier one agree on. `any_owner`: no node of another owner is left to ask."""
        earlier = [
            each
            for each in self._opinions
            if _agree(each.error, opinion.error) and (any_owner or _owners_differ(each, opinion))
        ]
        self._opinions.append(opinion)
        return agreed_code(earlier[0].error, opinion.error) if earlier else None

    def settle(self) -> None:
        """The request is at fault, or nobody knows: it counts against no node."""
        for opinion in self._opinions:
            if opinion.error.is_clients_fault:
                opinion.record.outcome = Outcome.DONE

    def contradicted(self, *, context_tokens: int) -> list[tuple[NodeId, Contradiction]]:
        """Another node, with this context, does the job: what that says of each node that did not. Once."""
        found = [(opinion, _contradiction(opinion, context_tokens)) for opinion in self._opinions]
        self._opinions.clear()
        for opinion, kind in found:
            if kind is not Contradiction.FAILED:
                opinion.record.outcome = Outcome.REFUSED
        return [(opinion.node_id, kind) for opinion, kind in found]


def _agree(first: ServerError, second: ServerError) -> bool:
    """Both put the request at fault, or both servers failed in the same words."""
    if first.is_clients_fault or second.is_clients_fault:
        return first.is_clients_fault and second.is_clients_fault
    return (first.status, first.digest) == (second.status, second.digest)


def _owners_differ(first: Opinion, second: Opinion) -> bool:
    return first.owner is None or first.owner != second.owner


def _contradiction(opinion: Opinion, context_tokens: int) -> Contradiction:
    error = opinion.error
    if error.is_clients_fault and error.code is ErrorCode.CONTEXT_LENGTH_EXCEEDED:
        is_smaller = 0 < opinion.context_tokens < (context_tokens or opinion.context_tokens + 1)
        return Contradiction.SMALLER_CONTEXT if is_smaller else Contradiction.FAILED
    is_feature = error.is_clients_fault and error.code in FEATURES
    return Contradiction.LACKS_FEATURE if is_feature else Contradiction.FAILED
