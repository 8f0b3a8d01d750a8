"""What validators tell a gateway of one attempt, as far as it can be checked. Pure.

A signature counts for its signer, whoever served it: a validator that lies can leave things out, and can say for itself
what nobody signs (its phase, whom it refused), which is kept under its name. Everything is bounded: a validator's words
are a stranger's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.relay.candidates import filter_counts, nearest_relaxations
from sparewatt.market.certificate_check import counted_votes, has_its_candidates, has_quorum
from sparewatt.market.certificate_json import read_certificate
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.match.record import AuctionRecord
from sparewatt.market.quorum import is_quorum, weight_of
from sparewatt.market.rule import book_of, candidate_awards, leaf_of
from sparewatt.protocol.api.validators import MatchProgress, PhaseName
from sparewatt.protocol.contracts.match import BidLeaf, OrderTerms, Profile
from sparewatt.protocol.contracts.match_messages import (
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    read_object,
    write_object,
)
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.message_json import read_message
from sparewatt.protocol.contracts.reasons import DeclineReason, MessageRefusal
from sparewatt.protocol.signing import BadSignature, Domain, keccak256, recover_address
from sparewatt.protocol.typed_message import TypedMessage, message_digest, struct_hash

BIDS_MAX = 256
"""Of one attempt: a tree has fewer leaves."""
LISTS_MAX = 256
"""Signed lists of all validators, contradictory ones included."""
VOTES_MAX = 1_024
REFUSALS_MAX = 256
"""Of one validator."""
CHECKED_MAX = 16_384
"""Messages that are known, so that a repeated one costs no signature check."""
ROUND_MAX = 2**31
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")
_REFUSALS = frozenset(int(code) for code in MessageRefusal)
_Message = TypeVar("_Message")


class SaidRefusal(msgspec.Struct, frozen=True):
    provider: str
    code: int
    late_by_ms: int = 0


class ValidatorWord(msgspec.Struct, frozen=True, kw_only=True):
    """What one validator says without a signature."""

    phase: PhaseName = "commit"
    round: int = 0
    refused: tuple[SaidRefusal, ...] = ()
    heard: bool = False
    problem: str | None = None
    """Why there is no answer, or what was wrong with one."""


class SignedList(msgspec.Struct, frozen=True):
    kind: Literal["commit", "reveal"]
    validator: str
    bid_ids: tuple[str, ...]


class SeenBid(msgspec.Struct, frozen=True, kw_only=True):
    """A bid whose commit the provider's node key has signed; what is sealed is None until it is revealed."""

    provider: str
    price_uusd: int | None = None
    leaf: tuple[int, int, int, int, int] | None = None
    """By the snapshot's table: uptime, reputation, round trip, status and score."""


class SeenVote(msgspec.Struct, frozen=True):
    validator: str
    round: int
    task_hash: str


class SeenCertificate(msgspec.Struct, frozen=True, kw_only=True):
    task_hash: str
    round: int
    bid_root: str
    bid_count: int
    candidates: tuple[tuple[str, int], ...]
    """Providers with their prices, the winner first."""
    pays: tuple[int, ...] = ()
    """What each of them is paid if it has the lease. None of certificates that an earlier release stored."""
    signers: tuple[str, ...]


class SeenRelaxation(msgspec.Struct, frozen=True):
    field: str
    value: str
    providers: int


class MatchEvidence(msgspec.Struct, kw_only=True):
    """What is stored of an attempt, and what the reply is made of."""

    order_id: str
    attempt: int
    seen_unix_s: float
    """When this gateway saw the lookup."""
    asked: int = 0
    bondless: int = 0
    """Providers that fit, and were not asked for want of a bond."""
    weights: dict[str, int] = {}
    """Of the validators, at the stake version of the attempt."""
    words: dict[str, ValidatorWord] = {}
    """By vote key."""
    bids: dict[str, SeenBid] = {}
    """By bid id."""
    lists: list[SignedList] = []
    declines: dict[str, int] = {}
    """Codes by provider."""
    votes: list[SeenVote] = []
    certificate: SeenCertificate | None = None
    ranking: list[str] = []
    """Providers of the eligible bids, best first, by the rule."""
    profiles: int | None = None
    """How many providers the snapshot has; None while its table is not known."""
    excluded: dict[str, int] = {}
    """Of these, how many the order's filters keep out, by reason."""
    relaxations: list[SeenRelaxation] = []
    tx: str | None = None
    """The transaction in which the chain took a certificate."""
    accepted_at: int | None = None


@dataclass(slots=True, kw_only=True)
class EvidenceRules:
    """What the chain says of the attempt: whose signatures count."""

    domain: Domain
    order_id: bytes
    attempt: int
    terms: OrderTerms
    stake_version: int
    snapshot_epoch: int
    weights: Mapping[str, int]
    node_keys: Mapping[str, str]
    """By provider: the key that counts for the attempt."""


@dataclass(slots=True, kw_only=True)
class EvidenceBook:
    rules: EvidenceRules
    evidence: MatchEvidence
    profiles: Mapping[str, Profile] | None = None
    """The snapshot's table, checked against the chain's root; None until a validator gave it."""
    certificate: QuorumCertificate | None = None
    """Checked: votes of a quorum."""
    version: int = 0
    """Grows with every change of the evidence."""
    _reveals: dict[str, RevealedBid] = field(default_factory=dict)
    """By bid id."""
    _checked: set[bytes] = field(default_factory=set)
    _signers: dict[tuple[bytes, bytes], str] = field(default_factory=dict)

    # what one validator served

    def take(self, vote_key: str, progress: MatchProgress) -> None:
        """What does not check is left out, and noted under the name of whoever served it."""
        wanted = ("0x" + self.rules.order_id.hex(), self.rules.attempt)
        if (progress.order_id.lower(), progress.attempt) != wanted:
            self.note_problem(vote_key, "it answered for another match")
            return
        bad = sum(
            (
                self._take_all(progress.commit_lists, SignedCommitList, self._take_commit_list),
                self._take_all(progress.reveal_lists, SignedRevealList, self._take_reveal_list),
                self._take_all(progress.declines, SignedDecline, self._take_decline),
                self._take_all(progress.votes, SignedVote, self._take_vote),
                0 if progress.certificate is None else self._take_certificate(progress.certificate),
            )
        )
        word = ValidatorWord(
            phase=progress.phase,
            round=min(max(progress.round, 0), ROUND_MAX),
            refused=self._refusals(vote_key, [(e.provider, e.code, e.late_by_ms) for e in progress.refused]),
            heard=True,
            problem=_bad_messages(bad),
        )
        self._set_word(vote_key, word)
        self._rank()

    def take_record(self, vote_key: str, record: AuctionRecord) -> bool:
        """A validator's whole record: bids are in it, which nobody shows while they are sealed. False if it lies."""
        context = record.context
        if (context.order_id, context.attempt, record.validator) != (self.rules.order_id, self.rules.attempt, vote_key):
            self.note_problem(vote_key, "its record is of another match")
            return False
        bad = sum(
            (
                self._take_each(record.commits, self._take_commit),
                self._take_each(record.declines, self._take_decline),
                self._take_each(record.commit_lists, self._take_commit_list),
                self._take_each(record.reveals, self._take_reveal),
                self._take_each(record.reveal_lists, self._take_reveal_list),
                self._take_each(record.votes, self._take_vote),
            )
        )
        said = [(note.subject.lower(), note.code, note.late_by_ms) for note in record.notes]
        before = self.evidence.words.get(vote_key, ValidatorWord())
        refused = self._refusals(vote_key, [each for each in said if each[1] in _REFUSALS])
        problem = _bad_messages(bad) or before.problem
        self._set_word(vote_key, msgspec.structs.replace(before, refused=refused, heard=True, problem=problem))
        self._rank()
        return not bad

    def _refusals(self, vote_key: str, said: Iterable[tuple[str, int, int]]) -> tuple[SaidRefusal, ...]:
        """Those that the validator has named so far, each once, with the largest delay."""
        known = self.evidence.words.get(vote_key, ValidatorWord()).refused
        late = {(each.provider, each.code): each.late_by_ms for each in known}
        for provider, code, late_by_ms in said:
            is_new = (provider, code) not in late
            if not _ADDRESS.fullmatch(provider) or code not in _REFUSALS or (is_new and len(late) >= REFUSALS_MAX):
                continue
            late[provider, code] = min(max(late_by_ms, late.get((provider, code), 0)), ROUND_MAX)
        return tuple(SaidRefusal(provider, code, late_by_ms) for (provider, code), late_by_ms in late.items())

    @staticmethod
    def _take_each(messages: Iterable[_Message], take: Callable[[_Message], bool]) -> int:
        """How many were bad."""
        bad = 0
        for message in list(messages)[:VOTES_MAX]:
            try:
                bad += not take(message)
            except BadSignature:
                bad += 1
        return bad

    def note_problem(self, vote_key: str, problem: str, *, is_first: bool = False) -> None:
        """`is_first`: only if there is none yet."""
        before = self.evidence.words.get(vote_key, ValidatorWord())
        if is_first and before.problem is not None:
            return
        self._set_word(vote_key, msgspec.structs.replace(before, problem=problem))

    def _set_word(self, vote_key: str, word: ValidatorWord) -> None:
        if self.evidence.words.get(vote_key) != word:
            self.evidence.words[vote_key] = word
            self.version += 1

    def _take_all(self, served: Iterable[Any], kind: type[_Message], take: Callable[[_Message], bool]) -> int:
        """How many were bad."""
        bad = 0
        for document in list(served)[:VOTES_MAX]:
            digest = keccak256(msgspec.json.encode(document))
            if digest in self._checked:
                continue
            try:
                message: _Message = read_object(kind, {k: v for k, v in document.items() if k != "type"})
                is_good = take(message)
            except (InvalidField, BadSignature):
                is_good = False
            if not is_good:
                bad += 1
            elif len(self._checked) < CHECKED_MAX:
                self._checked.add(digest)
        return bad

    # messages

    def _signer(self, message: TypedMessage, signature: bytes) -> str:
        """Raises BadSignature. What several validators relay is recovered once."""
        digest = message_digest(self.rules.domain, message)
        known = self._signers.get((digest, signature))
        if known is None:
            known = recover_address(digest, signature).lower()
            if len(self._signers) < CHECKED_MAX:
                self._signers[digest, signature] = known
        return known

    def _is_of_match(self, message: Any) -> bool:
        return (message.order_id, message.attempt) == (self.rules.order_id, self.rules.attempt)

    def _take_commit_list(self, signed: SignedCommitList) -> bool:
        commits = [self._take_commit(each) for each in signed.commits]
        return self._take_list("commit", signed.list, signed.signature) and all(commits)

    def _take_reveal_list(self, signed: SignedRevealList) -> bool:
        lists = [self._take_commit_list(each) for each in signed.commit_lists[:LISTS_MAX]]
        bids = [self._take_reveal(each) for each in signed.bids]
        return self._take_list("reveal", signed.list, signed.signature) and all(lists) and all(bids)

    def _take_list(self, kind: Literal["commit", "reveal"], message: Any, signature: bytes) -> bool:
        signer = self._signer(message, signature)
        if not self._is_of_match(message) or not self.rules.weights.get(signer):
            return False
        found = SignedList(kind, signer, tuple("0x" + each.hex() for each in message.bid_ids[:BIDS_MAX]))
        if found not in self.evidence.lists and len(self.evidence.lists) < LISTS_MAX:
            self.evidence.lists.append(found)
            self.version += 1
        return True

    def _take_commit(self, signed: SignedCommit) -> bool:
        commit = signed.commit
        bid_id, provider = "0x" + commit.bid_id.hex(), commit.provider.lower()
        key = self.rules.node_keys.get(provider)
        if not self._is_of_match(commit) or key is None or self._signer(commit, signed.signature) != key:
            return False
        if bid_id not in self.evidence.bids and len(self.evidence.bids) < BIDS_MAX:
            self.evidence.bids[bid_id] = SeenBid(provider=provider)
            self.version += 1
        return True

    def _take_reveal(self, revealed: RevealedBid) -> bool:
        """It needs no signature: its hash is in a signed commit."""
        bid_id = "0x" + struct_hash(revealed.bid).hex()
        seen = self.evidence.bids.get(bid_id)
        if not self._is_of_match(revealed.bid) or seen is None or seen.provider != revealed.bid.provider.lower():
            return False
        if bid_id not in self._reveals:
            self._reveals[bid_id] = revealed
            self.evidence.bids[bid_id] = msgspec.structs.replace(seen, price_uusd=revealed.bid.price_uusd)
            self._judge(bid_id)
            self.version += 1
        return True

    def _take_decline(self, signed: SignedDecline) -> bool:
        decline = signed.decline
        provider = decline.provider.lower()
        key = self.rules.node_keys.get(provider)
        is_known = decline.code in {int(reason) for reason in DeclineReason}
        if not self._is_of_match(decline) or not is_known or key != self._signer(decline, signed.signature):
            return False
        if provider not in self.evidence.declines and len(self.evidence.declines) < BIDS_MAX:
            self.evidence.declines[provider] = decline.code
            self.version += 1
        return True

    def _take_vote(self, signed: SignedVote) -> bool:
        signer = self._signer(signed.vote, signed.signature)
        if not self._is_of_match(signed.vote) or not self.rules.weights.get(signer):
            return False
        seen = SeenVote(signer, signed.vote.round, "0x" + signed.vote.task_hash.hex())
        if seen not in self.evidence.votes and len(self.evidence.votes) < VOTES_MAX:
            self.evidence.votes.append(seen)
            self.version += 1
        return True

    # the certificate

    def _take_certificate(self, document: Mapping[str, Any]) -> int:
        """1 if it is bad. The first good one stays: the chain takes one, and shows which."""
        if self.certificate is not None:
            return 0
        try:
            found = read_certificate(document)
        except InvalidField:
            return 1
        if not self._is_certificate(found):
            return 1
        self.certificate = found
        task, rules = found.task, self.rules
        signers = counted_votes(found, rules.weights, rules.domain)
        for signer in signers:
            vote = SeenVote(signer, found.round, "0x" + struct_hash(task).hex())
            if vote not in self.evidence.votes:
                self.evidence.votes.append(vote)
        self.evidence.certificate = SeenCertificate(
            task_hash="0x" + struct_hash(task).hex(),
            round=found.round,
            bid_root="0x" + task.bid_root.hex(),
            bid_count=task.bid_count,
            candidates=tuple((leaf.provider.lower(), leaf.price_uusd) for leaf in found.leaves),
            pays=tuple(award.price_uusd for award in candidate_awards(rules.terms, found.leaves)),
            signers=tuple(signers),
        )
        self.version += 1
        return 0

    def _is_certificate(self, found: QuorumCertificate) -> bool:
        task, rules = found.task, self.rules
        policy_hash = struct_hash(rules.terms)
        context = (task.policy_hash, task.stake_version, task.snapshot_epoch)
        is_ours = self._is_of_match(task) and context == (policy_hash, rules.stake_version, rules.snapshot_epoch)
        return is_ours and has_its_candidates(found) and has_quorum(found, rules.weights, rules.domain)

    def certificate_text(self) -> str | None:
        if self.certificate is None:
            return None
        return msgspec.json.encode(write_object(self.certificate)).decode()

    # the rule

    def set_table(self, profiles: Iterable[Profile]) -> None:
        """The snapshot's table: from here on bids are scored."""
        self.profiles = {each.provider.lower(): each for each in profiles}
        for bid_id in self._reveals:
            self._judge(bid_id)
        table, terms, evidence = list(self.profiles.values()), self.rules.terms, self.evidence
        evidence.profiles, evidence.excluded = len(table), dict(filter_counts(table, terms))
        found = nearest_relaxations(table, terms)
        evidence.relaxations = [SeenRelaxation(each.field, each.value, each.providers) for each in found]
        self._rank()
        self.version += 1

    def _judge(self, bid_id: str) -> None:
        leaf = self._leaf_of(bid_id)
        if leaf is not None:
            judged = (leaf.uptime_ppm, leaf.reputation_ppm, leaf.rtt_ms, leaf.status, leaf.score)
            self.evidence.bids[bid_id] = msgspec.structs.replace(self.evidence.bids[bid_id], leaf=judged)

    def _leaf_of(self, bid_id: str) -> BidLeaf | None:
        revealed = self._reveals[bid_id]
        profile = self.profiles.get(revealed.bid.provider.lower()) if self.profiles is not None else None
        if profile is None:
            return None
        try:
            return leaf_of(self.rules.terms, revealed.bid, profile)
        except InvalidField:
            return None

    def _rank(self) -> None:
        """The eligible bids that commit lists of a quorum name, best first."""
        leaves = dict[str, BidLeaf]()
        for bid_id, revealed in self._reveals.items():
            leaf = self._leaf_of(bid_id)
            if leaf is not None and is_certified(self.evidence, bid_id, self.rules.weights):
                leaves[revealed.bid.provider.lower()] = leaf
        book = book_of(self.rules.order_id, leaves.values())
        ranking = [book.leaves[index].provider.lower() for index in book.ranking]
        if ranking != self.evidence.ranking:
            self.evidence.ranking = ranking
            self.version += 1


def _bad_messages(count: int) -> str | None:
    return f"{count} messages that it served have no valid signature" if count else None


def is_certified(evidence: MatchEvidence, bid_id: str, weights: Mapping[str, int]) -> bool:
    """Whether the validators that signed a commit list naming the bid are a quorum."""
    signers = {each.validator for each in evidence.lists if each.kind == "commit" and bid_id in each.bid_ids}
    return is_quorum(weight_of(signers, weights), total=sum(weights.values()))


def table_of(document: object, *, root: str, count: int) -> list[Profile] | None:
    """The profiles of a snapshot as a validator serves them; None if they do not hash to the chain's root."""
    if not isinstance(document, list) or len(document) != count:
        return None
    try:
        profiles: list[Profile] = [read_message(Profile, each) for each in document]
    except InvalidField:
        return None
    ordered = sorted(profiles, key=lambda each: int(each.provider, 16))
    found = merkle_tree([struct_hash(each) for each in ordered]).root
    return ordered if "0x" + found.hex() == root else None
