"""Answers demands for books: the leaves of an accepted tree, published on chain by a signer within BOOK_S.

A signer that lets a demand pass loses half of its stake, so every signer publishes, in the order of the match's ranks:
the first at once, the others if it is still missing when their turn comes. Leaves are in the record of the match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Logger
from sparewatt.market.match.record import read_record
from sparewatt.market.quorum import leader_of_match
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import NO_PROVIDER, Award, BidLeaf, CertificateRecord, Task
from sparewatt.protocol.typed_message import struct_hash

_log = Logger("sparewatt.validator")
DEMANDS_MAX = 1_024
"""Open at once; each costs its demander a bond."""
CERTIFICATES_KEPT = 20_000
"""Newest accepted certificates; what is older has no evidence any more on any usual network."""
TURN_SHARE = 8
"""A rank waits an eighth of BOOK_S for the one before it, so that eight have a turn in time; then all are due."""

Submit = Callable[[Task, CertificateRecord, Sequence[BidLeaf]], None]
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """What the chain says of an accepted certificate: enough to publish its book."""

    task: Task
    record: CertificateRecord
    signers: tuple[str, ...]


@dataclass(slots=True)
class BookService:
    vote_keys: frozenset[str]
    """The one in use and those that were retired: they stay slashable for what they have signed."""
    read_record: Callable[[str, int], bytes | None]
    submit: Submit
    book_s: int
    clock: Clock
    _accepted: dict[Key, AcceptedTask] = field(default_factory=dict, init=False)
    _due: dict[Key, Timer] = field(default_factory=dict, init=False)

    def on_events(self, events: Sequence[ChainEvent]) -> None:
        """Every event of the chain, old ones first; after a reorg some come again."""
        for event in events:
            self._take(event)

    def _take(self, event: ChainEvent) -> None:
        match event.event:
            case "MatchAccepted" | "NoMatch":
                accepted = accepted_task(event.args)
                key = (event.args["order_id"], event.args["attempt"])
                self._accepted[key] = accepted
                while len(self._accepted) > CERTIFICATES_KEPT:
                    del self._accepted[next(iter(self._accepted))]
            case "BookDemanded":
                self._demanded((event.args["order_id"], event.args["attempt"]))
            case "BookPublished":
                self._published((event.args["order_id"], event.args["attempt"]))

    def close(self) -> None:
        for timer in self._due.values():
            timer.cancel()
        self._due.clear()

    # internals

    def _demanded(self, key: Key) -> None:
        accepted = self._accepted.get(key)
        own = self.vote_keys.intersection(accepted.signers) if accepted is not None else ()
        if accepted is None or not own or key in self._due:
            return
        if len(self._due) >= DEMANDS_MAX:
            _log.warning("book_demand_left_out", order_id=key[0])
            return
        delay_s = rank_among(min(own), accepted) * self.book_s / TURN_SHARE
        self._due[key] = self.clock.call_later(min(delay_s, self.book_s / 2), lambda: self._publish(key, accepted))
        _log.info("book_demanded", order_id=key[0], attempt=key[1], due_in_s=delay_s)

    def _published(self, key: Key) -> None:
        timer = self._due.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _publish(self, key: Key, accepted: AcceptedTask) -> None:
        self._due.pop(key, None)
        leaves = self._leaves(key, accepted)
        if leaves is None:
            _log.warning("book_not_found", order_id=key[0], attempt=key[1])
            return
        self.submit(accepted.task, accepted.record, leaves)

    def _leaves(self, key: Key, accepted: AcceptedTask) -> Sequence[BidLeaf] | None:
        if accepted.task.bid_count == 0:
            return ()
        body = self.read_record(*key)
        if body is None:
            return None
        try:
            record = read_record(msgspec.json.decode(body))
        except (InvalidField, msgspec.MsgspecError):
            return None
        fitting = (p.leaves for p in record.proposals if struct_hash(p.task) == accepted.record.task_hash)
        return next(fitting, None)


def accepted_task(args: Mapping[str, Any]) -> AcceptedTask:
    """Of an event that accepts a certificate. Its arguments are of our own contract."""
    members: list[Any] = [bytes.fromhex(value[2:]) if isinstance(value, str) else value for value in args["task"]]
    task = Task(*members)
    chosen = [Award(provider, price) for provider, price in args.get("chosen", ())]
    none = Award(NO_PROVIDER, 0)
    first, second, third = [*chosen, none, none, none][:3]
    record = CertificateRecord(struct_hash(task), args["round"], (first, second, third))
    return AcceptedTask(task, record, tuple(str(signer).lower() for signer in args["signers"]))


def rank_among(vote_key: str, accepted: AcceptedTask) -> int:
    """The signers' turns, in the order of leaders of the match's rounds."""
    weights = dict.fromkeys(accepted.signers, 1)
    task = accepted.task
    for rank in range(len(weights)):
        if leader_of_match(weights, order_id=task.order_id, attempt=task.attempt, round_=rank) == vote_key:
            return rank
    return len(weights)
