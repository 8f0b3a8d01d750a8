"""The usual price of a model, from what its owners ask. What a request without `max_price` may cost follows. Pure.

Prices are strangers' words, so none of them decides alone. Each owner has one vote, at the median of his nodes' prices,
and its weight is what he delivered in the last days as the books counted it; the usual price is the weighted median. A
price far above it, or above the network's ceiling, has no vote. All amounts are nano-dollars per million tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparewatt.core.ids import AccountId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.ledger.model import TokenPrice

CAP_TIMES = 4
"""A request that names no price goes to no node that asks more than this many times the usual price."""
BAND_TIMES = 10
"""A price beyond this many times the usual one is no opinion about it: it has no vote."""
CAP_FLOOR = TokenPrice(Nano(NANO_PER_USD // 5), Nano(NANO_PER_USD))
"""A price up to this is never too high: who undercuts all others, or asks nothing, shuts nobody out. A machine at
$0.10 an hour asks so much if it writes 28 tokens a second and reads 140."""
VOTE_TOKENS_MAX = 100_000
"""Tokens that make a whole vote: who sells more, to strangers or to himself, has no more to say."""
VOTE_SHARE_MIN = 0.01
"""Who delivered less than this part of the largest vote has none: a few tokens do not outweigh all that others sold."""


class PriceVote(NamedTuple):
    price: int
    tokens: int
    """Delivered, as far as they count."""


Asks = Mapping[AccountId, Sequence[int]]
"""By owner, the prices of his nodes, in one direction."""


class PriceBounds(NamedTuple):
    """In one direction."""

    floor: int
    ceiling: int
    """The most that a request without a `max_price` pays, whatever nodes ask."""

    def cap(self, usual: int | None) -> int:
        """The most that such a request pays at this usual price. As long as none is known, that is the ceiling."""
        return self.ceiling if usual is None else min(self.ceiling, max(self.floor, CAP_TIMES * usual))

    @property
    def least(self) -> int:
        """The least that a cap can be."""
        return min(self.floor, self.ceiling)

    def band(self, usual: int) -> int:
        """Prices above it have no vote."""
        return min(self.ceiling, max(self.floor, BAND_TIMES * usual))


def usual_price(asks: Asks, delivered: Mapping[AccountId, int], bounds: PriceBounds) -> int | None:
    """None if nobody asks for a price within the ceiling. `delivered`: tokens of this model, by owner."""
    first = _median(_votes(asks, delivered, most=bounds.ceiling))
    return None if first is None else _median(_votes(asks, delivered, most=bounds.band(first)))


def _votes(asks: Asks, delivered: Mapping[AccountId, int], *, most: int) -> list[PriceVote]:
    """One for each owner with a price within the bound, the cheapest first."""
    votes = []
    for owner, prices in asks.items():
        within = sorted(price for price in prices if price <= most)
        if within:
            votes.append(PriceVote(within[(len(within) - 1) // 2], min(VOTE_TOKENS_MAX, delivered.get(owner, 0))))
    return sorted(votes)


def _median(votes: Sequence[PriceVote]) -> int | None:
    """Weighted by tokens delivered. Without any, all votes are equal and the upper of two medians counts.

    A cap that is too high may cost a payer cents until the first answer; one that is too low leaves a model unusable.
    """
    if not votes:
        return None
    largest = max(vote.tokens for vote in votes)
    if not largest:
        return votes[len(votes) // 2].price
    voting = [vote for vote in votes if vote.tokens >= VOTE_SHARE_MIN * largest]
    weights = bounded_weights([vote.tokens for vote in voting])
    below, half = 0, sum(weights)
    for at, vote in enumerate(voting):
        below += 2 * weights[at]
        if below > half or (below == half and not _has_more(voting[at + 1 :], voting[: at + 1])):
            return vote.price
    return voting[-1].price


def bounded_weights(tokens: Sequence[int]) -> list[int]:
    """Twice the tokens, cut so that nobody has more than a third of the sum; fewer than three are equal."""
    if len(tokens) < 3:
        return [1] * len(tokens)
    largest, second, *_ = sorted(tokens, reverse=True)
    rest = sum(tokens) - largest
    most = rest if second * 2 <= rest else 2 * (rest - second)
    return [min(2 * count, most) for count in tokens]


def _has_more(votes: Sequence[PriceVote], others: Sequence[PriceVote]) -> bool:
    return sum(vote.tokens for vote in votes) > sum(vote.tokens for vote in others)
