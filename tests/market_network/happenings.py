"""What went wrong in a simulated match, counted where it happened: a network that loses nothing would prove nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import TypeAlias

from sparewatt.market.match.model import MatchStage
from sparewatt.protocol.contracts.reasons import MessageRefusal
from tests.market_network.scenario import Lie


class Happening(Enum):
    """The values are rows of the report."""

    MESSAGE = "messages sent"
    LOST = "messages lost"
    TWICE = "messages delivered twice"
    OVERTAKING = "messages of a validator that overtook an earlier one to the same peer"
    CUT = "messages cut off by a partition"
    SKEW = "orders in which clocks ran apart by 10 ms or more"
    CRASH = "crashes of a validator in the middle of the match"
    CRASH_ON_RECORD = "of these between storing a signature and sending it"
    FROM_DISK = "matches continued from what was on disk"
    BIDDER_RESTART = "restarts of a bidder's node after its commit"
    LOOKUP_GONE = "matches that a reorganisation took the order from"
    ACCEPTANCE_GONE = "accepted certificates that a reorganisation took back"
    BLIND_VOTE = "votes for whatever is proposed"
    USURPED = "proposals by a validator that does not lead"


Counted: TypeAlias = Happening | Lie | MatchStage | MessageRefusal
"""Of a lie, how often it was told or done; of a stage, how often a crash or a reorganisation ended a match in it; of a
refusal, how often a bidder got it."""
Happenings: TypeAlias = Counter[Counted]

BIDDERS_REFUSALS = (
    MessageRefusal.LATE,
    MessageRefusal.DUPLICATE,
    MessageRefusal.BAD_SIGNATURE,
    MessageRefusal.WRONG_ORDER_OR_ATTEMPT,
    MessageRefusal.NOT_IN_SNAPSHOT,
    MessageRefusal.UNBONDED,
    MessageRefusal.UNCERTIFIED,
    MessageRefusal.REVEAL_MISMATCH,
    MessageRefusal.TERMS,
)
STAGES = (MatchStage.COMMIT, MatchStage.REVEAL, MatchStage.VOTE, MatchStage.CERTIFIED)
EVERYTHING: tuple[Counted, ...] = (*Happening, *Lie, *STAGES, *BIDDERS_REFUSALS)


def rows_of(happened: Happenings) -> Iterable[tuple[str, int]]:
    """What it was in words, and how often."""
    for each in Happening:
        yield each.value, happened[each]
    for stage in STAGES:
        yield f"crashes and reorganisations in the phase {stage.value}", happened[stage]
    for lie in Lie:
        yield f"acts of a faulty validator: {lie.value}", happened[lie]
    for code in BIDDERS_REFUSALS:
        yield f"refusals of a bidder's message: {code.name}", happened[code]
