"""Runs the vote on snapshots and hears heartbeats: drives `SnapshotMatch` and `HeartbeatBook`, keeps tables on disk.

As for matches: what was signed is made durable, then sent, then posted. Matches take the tables of epochs from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import InvalidField
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.machine.data_dir import write_private
from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.market.match.model import MatchTiming
from sparewatt.market.snapshots.books import is_book_of
from sparewatt.market.snapshots.chain_facts import facts_of, voting_facts_of
from sparewatt.market.snapshots.heartbeats import HeartbeatBook
from sparewatt.market.snapshots.model import EPOCHS_KEPT, SnapshotCertificate, SnapshotDoubleSign, SnapshotOutput
from sparewatt.market.snapshots.observations import observations_of
from sparewatt.market.snapshots.snapshot_match import SnapshotMatch
from sparewatt.protocol.api.validators import SNAPSHOT_MESSAGES_PATH, EpochTable, HeartbeatReply
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import Observation, Profile
from sparewatt.protocol.contracts.match_messages import write_object
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.contracts.reasons import MessageRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedHeartbeat,
    SnapshotBook,
    SnapshotMessage,
    decode_snapshot_message,
    encode_snapshot_message,
)
from sparewatt.protocol.signing import Domain, SigningKey
from sparewatt.validator.chain_follower import ChainTimes
from sparewatt.validator.record_files import BookFiles
from sparewatt.validator.signed_file import SignedFile, SignedFileFailed, SignedTwice

_log = Logger("sparewatt.validator")
SAVE_HEARTBEATS_S = 60.0
"""Between two copies of the heartbeats' counts on disk: a crash loses a minute of thirty days."""
TABLES_IN_MEMORY = 8
CHALLENGE_BYTES = 32
TICK_S_MIN = 0.01
"""The vote on a snapshot has time; a timer that fires a rounding too early must not become a busy loop."""


class SnapshotHost:
    def __init__(
        self,
        *,
        key: SigningKey,
        domain: Domain,
        timing: MatchTiming,
        spacing_s: int,
        evidence_s: int,
        beat_ms: int,
        signed: SignedFile,
        books: BookFiles,
        heartbeats_path: Path,
        send: Callable[[Sequence[str], str, bytes], None],
        submit: Callable[[SnapshotCertificate], None],
        fail: Callable[[Exception], None],
        on_tables: Callable[[], None],
        on_fault: Callable[[SnapshotDoubleSign], None] = lambda _: None,
        times: ChainTimes,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._signed = signed
        self._evidence_s = evidence_s
        self._books = books
        self._path = heartbeats_path
        self._send = send
        self._submit = submit
        self._fail = fail
        self._on_tables = on_tables
        self._on_fault = on_fault
        self._times = times
        self._clock = clock
        self._rng = rng
        self._beat_s = beat_ms / 1000
        self._view: ChainView | None = None
        self._timer: Timer | None = None
        self._beat_timer: Timer | None = None
        self._saved_at_s = clock.now_s()
        self._profiles: dict[SnapshotRecord, tuple[Profile, ...]] = {}
        self._voters: tuple[str, ...] = ()
        self._is_started = False
        self.heard = HeartbeatBook(
            validator=key.address,
            domain=domain,
            beat_ms=beat_ms,
            now_ms=self._now_ms(),
            saved=_read_saved(heartbeats_path),
        )
        self._match = SnapshotMatch(
            domain=domain,
            key=key,
            timing=timing,
            spacing_s=spacing_s,
            observe=self._observe,
            stored=signed.of_snapshots(),
            books=self._stored_books(),
        )

    # the chain

    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        del events, is_whole
        self._view = view
        now_ms = self._now_ms()
        self.heard.follow(view.latest, now_ms=now_ms)
        if not self._times.final_unix_s:
            return  # the first block of ours is not final yet
        facts = facts_of(view.final, height=view.final_block, unix_s=self._times.final_unix_s)
        voting = voting_facts_of(view.latest, unix_s=self._times.head_unix_s)
        self._voters = tuple(voting.weights)
        step = self._match.follow if self._is_started else self._match.start
        self._is_started = True
        self._carry_out(step(facts, voting, now_ms))
        if self._beat_timer is None:
            self._beat()

    def table_of(self, epoch: int) -> Sequence[Profile] | None:
        """The profiles of a posted epoch; None if they are not here (yet)."""
        posted = self._view.latest.snapshots.get(epoch) if self._view is not None else None
        if posted is None:
            return None
        found = self._profiles.get(posted)
        if found is None:
            book = self._book_of(posted)
            if book is None:
                return None
            found = self._profiles[posted] = book.table.rows
            while len(self._profiles) > TABLES_IN_MEMORY:
                del self._profiles[next(iter(self._profiles))]
        return found

    # messages

    def receive(self, message: SnapshotMessage) -> SnapshotOutput:
        if not self._is_started:
            return SnapshotOutput(code=MessageRefusal.BEHIND_CHAIN)
        output = self._match.receive(message, now_ms=self._now_ms())
        self._carry_out(output)
        return output

    def hear(self, beat: SignedHeartbeat) -> HeartbeatReply:
        fresh = self._rng.randbytes(CHALLENGE_BYTES)
        unix_s = self._times.chain_unix_s()
        reply = self.heard.receive(beat, now_ms=self._now_ms(), unix_s=unix_s, fresh=fresh)
        reason = MessageRefusal(reply.code).name if reply.code else None
        return HeartbeatReply(code=reply.code, reason=reason, challenge="0x" + reply.challenge.hex(), seq=reply.seq)

    def heard_count(self) -> int:
        """Providers heard within the last three beats."""
        since = self._times.chain_unix_s() - 3 * self._beat_s
        providers = self._view.latest.providers if self._view is not None else ()
        return sum((self.heard.heard_at(provider) or 0) >= since for provider in providers)

    def epoch_table(self, epoch: int) -> EpochTable | None:
        """The table and what it was made of, if both are here and the epoch is on the chain."""
        posted = self._view.latest.snapshots.get(epoch) if self._view is not None else None
        book = self._book_of(posted) if posted is not None else None
        return None if posted is None or book is None else _epoch_table(posted, book)

    @property
    def epoch(self) -> int:
        """The newest on chain; 0 before the first."""
        latest = self._view.latest.latest_snapshot if self._view is not None else None
        return latest.epoch if latest is not None else 0

    def close(self) -> None:
        for timer in (self._timer, self._beat_timer):
            if timer is not None:
                timer.cancel()
        self._save_heartbeats()

    # internals

    def _carry_out(self, output: SnapshotOutput) -> None:
        """Raises SignedFileFailed: then nothing has left, and the process must end."""
        try:
            self._signed.append(output.entries, at=self._times.chain_unix_s())
            self._keep_books(output.books)
            self._signed.compact(older_than=self._times.chain_unix_s() - self._evidence_s)
        except SignedFileFailed as error:
            self._fail(error)
            raise
        except SignedTwice as error:
            _log.warning("signature_refused", epoch=self._match.epoch, why=str(error))
            output.broadcast, output.replies, output.certificate = [], [], None
        for message in output.broadcast:
            self._send(self._voters, SNAPSHOT_MESSAGES_PATH, encode_snapshot_message(message))
        if output.certificate is not None:
            self._submit(output.certificate)
        for fault in output.faults:
            _log.warning("validator_signed_twice", epoch=self._match.epoch, signer=fault.signer)
            self._on_fault(fault)
        self._schedule()
        if output.books:
            self._on_tables()

    def _keep_books(self, books: Sequence[SnapshotBook]) -> None:
        """Raises SignedFileFailed: a vote for a table that is not kept must not leave."""
        for book in books:
            try:
                self._books.save(book.table.epoch, encode_snapshot_message(book))
            except OSError as error:
                raise SignedFileFailed(f"the book of epoch {book.table.epoch} cannot be written") from error
            _log.info("snapshot_computed", epoch=book.table.epoch, providers=len(book.table.rows))

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = self._match.next_tick_ms
        if at_ms is not None:
            delay_s = max(TICK_S_MIN, (at_ms + 0.5) / 1000 - self._clock.now_s())
            self._timer = self._clock.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._match.tick(self._now_ms()))

    def _beat(self) -> None:
        """Once per beat, so that silence of this process is not counted against the nodes."""
        self.heard.tick(self._now_ms(), unix_s=self._times.chain_unix_s())
        if self._clock.now_s() - self._saved_at_s >= SAVE_HEARTBEATS_S:
            self._save_heartbeats()
        self._beat_timer = self._clock.call_later(self._beat_s, self._beat)

    def _save_heartbeats(self) -> None:
        self._saved_at_s = self._clock.now_s()
        try:
            write_private(self._path, msgspec.json.encode(self.heard.save()))
        except OSError as error:
            _log.warning("heartbeats_not_saved", why=error.strerror)

    def _observe(self, now_ms: int) -> Sequence[Observation]:
        del now_ms
        if self._view is None:
            return ()
        return observations_of(self._view.final, self.heard, unix_s=self._times.final_unix_s)

    def _stored_books(self) -> list[SnapshotBook]:
        """Of the newest epochs, oldest first."""
        epochs = self._books.newest_epochs(EPOCHS_KEPT)
        return [book for epoch in epochs for book in reversed(self._read_books(epoch))]

    def _book_of(self, posted: SnapshotRecord) -> SnapshotBook | None:
        newest = self._match.newest_book
        candidates = ([newest] if newest is not None else []) + self._read_books(posted.epoch)
        return next((book for book in candidates if is_book_of(book, posted)), None)

    def _read_books(self, epoch: int) -> list[SnapshotBook]:
        found = []
        for body in self._books.read(epoch):
            try:
                book = decode_snapshot_message(body)
            except InvalidField:
                continue
            if isinstance(book, SnapshotBook):
                found.append(book)
        return found

    def _now_ms(self) -> int:
        return int(self._clock.now_s() * 1000)


def _epoch_table(posted: SnapshotRecord, book: SnapshotBook) -> EpochTable:
    return EpochTable(
        epoch=posted.epoch,
        height=book.table.height,
        root=posted.root,
        inputs_hash=posted.inputs_hash,
        profiles=[write_message(profile) for profile in book.table.rows],
        observations=[write_object(signed) for signed in book.observations],
    )


def _read_saved(path: Path) -> dict[str, Any] | None:
    """None if there is nothing, or nothing readable: then uptimes are counted anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):
        _log.warning("heartbeats_not_read", path=str(path))
        return None
