"""`sparewatt validator run` with one fault, for tests. The file in FAULT_FILE names the fault; none, and it is honest.

    python -m tests.integration.validator.faulty_validator validator run …

Everything but the fault is the shipped process. A false result goes through the core and the write-ahead file, so the
validator tells one lie consistently; one that equivocates signs a second message for every second peer.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import sparewatt.market.match.validator_match as core
from sparewatt.cli.main import main
from sparewatt.machine.stranger_http import StrangerClient
from sparewatt.market.match.model import AuctionContext, MatchOutput
from sparewatt.market.match.reveal_phase import RevealPhase
from sparewatt.market.match.voting import own_proposal
from sparewatt.market.rule import BidBook, book_of, leaf_of, task_of
from sparewatt.protocol.api.validators import MESSAGES_PATH
from sparewatt.protocol.contracts.match import Bid, BidLeaf, CommitList, Task, Vote
from sparewatt.protocol.contracts.match_messages import (
    MatchMessage,
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    decode_message,
    encode_message,
)
from sparewatt.protocol.typed_message import message_digest, struct_hash
from sparewatt.validator import process, vote_key
from sparewatt.validator.match_host import HostedMatch, MatchHost
from sparewatt.validator.signed_file import SignedFile
from sparewatt.validator.transaction_sender import TransactionSender
from tests.integration.validator.long_rounds import ROUND_MS, lengthen

SLOW_S = 1.2 * ROUND_MS / 1000


class Fault(Enum):
    SLOW = "slow"
    """Everything comes and goes later than a round takes."""
    PARTITIONED = "partitioned"
    """Bidders reach it, other validators do not."""
    WRONG_WINNER = "wrong winner"
    MISSING_BID = "missing bid"
    WRONG_PRICE = "wrong price"
    WRONG_SCORE = "wrong score"
    EQUIVOCATING = "equivocating"
    DIES_AT_LOOKUP = "dies at lookup"
    DIES_AT_COMMIT_LIST = "dies at commit list"
    """It is on disk, and nothing of it has left; so for reveal list and vote."""
    DIES_AT_REVEAL_LIST = "dies at reveal list"
    DIES_AT_VOTE = "dies at vote"
    DIES_AFTER_PROPOSAL = "dies after proposal"
    """One other validator has it."""
    DIES_AT_CERTIFICATE = "dies at certificate"
    DIES_AFTER_SUBMISSION = "dies after submission"
    """The transaction is sent, and nobody was told."""


def fault() -> Fault | None:
    try:
        named = Path(os.environ["FAULT_FILE"]).read_text()
    except OSError:
        return None
    return Fault(named) if named else None


def die_at(step: Fault) -> None:
    """As the kernel does it: nothing is closed or flushed. Once; whoever starts it again has an honest validator."""
    if fault() is step:
        Path(os.environ["FAULT_FILE"]).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


# lies about the result


def false_proposal(context: AuctionContext, reveals: RevealPhase) -> tuple[Task, BidBook]:
    task, book = own_proposal(context, reveals)
    if len(book.leaves) < 2:
        return task, book
    best = book.ranking[0]
    leaves = list(book.leaves)
    match fault():
        case Fault.WRONG_WINNER:
            return replace(task, first=task.second, second=task.first), book
        case Fault.MISSING_BID:
            return _told(context, leaves[:best] + leaves[best + 1 :])
        case Fault.WRONG_PRICE:
            leaf = leaves[best]
            bid = Bid(context.order_id, context.attempt, leaf.provider, 2 * leaf.price_uusd, leaf.terms_hash, leaf.salt)
            leaves[best] = leaf_of(context.terms, bid, context.profiles[leaf.provider.lower()])
            return _told(context, leaves)
        case Fault.WRONG_SCORE:
            leaves[best] = replace(leaves[best], score=leaves[best].score * 10)
            return _told(context, leaves)
        case _:
            return task, book


def _told(context: AuctionContext, leaves: list[BidLeaf]) -> tuple[Task, BidBook]:
    book = book_of(context.order_id, leaves)
    return task_of(
        book,
        attempt=context.attempt,
        policy_hash=context.policy_hash,
        snapshot_epoch=context.snapshot_epoch,
        snapshot_root=context.snapshot_root,
        stake_version=context.stake_version,
    ), book


# what comes and goes


class FaultyHost(MatchHost):
    def __init__(self, **parts: Any) -> None:
        send = parts["send"]

        def send_bent(vote_keys: Sequence[str], path: str, body: bytes) -> None:
            self.bend(send, vote_keys, path, body)

        super().__init__(**{**parts, "send": send_bent})

    def receive(self, message: MatchMessage) -> MatchOutput:
        is_bidders = isinstance(message, SignedCommit | SignedDecline | RevealedBid)
        match fault():
            case Fault.PARTITIONED if not is_bidders:
                return MatchOutput()
            case Fault.SLOW:
                asyncio.get_running_loop().call_later(SLOW_S, super().receive, message)
                return MatchOutput()
            case _:
                return super().receive(message)

    def _start(self, *what: Any) -> None:
        die_at(Fault.DIES_AT_LOOKUP)
        super()._start(*what)

    def _carry_out(self, hosted: HostedMatch, output: MatchOutput) -> None:
        if output.certificate is not None:
            die_at(Fault.DIES_AT_CERTIFICATE)
        super()._carry_out(hosted, output)

    def bend(self, send: Callable[..., None], vote_keys: Sequence[str], path: str, body: bytes) -> None:
        match fault():
            case Fault.PARTITIONED:
                return
            case Fault.SLOW:
                asyncio.get_running_loop().call_later(SLOW_S, send, vote_keys, path, body)
            case Fault.EQUIVOCATING:
                send(vote_keys[::2], path, body)
                send(vote_keys[1::2], path, encode_message(self._other(decode_message(body))))
            case _:
                send(vote_keys, path, body)

    def _other(self, message: MatchMessage) -> MatchMessage:
        match message:
            case SignedCommitList():
                signed = CommitList(message.list.order_id, message.list.attempt, ())
                return SignedCommitList(signed, self._signature(signed), ())
            case SignedVote():
                return self._other_vote(message)
            case Proposal():
                return replace(message, vote=self._other_vote(message.vote))
            case _:
                return message

    def _other_vote(self, signed: SignedVote) -> SignedVote:
        vote = replace(signed.vote, task_hash=struct_hash(signed.vote))
        return SignedVote(vote, self._signature(vote))

    def _signature(self, message: CommitList | Vote) -> bytes:
        return self._key.sign(message_digest(self._domain, message))


# deaths


class MortalSignedFile(SignedFile):
    def append(self, records: Sequence[Any], *, at: int) -> None:
        super().append(records, at=at)
        for record in records:
            match record:
                case SignedCommitList():
                    die_at(Fault.DIES_AT_COMMIT_LIST)
                case SignedRevealList():
                    die_at(Fault.DIES_AT_REVEAL_LIST)
                case SignedVote():
                    die_at(Fault.DIES_AT_VOTE)


class MortalClient(StrangerClient):
    async def post(self, url: str, path: str, body: bytes, **limits: Any) -> bytes:
        answer = await super().post(url, path, body, **limits)
        if path == MESSAGES_PATH and isinstance(decode_message(body), Proposal):
            die_at(Fault.DIES_AFTER_PROPOSAL)
        return answer


class MortalSender(TransactionSender):
    async def _submit(self, *call: Any, **fields: Any) -> bytes:
        tx_hash = await super()._submit(*call, **fields)
        die_at(Fault.DIES_AFTER_SUBMISSION)
        return tx_hash


def install() -> None:
    replaced: list[tuple[Any, str, object]] = [
        (core, "own_proposal", false_proposal),
        (process, "MatchHost", FaultyHost),
        (process, "StrangerClient", MortalClient),
        (process, "TransactionSender", MortalSender),
        (vote_key, "SignedFile", MortalSignedFile),
    ]
    for module, name, faulty in replaced:
        assert hasattr(module, name), name
        setattr(module, name, faulty)


if __name__ == "__main__":
    lengthen()
    install()
    main()
