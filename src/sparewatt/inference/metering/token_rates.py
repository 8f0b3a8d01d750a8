"""How many tokens of a model one unit of text takes, learned from what nodes claim: one vote per owner. Pure.

For each owner of nodes a ridge regression of its claims over the units of the texts (`inference/text_units.py`) starts
at a prior that is generous to every tokenizer in use, and forgets slowly. What a text should take is the median of what
the owners' regressions say, so that no owner moves it far, however much it serves and whatever it claims. With fewer
than three owners the prior holds.

A single text may need more than its like: so each node has an allowance, which grows with what its texts should
take and pays for what they take beyond that. In sum no node is paid more than the median and a few percent, and none
spends what another one of its owner has saved. A claim that is far above both is marked, and cut to less than the
median.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.text_units import CompletionUnits, PromptUnits, Vector

OWNERS_MIN = 3
"""Of fewer votes a single liar could be the median."""
EVIDENCE_ANSWERS_MIN, EVIDENCE_TOKENS_MIN = 16, 150
"""What an owner has to have served before its vote counts."""
MARKED_SHARE_MAX = 0.05
"""Of its answers: an owner caught more often has no vote, or one liar after the other would become the median."""
ANSWERS_REMEMBERED = 1_000
"""An answer's weight falls by this part with each that follows."""
PRIOR_SPREAD = 0.5
"""How far tokenizers lie from the prior, as a part of it: what a claim weighs against it follows from that."""
SOLVED_EVERY_ANSWERS = 16
SURE_ANSWERS_MIN, LEARNED_EVERY_ANSWERS = 256, 4
"""After so many answers of an owner, one of four is learned from."""
TOLERANCE, TOLERANCE_MAX = 0.08, 0.1
"""What an owner may claim beyond the median of all, and the most that it may where owners differ among themselves: the
median deviation is added. At 3 % an honest server whose answers were the oddest of four lost 2 % of its pay."""
PRIOR_TOLERANCE = 0.1
PRIOR_GENEROSITY = 1.3
"""How far the prior lies above what common tokenizers take: a liar is paid without it."""
FLOOR_OF_PRIOR, CEILING_OF_PRIOR = 0.1, 1.5
"""What the median may come to: no tokenizer in use is so thrifty, or so wasteful."""
ALLOWANCE_TOKENS_MAX, PRIOR_ALLOWANCE_TOKENS_MAX = 4_096.0, 64.0
"""Of a node; nothing at first. It only shifts pay from one answer to another. The prior is generous enough by itself:
where it holds, an honest node would save up a third of all that it writes, for lies."""
NODES_PER_OWNER_MAX = 64
"""Whose allowances are remembered, of one owner and model."""
FAR_FACTOR, FAR_TOKENS = 1.1, 12
"""A claim within this of what is allowed is cut without a mark: a last token without text, a stop text."""
CAUGHT_SHARE = 0.8
"""Of what a text should take, for whoever claims far more: the estimate for a text of a few words may be a token too
high, and a lie must not gain by it."""
OWNERS_PER_MODEL_MAX, OWNERS_MAX = 256, 2_048
"""What is remembered: some 4 KB for each owner of nodes of a model. Who served least recently is forgotten."""


class Side(enum.Enum):
    """What was read, and what was written. Each has its own rates."""

    PROMPT = "prompt"
    COMPLETION = "completion"


_TEXT = (0.65, 0.11, 0.8, 0.15, 0.6, 0.36, 1.5, 2.0, 1.15, 2.4, 3.1, 1.15, 0.95)
"""Tokens for each of `TextUnits`: what the tokenizer of SmolLM2 takes, and up to a quarter more. Its vocabulary of
49,152 is small and mostly English, so that hardly any other takes more."""
PRIORS = {
    # Chat templates add a system prompt of their own, marks around each message, and instructions for tools.
    Side.PROMPT: np.array([40.0, *_TEXT, 250.0, 8.0, 1_500.0, 1.0]),
    # An end-of-text token and marks of the format; around a tool call, the syntax that the server has parsed.
    Side.COMPLETION: np.array([4.0, *_TEXT, 24.0, 0.0, 0.0, 0.0]),
}
_SIZE = len(PRIORS[Side.PROMPT])
_DECAY = 1.0 - 1.0 / ANSWERS_REMEMBERED


class Expectation(NamedTuple):
    """What a text should take."""

    tokens: float
    tolerance: float
    typical: float
    """What common tokenizers take for it."""
    text: float
    """What of that is surely its text, and no marks around it that no client can read."""
    allowance_max: float = ALLOWANCE_TOKENS_MAX

    @property
    def least(self) -> int:
        """What is paid to who claims far more, or does not count."""
        return int(CAUGHT_SHARE * self.text)


class PaidTokens(NamedTuple):
    tokens: int
    is_marked: bool
    """Whether the claim was far above what the text should take."""


class Claimant(NamedTuple):
    """Who claims to have read or written something."""

    owner: AccountId
    node: NodeId


class OwnerRates:
    """One owner's vote on one model, and the allowances of its nodes."""

    __slots__ = (
        "_gram",
        "_moments",
        "_prior",
        "_unsolved",
        "allowances",
        "answers",
        "marks",
        "rates",
        "tokens",
    )

    def __init__(self, prior: Vector) -> None:
        self._prior = prior
        self._gram = np.zeros((_SIZE, _SIZE))
        self._moments = np.zeros(_SIZE)
        self._unsolved = 0
        self.rates = prior
        self.allowances: dict[NodeId, float] = {}
        self.answers = 0
        self.marks = 0.0
        """Claims that were far too high; they fade as answers do."""
        self.tokens = 0.0

    @property
    def has_vote(self) -> bool:
        has_served = self.answers >= EVIDENCE_ANSWERS_MIN and self.tokens >= EVIDENCE_TOKENS_MIN
        return has_served and self.marks <= MARKED_SHARE_MAX * min(self.answers, ANSWERS_REMEMBERED)

    def learn(self, units: Vector, claimed: float) -> bool:
        """Add one claim, which is as uncertain as it is long. Returns whether the vote has changed."""
        self.answers += 1
        if self.answers > SURE_ANSWERS_MIN and self.answers % LEARNED_EVERY_ANSWERS:
            return False
        usual = float(self._prior @ units)
        claimed = min(claimed, usual * 4.0 + 64.0)
        weight = 1.0 / max(8.0, usual)
        self._gram *= _DECAY
        self._moments *= _DECAY
        self._gram += np.multiply.outer(units * weight, units)
        self._moments += units * (weight * claimed)
        self.tokens += claimed
        self._unsolved += 1
        if self._unsolved < SOLVED_EVERY_ANSWERS:
            return False
        self._unsolved = 0
        ridge = 1.0 / np.square(PRIOR_SPREAD * np.maximum(self._prior, 0.01))
        solved = np.linalg.solve(self._gram + np.diag(ridge), self._moments + ridge * self._prior)
        self.rates = np.maximum(solved, 0.0)
        return True

    def pay(self, node: NodeId, claimed: int, expected: Expectation) -> PaidTokens:
        """Pay a claim as far as text and the node's allowance go."""
        due = expected.tokens * (1.0 + expected.tolerance)
        allowed = due + min(self.allowances.get(node, 0.0), expected.allowance_max)
        self.marks *= _DECAY
        if claimed > allowed * FAR_FACTOR + FAR_TOKENS:
            self.marks += 1.0
            return PaidTokens(min(claimed, expected.least), is_marked=True)
        paid = min(claimed, int(allowed))
        self.allowances[node] = min(allowed - paid, expected.allowance_max)
        if len(self.allowances) > NODES_PER_OWNER_MAX:
            del self.allowances[next(iter(self.allowances))]
        return PaidTokens(paid, is_marked=False)


class ModelRates:
    """What the owners of a model's nodes say about it."""

    def __init__(self, side: Side) -> None:
        self.prior = PRIORS[side]
        self.owners: OrderedDict[AccountId, OwnerRates] = OrderedDict()
        self._votes: npt.NDArray[np.float64] | None = None
        """A row for each owner with a vote; None if that has changed."""

    def owner(self, owner: AccountId) -> OwnerRates:
        found = self.owners.get(owner)
        if found is None:
            found = self.owners[owner] = OwnerRates(self.prior)
            if len(self.owners) > OWNERS_PER_MODEL_MAX:
                self.forget_one()
        self.owners.move_to_end(owner)
        return found

    def forget_one(self) -> None:
        self.owners.popitem(last=False)
        self._votes = None

    def learn(self, owner: AccountId, units: Vector, claimed: int) -> None:
        if self.owner(owner).learn(units, claimed):
            self._votes = None

    def pay(self, by: Claimant, units: Vector, claimed: int) -> PaidTokens:
        voter = self.owner(by.owner)
        had_vote = voter.has_vote
        paid = voter.pay(by.node, claimed, self.expect(units))
        if voter.has_vote is not had_vote:
            self._votes = None
        return paid

    def expect(self, units: Vector) -> Expectation:
        prior = float(self.prior @ units)
        votes = self._votes
        if votes is None:
            rows = [owner.rates for owner in self.owners.values() if owner.has_vote]
            votes = self._votes = np.array(rows).reshape(len(rows), _SIZE)
        if len(votes) < OWNERS_MIN:
            typical, marks = prior / PRIOR_GENEROSITY, float(self.prior[0]) / PRIOR_GENEROSITY
            return Expectation(prior, PRIOR_TOLERANCE, typical, typical - marks, PRIOR_ALLOWANCE_TOKENS_MAX)
        said = (votes @ units).tolist()
        median = _lower_median(said)
        spread = _lower_median([abs(each - median) for each in said]) / max(median, 1.0)
        tokens = min(max(median, FLOOR_OF_PRIOR * prior), CEILING_OF_PRIOR * prior)
        text = _lower_median((votes[:, 1:] @ units[1:]).tolist())
        return Expectation(tokens, min(TOLERANCE + spread, TOLERANCE_MAX), typical=tokens, text=min(text, tokens))


def _lower_median(values: Sequence[float]) -> float:
    """Of an even number the lower one: in the payer's favour."""
    return sorted(values)[(len(values) - 1) // 2]


class TokenRates:
    """The rates of all models of a gateway process."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[str, Side], ModelRates] = OrderedDict()

    def expect(self, model: str, units: PromptUnits | CompletionUnits) -> Expectation:
        side = _side(units)
        known = self._models.get((model, side))
        return (known or ModelRates(side)).expect(units.vector())

    def pay(
        self, model: str, by: Claimant, units: PromptUnits | CompletionUnits, claimed: int, *, is_whole: bool
    ) -> PaidTokens:
        """Pay a claim, and learn from it if it is the server's own count of a whole text (`is_whole`)."""
        side, vector = _side(units), units.vector()
        rates = self._models.get((model, side))
        if rates is None:
            rates = self._models[model, side] = ModelRates(side)
        self._models.move_to_end((model, side))
        if by.owner not in rates.owners:
            self._make_room()
        paid = rates.pay(by, vector, claimed)
        if is_whole:
            rates.learn(by.owner, vector, claimed)
        return paid

    def _make_room(self) -> None:
        """Forget the owner that served least recently of the model that was asked for least recently."""
        if sum(len(rates.owners) for rates in self._models.values()) < OWNERS_MAX:
            return
        oldest = next(key for key, rates in self._models.items() if rates.owners)
        self._models[oldest].forget_one()
        if not self._models[oldest].owners:
            del self._models[oldest]


def _side(units: PromptUnits | CompletionUnits) -> Side:
    return Side.PROMPT if isinstance(units, PromptUnits) else Side.COMPLETION


def most_prompt_tokens(units: PromptUnits) -> int:
    """What a prompt can be billed for at most, before anything is known of its model."""
    tokens = float(PRIORS[Side.PROMPT] @ units.vector())
    return int(tokens * (1.0 + PRIOR_TOLERANCE)) + FAR_TOKENS
