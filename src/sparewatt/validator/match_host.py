"""Runs the match of every open order: gives each `ValidatorMatch` its messages and ticks, and does what it asks for.

The order is always the same: what was signed is made durable, then messages are sent, then a certificate is submitted.
A match is opened at first sight of its lookup, and closed by what the chain says. After a reorg a match whose context
has changed is started anew from what is on disk, so nothing is signed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Logger
from sparewatt.market.chain_records import MarketState, OrderRecord, OrderState
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.context import ContextUnavailable, context_of, standing_of
from sparewatt.market.match.model import (
    AuctionContext,
    BidderStanding,
    MatchOutput,
    MatchTiming,
    QuorumCertificate,
)
from sparewatt.market.match.record import AuctionRecord, read_record, write_record
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.api.validators import MESSAGES_PATH, MatchProgress, RefusedBidder
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import Profile
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    MatchStatus,
    MissingBids,
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    encode_message,
    write_object,
)
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.validator.record_files import RecordFiles
from sparewatt.validator.signed_file import SignedFile, SignedFileFailed, SignedTwice

_log = Logger("sparewatt.validator")
OPEN_MATCHES_MAX = 128
"""At once; orders cost a deposit each, and further ones are left to validators with more room."""
ENDED_MATCHES_KEPT = 32
"""Still in memory after their end, so that bidders and gateways read how it ended; records are on disk."""

TICK_S_MIN = 0.001
"""A timer that fires a rounding too early must not become a busy loop."""

MatchKey = tuple[str, int]
"""Order and attempt."""


class TableSource(Protocol):
    def table_of(self, epoch: int) -> Sequence[Profile] | None:
        """The profiles of an epoch; None if they are not here (yet)."""
        ...


@dataclass(slots=True)
class HostCounts:
    opened: int = 0
    not_opened: int = 0
    """No weight, no table, or no room."""
    votes_cast: int = 0
    certificates_seen: int = 0
    """Accepted on chain since this run began."""
    certificates_signed: int = 0
    certificates_weighed: int = 0
    """Of those seen, in how many this validator had weight."""
    rounds_missed: int = 0
    messages_refused: int = 0


@dataclass(slots=True)
class HostedMatch:
    """One match and what the host needs around it."""

    match: ValidatorMatch
    context: AuctionContext
    opened_at: int
    version: int = 1
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set and replaced with each new version."""
    timer: Timer | None = None
    is_open: bool = True
    seen: tuple[int, bool] = (-1, True)
    """The match's own version, and whether it was open, at our last version."""


class MatchHost:
    def __init__(
        self,
        *,
        key: SigningKey,
        domain: Domain,
        timing: MatchTiming,
        signed: SignedFile,
        tables: TableSource,
        records: RecordFiles,
        send: Callable[[Sequence[str], str, bytes], None],
        submit: Callable[[QuorumCertificate], None],
        fail: Callable[[Exception], None],
        on_ended: Callable[[AuctionRecord], None] = lambda _: None,
        chain_unix_s: Callable[[], int],
        attempt_s: int,
        evidence_s: int,
        clock: Clock,
        run_id: str,
    ) -> None:
        self.counts = HostCounts()
        self._key = key
        self._domain = domain
        self._timing = timing
        self._signed = signed
        self._tables = tables
        self._records = records
        self._send = send
        self._submit = submit
        self._fail = fail
        self._on_ended = on_ended
        self._chain_unix_s = chain_unix_s
        self._attempt_s = attempt_s
        self._evidence_s = evidence_s
        self._clock = clock
        self._run_id = run_id
        self._view: ChainView | None = None
        self._open: dict[MatchKey, HostedMatch] = {}
        self._ended: dict[MatchKey, HostedMatch] = {}
        """Oldest first."""
        self._waiting: set[str] = set()
        """Orders whose table is not here yet."""

    @property
    def open_count(self) -> int:
        return len(self._open)

    # the chain

    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        self._view = view
        for event in events:
            self._count(view.latest, event)
        if is_whole:
            self._compare_all(view.latest)
            return
        touched = {event.args["order_id"] for event in events if "order_id" in event.args} | self._waiting
        for order_id in sorted(touched):
            self._compare(view.latest, order_id)
        self._end_overdue()

    def on_tables(self) -> None:
        """A table has come: orders may have waited for it."""
        if self._view is not None:
            for order_id in sorted(self._waiting):
                self._compare(self._view.latest, order_id)

    # messages

    def receive(self, message: MatchMessage) -> MatchOutput:
        """Of anyone: signatures decide. Its records are durable and its messages queued when this returns."""
        order_id, attempt = key_of(message)
        hosted = self._find(order_id, attempt)
        if hosted is None:
            self.counts.messages_refused += 1
            is_behind = self._view is None or order_id in self._waiting
            return MatchOutput(code=MessageRefusal.BEHIND_CHAIN if is_behind else MessageRefusal.WRONG_ORDER_OR_ATTEMPT)
        output = hosted.match.receive(message, now_ms=self._now_ms())
        self._carry_out(hosted, output)
        if output.notes and output.code == MessageRefusal.LATE and not hosted.is_open:
            self._save_record(hosted)  # a bid after the end: once per bidder, and signed by it
        self.counts.messages_refused += output.code != 0
        return output

    def knows(self, order_id: str, attempt: int) -> bool:
        return self._find(order_id, attempt) is not None

    def has_voter(self, vote_key: str) -> bool:
        """Whether the key has weight in a match that is open here."""
        return any(hosted.context.weights.get(vote_key, 0) > 0 for hosted in self._open.values())

    async def progress(self, order_id: str, attempt: int, *, have: int, wait_s: float) -> MatchProgress | None:
        """Once it is newer than `have`, or after `wait_s`. None if there is no such match here."""
        hosted = self._find(order_id, attempt)
        if hosted is None:
            return None
        if hosted.version <= have and wait_s > 0:
            arrived = asyncio.Event()
            timer = self._clock.call_later(wait_s, arrived.set)
            changed = hosted.changed
            waits = [asyncio.ensure_future(event.wait()) for event in (arrived, changed)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                for wait in waits:
                    wait.cancel()
        return self._progress(order_id, attempt, hosted)

    def record(self, order_id: str, attempt: int) -> bytes | None:
        """As JSON: of a match that runs here, else from disk."""
        hosted = self._find(order_id, attempt)
        if hosted is not None:
            return msgspec.json.encode(write_record(hosted.match.record()))
        return self._records.read(order_id, attempt)

    def attempts_of(self, order_id: str) -> list[int]:
        """Those with a record, here or on disk."""
        here = {attempt for known, attempt in (*self._open, *self._ended) if known == order_id}
        return sorted(here.union(self._records.attempts_of(order_id)))

    def close(self) -> None:
        for hosted in self._open.values():
            _cancel(hosted)

    # opening and ending

    def _compare_all(self, state: MarketState) -> None:
        opened = {order_id for order_id, order in state.orders.items() if order.state is OrderState.OPEN}
        for order_id in sorted(opened | {order_id for order_id, _ in self._open}):
            self._compare(state, order_id, is_whole=True)

    def _compare(self, state: MarketState, order_id: str, *, is_whole: bool = False) -> None:
        """Bring the matches of an order in line with what the chain says of it."""
        order = state.orders.get(order_id)
        wanted = (order_id, order.attempt) if order is not None and self._is_open(order) else None
        for key in [key for key in self._open if key[0] == order_id and key != wanted]:
            self._end(key)
        if order is None or wanted is None:
            self._waiting.discard(order_id)
            return
        hosted = self._open.get(wanted)
        if hosted is not None and not is_whole:
            return
        context = self._context(state, order)
        if context is None or (hosted is not None and hosted.context == context):
            return
        if hosted is not None:  # a reorg gave the attempt other facts
            hosted.is_open = False
            _cancel(self._open.pop(wanted))
        self._start(wanted, context, order)

    def _is_open(self, order: OrderRecord) -> bool:
        opened_at = order.opened_at.get(order.attempt, 0)
        return order.state is OrderState.OPEN and self._chain_unix_s() <= opened_at + self._attempt_s

    def _context(self, state: MarketState, order: OrderRecord) -> AuctionContext | None:
        table = self._tables.table_of(order.snapshot_epoch)
        if table is None:
            if order.order_id not in self._waiting:
                _log.info("match_waits_for_table", order_id=order.order_id, epoch=order.snapshot_epoch)
            self._waiting.add(order.order_id)
            return None
        self._waiting.discard(order.order_id)
        try:
            return context_of(state, order.order_id, domain=self._domain, table=table)
        except ContextUnavailable as error:
            self.counts.not_opened += 1
            _log.warning("match_not_opened", order_id=order.order_id, why=str(error))
            return None

    def _start(self, key: MatchKey, context: AuctionContext, order: OrderRecord) -> None:
        if context.weights.get(self._key.address.lower(), 0) <= 0 or len(self._open) >= OPEN_MATCHES_MAX:
            self.counts.not_opened += 1
            return
        stored = self._signed.of_match(context.order_id, context.attempt)
        standing = self._standing_in(order.order_id)
        match = ValidatorMatch(
            context,
            key=self._key,
            timing=self._timing,
            standing=standing,
            stored=stored,
            recorded=self._recorded(key) if stored else None,
        )
        hosted = HostedMatch(match, context, order.opened_at.get(order.attempt, 0))
        self._ended.pop(key, None)
        self._open[key] = hosted
        self.counts.opened += 1
        _log.info("match_opened", order_id=key[0], attempt=key[1], stored=len(stored))
        self._carry_out(hosted, match.start(self._now_ms()))

    def _recorded(self, key: MatchKey) -> AuctionRecord | None:
        """What the process before this one, or the match before a reorg, kept of the attempt."""
        body = self._records.read(*key)
        try:
            return None if body is None else read_record(msgspec.json.decode(body))
        except (InvalidField, msgspec.MsgspecError) as error:
            _log.warning("record_not_read", order_id=key[0], why=str(error))
            return None

    def _standing_in(self, order_id: str) -> Callable[[str], BidderStanding]:
        def standing(provider: str) -> BidderStanding:
            if self._view is None:
                return BidderStanding.NOT_REGISTERED
            others = [key[0] for key, each in self._open.items() if each.match.holds_commit_of(provider)]
            return standing_of(self._view.latest, provider, order_id=order_id, open_commits=others)

        return standing

    def _end(self, key: MatchKey) -> None:
        hosted = self._open[key]
        self._carry_out(hosted, hosted.match.settled(self._now_ms()))
        if self._open.pop(key, None) is None:
            return
        _cancel(hosted)
        hosted.is_open = False
        self.counts.rounds_missed += self._rounds_missed(hosted)
        self._save_record(hosted)
        self._ended[key] = hosted
        while len(self._ended) > ENDED_MATCHES_KEPT:
            del self._ended[next(iter(self._ended))]
        self._note_change(hosted)
        self._signed.compact(older_than=self._chain_unix_s() - self._evidence_s)
        self._on_ended(hosted.match.record())

    def _end_overdue(self) -> None:
        """Attempts whose time is over, also where no event says so."""
        over = [key for key, hosted in self._open.items() if self._chain_unix_s() > hosted.opened_at + self._attempt_s]
        for key in over:
            self._end(key)

    def _rounds_missed(self, hosted: HostedMatch) -> int:
        """Up to the certified one: the rounds that run on until the chain has it need no vote."""
        certificate = hosted.match.certificate
        last = certificate.round if certificate is not None else hosted.match.round
        stored = self._signed.of_match(hosted.context.order_id, hosted.context.attempt)
        votes = [record.vote for record in stored if isinstance(record, SignedVote)]
        return last + 1 - sum(vote.round <= last for vote in votes)

    # doing what a match asks for

    def _carry_out(self, hosted: HostedMatch, output: MatchOutput) -> None:
        """Raises SignedFileFailed: then nothing has left, and the process must end."""
        if output.records:
            try:
                self._signed.append(output.records, at=self._chain_unix_s())
            except SignedFileFailed as error:
                self._fail(error)
                raise
            except SignedTwice as error:
                self._stop_unsafe(hosted, error)
                output.broadcast, output.replies, output.certificate = [], [], None
                return
            if any(isinstance(record, SignedVote) for record in output.records):
                self.counts.votes_cast += sum(isinstance(record, SignedVote) for record in output.records)
                self._require_record(hosted)
        for message in output.broadcast:
            self._send(list(hosted.context.weights), MESSAGES_PATH, encode_message(message))
        if output.certificate is not None:
            self._submit(output.certificate)
        self._note_change(hosted)
        self._schedule(hosted)

    def _stop_unsafe(self, hosted: HostedMatch, error: SignedTwice) -> None:
        """The state machine asked for a second signature: a bug, or a damaged disk. It says nothing more."""
        key = ("0x" + hosted.context.order_id.hex(), hosted.context.attempt)
        _log.warning("signature_refused", order_id=key[0], attempt=key[1], why=str(error))
        _cancel(hosted)
        hosted.is_open = False
        self._open.pop(key, None)

    def _schedule(self, hosted: HostedMatch) -> None:
        _cancel(hosted)
        at_ms = hosted.match.next_tick_ms
        if at_ms is None or not hosted.is_open:
            return
        delay_s = max(TICK_S_MIN, (at_ms + 0.5) / 1000 - self._clock.now_s())
        hosted.timer = self._clock.call_later(delay_s, lambda: self._tick(hosted))

    def _tick(self, hosted: HostedMatch) -> None:
        hosted.timer = None
        if not hosted.is_open:
            return
        if self._chain_unix_s() > hosted.opened_at + self._attempt_s:
            self._end(("0x" + hosted.context.order_id.hex(), hosted.context.attempt))
            return
        self._carry_out(hosted, hosted.match.tick(self._now_ms()))

    def _note_change(self, hosted: HostedMatch) -> None:
        seen = (hosted.match.version, hosted.is_open)
        if seen != hosted.seen:
            hosted.seen = seen
            hosted.version += 1
            hosted.changed.set()
            hosted.changed = asyncio.Event()

    def _require_record(self, hosted: HostedMatch) -> None:
        """Before a vote leaves: a voter that cannot show the leaves when they are demanded is slashed.

        Raises SignedFileFailed.
        """
        if (why := self._save_record(hosted)) is not None:
            failure = SignedFileFailed(f"the record of a match cannot be written: {why}")
            self._fail(failure)
            raise failure

    def _save_record(self, hosted: HostedMatch) -> str | None:
        """Why it is not on disk, or None."""
        context, now = hosted.context, self._chain_unix_s()
        body = msgspec.json.encode(write_record(hosted.match.record()))
        kept_until = hosted.opened_at + self._evidence_s
        try:
            self._records.save("0x" + context.order_id.hex(), context.attempt, body, kept_until=kept_until, now=now)
        except OSError as error:
            _log.warning("record_not_saved", order_id=context.order_id.hex(), why=error.strerror)
            return error.strerror or str(error)
        return None

    # looking up

    def _find(self, order_id: str, attempt: int) -> HostedMatch | None:
        return self._open.get((order_id, attempt)) or self._ended.get((order_id, attempt))

    def _progress(self, order_id: str, attempt: int, hosted: HostedMatch) -> MatchProgress:
        match = hosted.match
        return MatchProgress(
            order_id=order_id,
            attempt=attempt,
            version=hosted.version,
            run_id=self._run_id,
            phase=match.phase.value,
            round=match.round,
            commit_lists=[write_object(each) for each in match.commit_lists()],
            reveal_lists=[write_object(each) for each in match.reveal_lists()],
            declines=[write_object(each) for each in match.declines()],
            votes=[write_object(each) for each in match.votes()],
            certificate=None if match.certificate is None else write_object(match.certificate),
            refused=[RefusedBidder(provider=provider, code=code) for provider, code in match.refusals().items()],
        )

    def _count(self, state: MarketState, event: ChainEvent) -> None:
        if event.event not in {"MatchAccepted", "NoMatch"}:
            return
        self.counts.certificates_seen += 1
        own, signers = self._key.address.lower(), [str(signer).lower() for signer in event.args["signers"]]
        order = state.orders.get(event.args["order_id"])
        weight = state.weight_of(own, order.stake_version) if order is not None else None
        self.counts.certificates_weighed += weight is not None and weight.weight > 0
        self.counts.certificates_signed += own in signers

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000)


def key_of(message: MatchMessage) -> MatchKey:
    """The order and attempt that a message says it is about."""
    about = _subject_of(message)
    return "0x" + about.order_id.hex(), about.attempt


class _Subject(Protocol):
    """What names an order and attempt."""

    @property
    def order_id(self) -> bytes: ...

    @property
    def attempt(self) -> int: ...


def _subject_of(message: MatchMessage) -> _Subject:
    match message:
        case SignedCommit():
            subject: _Subject = message.commit
        case SignedDecline():
            subject = message.decline
        case RevealedBid():
            subject = message.bid
        case SignedCommitList() | SignedRevealList():
            subject = message.list
        case SignedVote():
            subject = message.vote
        case Proposal():
            subject = message.task
        case MissingBids():
            subject = message.reveal_list.list
        case MatchStatus():
            subject = message.reached
    return subject


def _cancel(hosted: HostedMatch) -> None:
    if hosted.timer is not None:
        hosted.timer.cancel()
        hosted.timer = None
