"""The match of one order and attempt as one validator sees it: messages and ticks go in, what to do comes out.

Its phases are commit, reveal and voting in rounds. A phase ends by this validator's own clock, or earlier by what has
come; nothing depends on another's clock. What it signs is in the output's `records`, once per list and per round.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.market.match.ballots import ProposedTask
from sparewatt.market.match.holdings import MatchHoldings
from sparewatt.market.match.match_log import MatchLog
from sparewatt.market.match.model import (
    AuctionContext,
    MatchOutput,
    MatchStage,
    MatchTiming,
    QuorumCertificate,
    SignedRecord,
    StandingOf,
)
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.match.restored import restored_records
from sparewatt.market.match.rounds import Rounds
from sparewatt.market.match.voting import own_proposal, refusal_of
from sparewatt.protocol.contracts.match import RoundReached, Vote
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
)
from sparewatt.protocol.contracts.reasons import MessageRefusal, VoteRefusal
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, message_digest, struct_hash

NO_TASK = bytes(32)


class ValidatorMatch:
    """`stored` is what this key has signed in this attempt: after a restart the match goes on from there.

    `recorded` is its own record of before. Whoever voted must be able to publish the leaves of the task, and those are
    in the record alone. Times given to the methods never go back.
    """

    def __init__(
        self,
        context: AuctionContext,
        *,
        key: SigningKey,
        timing: MatchTiming,
        standing: StandingOf,
        stored: Sequence[SignedRecord] = (),
        recorded: AuctionRecord | None = None,
    ) -> None:
        """Raises ValueError if the key has no weight in this attempt, or `stored` does not belong to it."""
        self.vote_key = key.address.lower()
        if context.weights.get(self.vote_key, 0) <= 0:
            raise ValueError("the vote key has no weight at the stake version of this attempt")
        self.context = context
        self._key = key
        self._timing = timing
        self._restored = restored_records(stored, context)
        self._recorded = recorded
        self._last_voted = self._restored.last_voted
        self._rounds = Rounds(context.weights, round_ms=timing.round_ms, first=self._last_voted + 1)
        self._holdings = MatchHoldings(context, standing=standing, rounds=self._rounds)
        notes = recorded.notes if recorded is not None else ()
        self._log = MatchLog(providers=context.node_keys, validators=context.weights, notes=notes)
        self.phase = MatchStage.COMMIT
        self.certificate: QuorumCertificate | None = None
        self.version = 0
        """Grows with what others can see: phase, round, lists, declines, refusals."""
        self._seen: tuple[object, ...] = ()
        self._certified: ProposedTask | None = None
        self._own_reveal_list: SignedRevealList | None = None
        self._own_vote: SignedVote | None = None
        self._judged: dict[bytes, tuple[int, int]] = {}
        """By task of this round: why it was refused, and how much was known then."""
        self._window_ends_ms = 0
        self._commits_closed_ms = 0
        self._reveals_closed_ms = 0
        self._resend_at_ms = 0
        self._submit_at_ms: int | None = None

    # what drives it

    def start(self, now_ms: int) -> MatchOutput:
        """At first sight of the lookup, or after a restart; once."""
        out = MatchOutput()
        self._log.start(now_ms)
        self._window_ends_ms = now_ms + self.context.terms.commit_ms
        self._resend_at_ms = now_ms + self._timing.resend_ms
        self._restore(now_ms, out)
        return self._advanced(now_ms, out)

    def receive(self, message: MatchMessage, *, now_ms: int) -> MatchOutput:
        out = MatchOutput()
        if self.phase is MatchStage.OVER:
            return self._after_the_end(message, now_ms, out)
        out.code = self._take(message, now_ms, out)
        if isinstance(message, MatchStatus) and not out.code:
            out.replies += self._holdings.lacked_by(message, certified=self._certified)
        return self._advanced(now_ms, out, asked=isinstance(message, Proposal))

    def tick(self, now_ms: int) -> MatchOutput:
        return self._advanced(now_ms, MatchOutput())

    def settled(self, now_ms: int) -> MatchOutput:
        """The chain has a certificate, or the attempt is over: nothing more is sent."""
        out = MatchOutput()
        if self.phase is not MatchStage.OVER:
            self._enter(MatchStage.OVER, now_ms, out)
        return out

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do, if no message comes before."""
        match self.phase:
            case MatchStage.OVER:
                return None
            case MatchStage.CERTIFIED:
                return self._submit_at_ms
            case MatchStage.VOTE:
                due = self._rounds.entered_ms + self._timing.gather_ms if self._may_propose() else self._rounds.ends_ms
                return min(self._resend_at_ms, self._rounds.ends_ms, due)
            case MatchStage.COMMIT | MatchStage.REVEAL:
                return min(self._resend_at_ms, self._window_ends_ms)

    # what it knows

    @property
    def round(self) -> int:
        return self._rounds.current

    def commit_lists(self) -> tuple[SignedCommitList, ...]:
        """All that are held, without their commits."""
        return tuple(signed for _, signed in self._holdings.commits.book.lists())

    def reveal_lists(self) -> tuple[SignedRevealList, ...]:
        """All that are held, without bids."""
        return tuple(signed for _, signed in self._holdings.reveals.lists())

    def declines(self) -> tuple[SignedDecline, ...]:
        return tuple(self._holdings.commits.declined.values())

    def refusals(self) -> dict[str, int]:
        """By provider: the code with which its last message was refused."""
        return dict(self._log.refusals)

    def holds_commit_of(self, provider: str) -> bool:
        """Whether its commit is, or will be, in the own list: it binds bond until the attempt is over."""
        return provider.lower() in self._holdings.commits.held

    def votes(self) -> tuple[SignedVote, ...]:
        return tuple(self._holdings.ballots.votes())

    def record(self) -> AuctionRecord:
        """Everything that a replay needs. Bids are in it once the own reveal list is signed."""
        with_bids = self.phase not in (MatchStage.COMMIT, MatchStage.REVEAL)
        return self._holdings.record(validator=self.vote_key, notes=self._log.notes, with_bids=with_bids)

    # messages

    def _take(self, message: MatchMessage, now_ms: int, out: MatchOutput) -> int:
        holdings, subject = self._holdings, ""
        match message:
            case SignedCommit():
                subject = message.commit.provider.lower()
                code = holdings.commits.take(message)
            case SignedDecline():
                subject = message.decline.provider.lower()
                code = holdings.commits.take_decline(message)
            case RevealedBid():
                subject = message.bid.provider.lower()
                code = self._take_reveal(message)
            case _:
                code = holdings.take(message)
        if code:
            if code == MessageRefusal.LATE and subject:
                closed_ms = self._commits_closed_ms if isinstance(message, SignedCommit) else self._reveals_closed_ms
                out.late_by_ms = now_ms - closed_ms
            self._log.refuse(out, message.tag, now_ms=now_ms, code=code, subject=subject, late_by_ms=out.late_by_ms)
        return code

    def _after_the_end(self, message: MatchMessage, now_ms: int, out: MatchOutput) -> MatchOutput:
        """A bid that comes now is late, and its bidder finds that in the replay. Nothing else counts any more.

        If the window was still open, a reorganisation may have taken the order away, and may bring it back.
        """
        out.code = MessageRefusal.WRONG_ORDER_OR_ATTEMPT
        if isinstance(message, SignedCommit) and not self._holdings.commits.is_open:
            out.code = self._take(message, now_ms, out)
            self._count_version()
        return out

    def _take_reveal(self, revealed: RevealedBid) -> int:
        """A bid that comes after the own reveal list is kept for the rounds to come, and told that it is late."""
        reveals = self._holdings.reveals
        known = reveals.is_known(revealed)
        code = reveals.take(revealed)
        late = not known and self.phase not in (MatchStage.COMMIT, MatchStage.REVEAL)
        return MessageRefusal.LATE if late and not code else code

    # phases

    def _advanced(self, now_ms: int, out: MatchOutput, *, asked: bool = False) -> MatchOutput:
        """Take every step that is due. `asked`: the sender of a proposal waits for an answer."""
        self._look_for_certificate(now_ms, out)
        if self.phase is MatchStage.COMMIT and self._commits_are_due(now_ms):
            self._close_commits(now_ms, out)
        if self.phase is MatchStage.REVEAL and self._reveals_are_due(now_ms):
            self._close_reveals(now_ms, out)
        if self.phase is MatchStage.VOTE:
            self._change_round(now_ms, out)
            self._vote(now_ms, out, asked=asked)
            self._propose(now_ms, out)
            self._look_for_certificate(now_ms, out)
        if self.phase is MatchStage.CERTIFIED:
            self._submit(now_ms, out)
        elif self.phase is not MatchStage.OVER and now_ms >= self._resend_at_ms:
            self._resend(now_ms, out)
        self._count_version()
        return out

    def _enter(self, phase: MatchStage, now_ms: int, out: MatchOutput) -> None:
        self.phase = phase
        self._log.add(out, phase.value, now_ms=now_ms)

    def _commits_are_due(self, now_ms: int) -> bool:
        commits = self._holdings.commits
        if now_ms >= self._window_ends_ms or commits.some_have_closed():
            return True
        return self._timing.early_close and commits.everybody_has_answered()

    def _close_commits(self, now_ms: int, out: MatchOutput) -> None:
        commits = self._holdings.commits
        commits.is_open = False
        own = commits.own_list()
        signed = SignedCommitList(own, self._sign(own), tuple(commits.commits_of(own.bid_ids)))
        out.records.append(signed)
        out.broadcast.append(signed)
        commits.take_lists([(self.vote_key, signed)])
        unused_ms = max(0, self._window_ends_ms - now_ms)
        self._start_reveals(now_ms, out)
        # Bidders reveal once a quorum has closed, and others may have seen the order later.
        self._window_ends_ms += unused_ms

    def _close_windows(self, now_ms: int) -> None:
        """Those that were still open when others had decided."""
        self._holdings.commits.is_open = False
        if self.phase is MatchStage.COMMIT:
            self._commits_closed_ms = now_ms
        if self.phase in (MatchStage.COMMIT, MatchStage.REVEAL):
            self._reveals_closed_ms = now_ms

    def _start_reveals(self, now_ms: int, out: MatchOutput) -> None:
        self._enter(MatchStage.REVEAL, now_ms, out)
        self._commits_closed_ms = now_ms
        self._window_ends_ms = now_ms + self.context.terms.reveal_ms

    def _reveals_are_due(self, now_ms: int) -> bool:
        reveals = self._holdings.reveals
        if reveals.some_have_closed():
            self._window_ends_ms = min(self._window_ends_ms, now_ms + self._timing.gather_ms)
        return now_ms >= self._window_ends_ms or (self._timing.early_close and reveals.everything_is_revealed())

    def _close_reveals(self, now_ms: int, out: MatchOutput) -> None:
        reveals = self._holdings.reveals
        own = reveals.own_list()
        signed = self._holdings.reveal_list(SignedRevealList(own, self._sign(own), (), ()), with_lists=True)
        out.records.append(signed)
        out.broadcast.append(signed)
        reveals.take_list(signed, signer=self.vote_key)
        self._own_reveal_list = signed
        for provider in self._unrevealed_providers():
            self._log.refuse(out, "reveal", now_ms=now_ms, code=MessageRefusal.UNREVEALED, subject=provider)
        self._start_rounds(now_ms, out)

    def _unrevealed_providers(self) -> list[str]:
        commits = self._holdings.commits.commits_of(self._holdings.reveals.unrevealed())
        return [signed.commit.provider.lower() for signed in commits]

    def _start_rounds(self, now_ms: int, out: MatchOutput) -> None:
        self._enter(MatchStage.VOTE, now_ms, out)
        self._reveals_closed_ms = now_ms
        self._rounds.enter(max(self._rounds.current, self._rounds.highest()), now_ms=now_ms)

    def _restore(self, now_ms: int, out: MatchOutput) -> None:
        """Signed lists stay as they are. The reveal window starts anew if its list was not signed.

        Votes come back with the record, which is kept before a vote leaves: one that is not in it was never sent, and
        must not be now, without the leaves that it is for.
        """
        commit_list, reveal_list = self._restored.commit_list, self._restored.reveal_list
        if commit_list is None:
            return
        self._holdings.commits.restore(commit_list, signer=self.vote_key)
        out.broadcast.append(commit_list)
        self._start_reveals(now_ms, out)
        if reveal_list is None:
            return
        self._holdings.take_reveal_list(reveal_list)
        self._own_reveal_list = reveal_list
        out.broadcast.append(reveal_list)
        if self._recorded is not None:
            self._holdings.take_record(self._recorded)
        self._start_rounds(now_ms, out)

    # rounds

    def _change_round(self, now_ms: int, out: MatchOutput) -> None:
        rounds, highest = self._rounds, self._rounds.highest()
        if highest > rounds.current:
            rounds.enter(highest, now_ms=now_ms)
        elif now_ms >= rounds.ends_ms:
            rounds.enter(rounds.current + 1, now_ms=now_ms)
        else:
            return
        self._holdings.ballots.forget_before(rounds.current)
        self._judged.clear()
        self._resend_at_ms = now_ms
        self._log.add(out, f"round {rounds.current}", now_ms=now_ms)

    def _vote(self, now_ms: int, out: MatchOutput, *, asked: bool) -> None:
        """Once per round, and only for what this validator has recomputed."""
        for proposed in self._holdings.ballots.proposed(self.round):
            known = self._holdings.change_count
            if self._last_voted >= self.round or self._judged.get(proposed.task_hash, (0, -1))[1] == known:
                continue
            code = refusal_of(self.context, proposed, reveals=self._holdings.reveals, own_bid_ids=self._own_bid_ids())
            if code == 0:
                out.broadcast.append(self._signed_vote(proposed.task_hash, now_ms, out))
                continue
            self._judged[proposed.task_hash] = code, known
            leader = self._holdings.ballots.leader_of(self.round)
            self._log.refuse(out, "proposal", now_ms=now_ms, code=code, subject=leader)
            if asked:
                out.code = code
                out.replies += self._answer_to(code)

    def _own_bid_ids(self) -> tuple[bytes, ...]:
        return self._own_reveal_list.list.bid_ids if self._own_reveal_list is not None else ()

    def _answer_to(self, code: int) -> list[MatchMessage]:
        if code != VoteRefusal.MISSING_BID or self._own_reveal_list is None:
            return []
        return [MissingBids(self.round, self._holdings.reveal_list(self._own_reveal_list, with_lists=True))]

    def _signed_vote(self, task_hash: bytes, now_ms: int, out: MatchOutput) -> SignedVote:
        if self._last_voted >= self.round:
            raise AssertionError("a validator votes once in a round")
        vote = Vote(self.context.order_id, self.context.attempt, self.round, task_hash)
        signed = SignedVote(vote, self._sign(vote))
        self._last_voted, self._own_vote = self.round, signed
        out.records.append(signed)
        self._holdings.take_vote(signed)
        self._log.add(out, f"voted in round {self.round}", now_ms=now_ms)
        return signed

    def _may_propose(self) -> bool:
        leads = self._holdings.ballots.leader_of(self.round) == self.vote_key
        return leads and self._last_voted < self.round and self._holdings.reveals.quorum_has_closed()

    def _propose(self, now_ms: int, out: MatchOutput) -> None:
        if not self._may_propose() or now_ms < self._rounds.entered_ms + self._timing.gather_ms:
            return
        task, book = own_proposal(self.context, self._holdings.reveals)
        vote = self._signed_vote(struct_hash(task), now_ms, out)
        proposal = self._holdings.proposal(ProposedTask(vote, task, book))
        self._holdings.take_proposal(proposal)
        out.broadcast.append(proposal)

    # certificate and resending

    def _look_for_certificate(self, now_ms: int, out: MatchOutput) -> None:
        if self.phase in (MatchStage.CERTIFIED, MatchStage.OVER):
            return
        found = self._holdings.ballots.certificate()
        if found is None:
            return
        self._certified, self.certificate = found
        self._close_windows(now_ms)
        self._submit_at_ms = now_ms + self._rank_in(self._certified.round) * self._timing.submit_step_ms
        self._enter(MatchStage.CERTIFIED, now_ms, out)

    def _rank_in(self, round_: int) -> int:
        """How many validators are before this one in submitting the certificate of a round; its leader is first."""
        voters = sorted(address for address, weight in self.context.weights.items() if weight > 0)
        leader = self._holdings.ballots.leader_of(round_)
        return (voters.index(self.vote_key) - voters.index(leader)) % len(voters)

    def _submit(self, now_ms: int, out: MatchOutput) -> None:
        if self._submit_at_ms is not None and now_ms >= self._submit_at_ms:
            out.certificate, self._submit_at_ms = self.certificate, None

    def _resend(self, now_ms: int, out: MatchOutput) -> None:
        """Peers answer with what is missing here, and ask for their part in the same way."""
        self._resend_at_ms = now_ms + self._timing.resend_ms
        out.broadcast.append(self._status())
        if self._own_vote is not None and self._own_vote.vote.round == self.round:
            out.broadcast.append(self._own_vote)

    def _status(self) -> MatchStatus:
        commit_lists, reveal_lists = self._holdings.complete_digests()
        reached = RoundReached(self.context.order_id, self.context.attempt, self.round)
        return MatchStatus(
            reached=reached,
            signature=self._sign(reached),
            task_hash=self._judged_task(),
            commit_lists=commit_lists,
            reveal_lists=reveal_lists,
        )

    def _judged_task(self) -> bytes:
        """Of this round, unless bids or lists are missing to judge it: then the proposal is wanted again."""
        for proposed in self._holdings.ballots.proposed(self.round):
            code, _ = self._judged.get(proposed.task_hash, (0, 0))
            if code != VoteRefusal.UNCERTIFIED_BID:
                return proposed.task_hash
        return NO_TASK

    def _sign(self, message: TypedMessage) -> bytes:
        return self._key.sign(message_digest(self.context.domain, message))

    def _count_version(self) -> None:
        seen = (
            self.phase,
            self.round,
            len(self.commit_lists()),
            len(self.reveal_lists()),
            len(self._holdings.commits.declined),
            len(self._log.refusals),
        )
        if seen != self._seen:
            self._seen, self.version = seen, self.version + 1
