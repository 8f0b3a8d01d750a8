"""The vote on snapshots as one validator takes part in it: a state machine without sockets or clocks.

A validator publishes what it observed when its own table would differ enough from the last (ADR 51), when a day has
passed, when there is no table yet, or when others worth more than a third have published for this epoch. Rounds begin
when a quorum has published: the leader of a round proposes a table with everything it was computed from, the others
compute it anew and vote. A quorum of votes in one round is a certificate that anyone posts.

`SnapshotOutput` says what has to be stored before anything is sent. After a restart nothing is signed a second time:
the vote goes on in the round after the last that was signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparewatt.market.chain_records import SnapshotRecord
from sparewatt.market.match.model import MatchTiming
from sparewatt.market.quorum import is_quorum, is_some, leader_of_snapshot
from sparewatt.market.snapshots.books import KnownBooks, compute_book, is_book_of, snapshot_of
from sparewatt.market.snapshots.chain_facts import FactsHistory
from sparewatt.market.snapshots.epoch_votes import EpochVotes
from sparewatt.market.snapshots.heartbeats import ChainClock
from sparewatt.market.snapshots.model import (
    ChainFacts,
    SnapshotCertificate,
    SnapshotEntry,
    SnapshotNote,
    SnapshotOutput,
    VotingFacts,
)
from sparewatt.market.snapshots.observations import signer_of
from sparewatt.market.snapshots.own_words import OwnWords
from sparewatt.market.snapshots.table import SMALL_PPM, TableChange, change_of, is_due, table_of
from sparewatt.protocol.contracts.match import Observation, Observations, Profile, ReputationSnapshot
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.contracts.snapshot_messages import (
    SignedObservations,
    SignedSnapshot,
    SnapshotBook,
    SnapshotMessage,
    SnapshotProposal,
    SnapshotStatus,
)
from sparewatt.protocol.signing import BadSignature, Domain, SigningKey, keccak256, recover_address
from sparewatt.protocol.typed_message import message_digest

VALIDATORS_MAX = 32
FACTS_AGE_S = 60
"""How far the block of a proposal may lie behind the newest final one here: a leader must not choose an old state."""
SKEW_S = 2
"""Two validators' chain times differ by the time in which a block reaches them."""
QUIET_DOUBLINGS = 6
"""While nothing comes, the time between two resends doubles up to that often."""
REPOST_RESENDS = 16
CHECKS_PER_SPACING = 10
"""How often the own observations are compared with the last table."""


class SnapshotMatch:
    """One object for all epochs. The driver calls `follow` after each change of the chain, and `tick` when due."""

    def __init__(
        self,
        *,
        domain: Domain,
        key: SigningKey,
        timing: MatchTiming,
        spacing_s: int,
        observe: Callable[[int], Sequence[Observation]],
        stored: Sequence[SnapshotEntry] = (),
        books: Sequence[SnapshotBook] = (),
    ) -> None:
        """`domain`: of `task_manager`; `spacing_s`: its SNAPSHOT_SPACING_S; `books`: those stored of the newest epochs.

        `observe(now_ms)` gives this validator's rows, as `observations_of` makes them from the final state.
        """
        self.epoch = 0
        self.round: int | None = None
        """None before a quorum has published."""
        self.next_tick_ms = 0
        self._domain, self._key, self._timing, self._spacing_s = domain, key, timing, spacing_s
        self._me = key.address.lower()
        self._observe = observe
        self._clock = ChainClock()
        self._facts = FactsHistory()
        self._voting = VotingFacts(weights={}, latest=None, unix_s=0)
        self._votes = EpochVotes(0)
        self._own = OwnWords(stored)
        self._known = KnownBooks(books)
        self._posted: SnapshotRecord | None = None
        """The newest epoch on chain."""
        self._last: SnapshotBook | None = None
        """Its book."""
        self._round_ms = self._check_ms = self._resend_ms = self._post_ms = 0
        self._judged_round = -1
        """The last round in which this validator has proposed, voted, or decided not to."""
        self._certified: SnapshotCertificate | None = None
        self._quiet = 0

    # What the driver calls

    def start(self, facts: ChainFacts, voting: VotingFacts, now_ms: int) -> SnapshotOutput:
        return self.follow(facts, voting, now_ms)

    def follow(self, facts: ChainFacts, voting: VotingFacts, now_ms: int) -> SnapshotOutput:
        """After each change of the chain: the final state, and who votes by the newest one."""
        out = SnapshotOutput()
        if self._facts.add(facts):
            self._check_ms = now_ms
        self._voting = voting
        self._clock.see_block(voting.unix_s, now_ms=now_ms)
        if self._posted != voting.latest or not self.epoch:
            self._begin(now_ms, out)
        self._step(now_ms, out)
        return out

    def receive(self, message: SnapshotMessage, *, now_ms: int) -> SnapshotOutput:
        out = SnapshotOutput()
        match message:
            case SignedObservations():
                self._take_observations(message, now_ms, out)
            case SignedSnapshot():
                self._take_vote(message, now_ms, out)
            case SnapshotProposal():
                self._take_proposal(message, now_ms, out)
            case SnapshotStatus():
                self._answer(message, out)
            case SnapshotBook():
                self._take_book(message, out)
        self._step(now_ms, out)
        return out

    def tick(self, now_ms: int) -> SnapshotOutput:
        out = SnapshotOutput()
        self._step(now_ms, out)
        return out

    @property
    def newest_book(self) -> SnapshotBook | None:
        """Of the newest epoch on chain, if it is known here."""
        return self._last

    @property
    def lacks_book(self) -> bool:
        """Whether the table of the newest epoch is not known here: until it is, this validator cannot vote."""
        return self._posted is not None and self._last is None

    # Epochs

    def _begin(self, now_ms: int, out: SnapshotOutput) -> None:
        latest = self._posted = self._voting.latest
        epoch = 1 if latest is None else latest.epoch + 1
        self._last = None if latest is None else self._known.posted(latest)
        self.epoch, self.round, self._judged_round = epoch, None, -1
        self._votes, self._certified = EpochVotes(epoch), None
        observations, vote = self._own.observations(epoch), self._own.vote(epoch)
        if observations is not None:
            self._votes.observations[self._me] = observations
        if vote is not None:
            self._votes.add_vote(self._me, vote)
        self._check_ms = self._resend_ms = now_ms
        self._quiet = 0
        out.notes.append(SnapshotNote("epoch_began", epoch))

    def _step(self, now_ms: int, out: SnapshotOutput) -> None:
        """Everything that can be done now; each part does nothing if its time has not come."""
        if not self.lacks_book and self._has_weight():
            self._publish(now_ms, out)
            self._certify(now_ms, out)
            if self._certified is None:
                self._advance(now_ms, out)
                self._propose(now_ms, out)
                self._vote(now_ms, out)
                self._certify(now_ms, out)
        self._resend(now_ms, out)
        self._schedule(now_ms)

    def _has_weight(self) -> bool:
        return self._voting.weights.get(self._me, 0) > 0

    # Observations

    def _publish(self, now_ms: int, out: SnapshotOutput) -> None:
        newest = self._facts.newest
        if self._me in self._votes.observations or newest is None:
            return
        weights = self._voting.weights
        joined = is_some(self._votes.observed_by(weights), total=sum(weights.values()))
        if not joined and not self._wants_epoch(now_ms):
            return
        observations = Observations(self.epoch, newest.height, tuple(self._observe(now_ms)))
        signed = SignedObservations(observations, self._sign(observations, out))
        self._votes.observations[self._me] = signed
        out.broadcast.append(signed)
        self._progress(now_ms)

    def _wants_epoch(self, now_ms: int) -> bool:
        """Whether the table would change by what this validator sees itself."""
        if self._posted is None:
            return True
        age_s = self._age_s(now_ms)
        if not self._is_time(now_ms) or now_ms < self._check_ms:
            return False
        self._check_ms = now_ms + self._spacing_s * 1_000 // CHECKS_PER_SPACING
        if is_due(TableChange.NOTHING, age_s=age_s, spacing_s=self._spacing_s):
            return True
        return is_due(self._own_change(now_ms), age_s=age_s, spacing_s=self._spacing_s)

    def _own_change(self, now_ms: int) -> TableChange:
        """Of a table by this validator's own observations alone.

        A row that it published for the last epoch already moved what it could: it is no reason for another one, also
        if the median is far from it.
        """
        newest = self._facts.newest
        if newest is None:
            return TableChange.NOTHING
        last = self._own.observations(self.epoch - 1)
        told = {row.provider: row for row in last.observations.rows} if last else {}
        rows = tuple(row for row in self._observe(now_ms) if not _is_told(row, told.get(row.provider)))
        alone = replace(newest, weights={self._me: 1})
        mine = {self._me: Observations(self.epoch, newest.height, rows)}
        table = table_of(alone, mine, epoch=self.epoch, previous=self._previous())
        return change_of(self._previous(), table)

    def _previous(self) -> Sequence[Profile]:
        return () if self._last is None else self._last.table.rows

    def _age_s(self, now_ms: int) -> int:
        """Since the last epoch was posted, in chain time as it runs on."""
        return 0 if self._posted is None else self._clock.unix_s(now_ms) - self._posted.posted_at

    # Rounds

    def _advance(self, now_ms: int, out: SnapshotOutput) -> None:
        weights = self._voting.weights
        reached = self._votes.reached(weights)
        if self.round is None:
            published = is_quorum(self._votes.observed_by(weights), total=sum(weights.values()))
            if published or reached >= 0:
                self._enter(max(self._own.next_round(self.epoch), reached), now_ms, out)
        elif reached > self.round:
            self._enter(reached, now_ms, out)
        elif now_ms >= self._round_ms + self._round_length_ms(self.round):
            self._enter(self.round + 1, now_ms, out)

    def _enter(self, round_: int, now_ms: int, out: SnapshotOutput) -> None:
        self.round, self._round_ms = round_, now_ms
        self._votes.forget_proposals(before=round_)
        out.notes.append(SnapshotNote("round_began", self.epoch, round_))

    def _round_length_ms(self, round_: int) -> int:
        return self._timing.round_ms << min(round_, 4)

    def _leader(self, round_: int) -> str:
        return leader_of_snapshot(self._voting.weights, epoch=self.epoch, round_=round_)

    def _is_open(self) -> bool:
        """Whether this validator may still sign in its round."""
        if self.round is None or self._judged_round >= self.round:
            return False
        return self.round >= self._own.next_round(self.epoch)

    def _propose(self, now_ms: int, out: SnapshotOutput) -> None:
        newest = self._facts.newest
        if self.round is None or newest is None or not self._is_open() or self._leader(self.round) != self._me:
            return
        if now_ms < self._round_ms + self._timing.gather_ms or not self._is_time(now_ms):
            return
        used = tuple(
            signed for signer, signed in sorted(self._votes.observations.items()) if newest.weights.get(signer)
        )
        if not is_quorum(self._votes.observed_by(newest.weights), total=sum(newest.weights.values())):
            return
        self._judged_round = self.round
        book = self._book(newest, used)
        if book is None:
            return
        vote = self._cast(snapshot_of(book, round_=self.round), book, out)
        proposal = SnapshotProposal(vote, newest.height, used)
        self._votes.add_proposal(proposal, round_=self.round)
        out.broadcast.append(proposal)
        self._progress(now_ms)

    def _vote(self, now_ms: int, out: SnapshotOutput) -> None:
        if self.round is None or not self._is_open():
            return
        proposal = self._votes.proposals.get(self.round)
        newest = self._facts.newest
        if proposal is None or newest is None or proposal.height > newest.height:
            return
        self._judged_round = self.round
        book, refusal = self._judge(proposal, newest, now_ms)
        if book is None:
            out.notes.append(SnapshotNote("vote_refused", self.epoch, self.round, refusal, self._leader(self.round)))
            return
        out.broadcast.append(self._cast(proposal.vote.snapshot, book, out))
        self._progress(now_ms)

    def _judge(
        self, proposal: SnapshotProposal, newest: ChainFacts, now_ms: int
    ) -> tuple[SnapshotBook | None, VoteRefusal]:
        """The book of a proposal that deserves a vote, or why it does not."""
        facts = self._facts.at(proposal.height)
        if facts is None or facts.unix_s + FACTS_AGE_S < newest.unix_s:
            return None, VoteRefusal.WRONG_CONTEXT
        if self._last is not None and proposal.height < self._last.table.height:
            return None, VoteRefusal.WRONG_CONTEXT
        book = self._book(facts, proposal.observations)
        if book is None or not self._is_time(now_ms + 1_000 * SKEW_S):
            return None, VoteRefusal.WRONG_CONTEXT
        if snapshot_of(book, round_=proposal.vote.snapshot.round) != proposal.vote.snapshot:
            return None, VoteRefusal.WRONG_RESULT
        return book, VoteRefusal.WRONG_RESULT

    def _book(self, facts: ChainFacts, used: tuple[SignedObservations, ...]) -> SnapshotBook | None:
        return compute_book(facts, used, domain=self._domain, epoch=self.epoch, previous=self._previous())

    def _is_time(self, now_ms: int) -> bool:
        """Whether the contract would take another epoch."""
        return self._posted is None or self._age_s(now_ms) >= self._spacing_s

    def _cast(self, snapshot: ReputationSnapshot, book: SnapshotBook, out: SnapshotOutput) -> SignedSnapshot:
        """Who votes for a table keeps it: if all that did lost it, nobody could make the next one."""
        if self._known.add(book):
            out.books.append(book)
        vote = SignedSnapshot(snapshot, self._sign(snapshot, out))
        self._votes.add_vote(self._me, vote)
        return vote

    def _sign(self, message: Observations | ReputationSnapshot, out: SnapshotOutput) -> bytes:
        signature = self._key.sign(message_digest(self._domain, message))
        entry = SnapshotEntry(message, signature)
        self._own.add(entry)
        out.entries.append(entry)
        return signature

    # The certificate

    def _certify(self, now_ms: int, out: SnapshotOutput) -> None:
        found = self._votes.certificate(self._voting.weights)
        if found is None:
            self._certified = None
            return
        if self._certified is None:
            self._post_ms = now_ms + self._rank(found.snapshot.round) * self._timing.submit_step_ms
        self._certified = found
        if now_ms < self._post_ms:
            return
        if self._is_time(now_ms):
            out.certificate = found
            self._post_ms = now_ms + REPOST_RESENDS * self._timing.resend_ms
        else:
            self._post_ms = now_ms + self._timing.resend_ms

    def _rank(self, round_: int) -> int:
        """0 for the leader, then in the order in which the others would lead."""
        voters = sum(weight > 0 for weight in self._voting.weights.values())
        return next(rank for rank in range(voters) if self._leader(round_ + rank) == self._me)

    # Messages

    def _take_observations(self, signed: SignedObservations, now_ms: int, out: SnapshotOutput) -> None:
        if not self._is_of_epoch(signed.observations.epoch, out):
            return
        signer = signer_of(signed, self._domain)
        if signer is None or not self._voting.weights.get(signer):
            out.code = MessageRefusal.BAD_SIGNATURE
            return
        held = self._votes.observations.setdefault(signer, signed)
        if held is signed:
            self._progress(now_ms)
        elif held.observations != signed.observations:
            out.code = MessageRefusal.DUPLICATE
            out.notes.append(SnapshotNote("two_observations", self.epoch, code=out.code, subject=signer))

    def _take_vote(self, vote: SignedSnapshot, now_ms: int, out: SnapshotOutput) -> str | None:
        """The signer, if it counts."""
        if not self._is_of_epoch(vote.snapshot.epoch, out):
            return None
        signer = self._signer(vote)
        if signer is None or not self._voting.weights.get(signer):
            out.code = MessageRefusal.BAD_SIGNATURE
            return None
        fault = self._votes.double_sign(signer, vote)
        if fault is not None:
            out.faults.append(fault)
            out.code = MessageRefusal.DUPLICATE
        elif self._votes.add_vote(signer, vote):
            self._progress(now_ms)
        return signer

    def _take_proposal(self, proposal: SnapshotProposal, now_ms: int, out: SnapshotOutput) -> None:
        """Its observations are taken in as well: they may be new here, and begin the rounds."""
        signer = self._take_vote(proposal.vote, now_ms, out)
        if signer is None:
            return
        if signer != self._leader(proposal.vote.snapshot.round):
            out.code = VoteRefusal.NOT_LEADER
        elif len(proposal.observations) > VALIDATORS_MAX:
            out.code = MessageRefusal.OUT_OF_RANGE
        elif self._votes.add_proposal(proposal, round_=self.round or 0):
            for signed in proposal.observations:
                self._take_observations(signed, now_ms, out)

    def _take_book(self, book: SnapshotBook, out: SnapshotOutput) -> None:
        if self._posted is None or self._last is not None or book.table.epoch != self._posted.epoch:
            return
        if not is_book_of(book, self._posted):
            out.code = VoteRefusal.WRONG_RESULT
            return
        self._last = book
        if self._known.add(book):
            out.books.append(book)

    def _answer(self, status: SnapshotStatus, out: SnapshotOutput) -> None:
        """What the sender lacks: anyone may ask, and all of it is public."""
        if status.epoch < self.epoch:
            if self._last is not None and status.epoch == self._last.table.epoch:
                out.replies.append(self._last)
            return
        if not self._is_of_epoch(status.epoch, out):
            return
        held = frozenset(status.observations)
        for signed in self._votes.observations.values():
            if keccak256(signed.signature) not in held:
                out.replies.append(signed)
        round_ = self.round or 0
        proposal = self._votes.proposals.get(round_)
        if proposal is not None and not (status.has_proposal and status.round == round_):
            out.replies.append(proposal)
        out.replies += self._votes.votes_of(round_ if self._certified is None else self._certified.snapshot.round)

    def _is_of_epoch(self, epoch: int, out: SnapshotOutput) -> bool:
        if epoch > self.epoch:
            out.code = MessageRefusal.BEHIND_CHAIN
        elif epoch < self.epoch:
            out.code = MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        return epoch == self.epoch

    def _signer(self, vote: SignedSnapshot) -> str | None:
        try:
            return recover_address(message_digest(self._domain, vote.snapshot), vote.signature)
        except BadSignature:
            return None

    def _progress(self, now_ms: int) -> None:
        """Something came or was signed: those who miss it are told soon."""
        self._quiet = 0
        self._resend_ms = min(self._resend_ms, now_ms + self._timing.resend_ms)

    def _resend(self, now_ms: int, out: SnapshotOutput) -> None:
        """Say what is held, so that others send what is missing here."""
        if now_ms < self._resend_ms:
            return
        if self.lacks_book:
            out.broadcast.append(SnapshotStatus(self.epoch - 1, 0, 0, ()))
        elif self._votes.observations or self._votes.votes:
            round_ = self.round or 0
            held = sorted(keccak256(signed.signature) for signed in self._votes.observations.values())
            has_proposal = int(round_ in self._votes.proposals)
            out.broadcast.append(SnapshotStatus(self.epoch, round_, has_proposal, tuple(held)))
        self._resend_ms = now_ms + (self._timing.resend_ms << min(self._quiet, QUIET_DOUBLINGS))
        self._quiet += 1

    def _schedule(self, now_ms: int) -> None:
        times = [self._resend_ms]
        if self._me not in self._votes.observations:
            times.append(max(self._check_ms, now_ms + 1_000))
        if self._certified is not None:
            times.append(self._post_ms)
        elif self.round is not None:
            times.append(self._round_ms + self._round_length_ms(self.round))
            gathered_ms = self._round_ms + self._timing.gather_ms
            if gathered_ms > now_ms and self._is_open():
                times.append(gathered_ms)
        self.next_tick_ms = max(now_ms + 1, min(times))


def _is_told(row: Observation, told: Observation | None) -> bool:
    if told is None:
        return False
    moved = max(abs(row.uptime_ppm - told.uptime_ppm), abs(row.reputation_ppm - told.reputation_ppm))
    return moved < SMALL_PPM and row.zone == told.zone
