"""What one simulated match is made of, drawn from a seed: who takes part, who lies, and what the network does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from enum import Enum

STABLE_MS = 6_000
"""From here on nothing is lost, everybody is up and no partition holds."""
ATTEMPT_MS = 60_000


class Lie(Enum):
    """What a faulty validator does."""

    SILENT = "silent"
    SLOW = "slow"
    EQUIVOCATING = "equivocating"
    OMITTING = "omitting"
    WRONG_RESULT = "wrong result"
    SPLITTING = "two lists, then silence"


class Trick(Enum):
    """What a bidder does that is not honest, or not able."""

    NONE = "honest"
    DECLINES = "declines"
    LATE = "late"
    PARTIAL = "commits to some validators"
    DOUBLE = "two commits"
    UNREVEALED = "unrevealed"
    OVER_CAP = "over the cap"
    FORGED = "forged"
    REPLAYED = "replayed"
    UNBONDED = "unbonded"
    COPYCAT = "commits after a reveal"
    STRANGER = "not in the snapshot"
    THIN = "terms too small"


@dataclass(frozen=True)
class Crash:
    validator: int
    at_ms: int
    down_ms: int
    on_record: bool
    """At the first record after `at_ms`: it is stored, and nothing of its step is sent."""


@dataclass(frozen=True)
class Restart:
    """A bidder's node goes down, and begins anew with the bid and commit that it has stored."""

    bidder: int
    at_ms: int
    down_ms: int


@dataclass(frozen=True)
class Partition:
    away: tuple[int, ...]
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Scenario:
    seed: int
    weights: tuple[int, ...] = (1, 1, 1, 1)
    lies: dict[int, Lie] = field(default_factory=dict)
    tricks: tuple[Trick, ...] = (Trick.NONE, Trick.NONE)
    prices: tuple[int, ...] = (2_000_000, 1_000_000)
    loss: float = 0.0
    delay_ms: tuple[int, int] = (1, 10)
    duplicates: float = 0.0
    lookups_ms: tuple[int, ...] = (0, 0, 0, 0)
    """When each validator sees the lookup."""
    drifts: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    offsets_ms: tuple[int, ...] = (0, 0, 0, 0)
    crashes: tuple[Crash, ...] = ()
    restarts: tuple[Restart, ...] = ()
    leader_stops_at: int | None = None
    """The first leader goes down for good as soon as it has stored this many records."""
    partition: Partition | None = None
    lookup_reorg_ms: tuple[int, int] | None = None
    """When the lookup's block is gone, and when it is back."""
    reorg_changes_snapshot: bool = False
    """The order stands on another snapshot when its block is back, and what was voted before is of no use."""
    acceptance_reorgs: int = 0
    """How many accepted certificates a reorganisation takes back."""
    liar_leads: bool = False
    """A faulty validator, if there is one, leads the first round."""
    ties: bool = False
    """Profiles and prices are alike."""
    bidders_only: bool = False
    """Nobody is in the snapshot but who bids or declines, so that everybody has answered soon."""
    as_json: bool = False
    """Messages are written and read again on their way."""

    @property
    def is_calm(self) -> bool:
        """Nothing that could keep an honest bid out."""
        breaks = self.crashes or self.restarts or self.partition or self.lookup_reorg_ms or self.leader_stops_at
        return not (self.loss or breaks) and max(self.lookups_ms) <= 50 and self.delay_ms[1] <= 20


WEIGHTS = ((1, 1, 1, 1), (30, 25, 25, 20), (40, 30, 20, 10), (1,) * 7, (1, 1, 1))


def scenario_of(seed: int) -> Scenario:
    """The same seed is the same scenario, for ever. Some are led to what chance alone would seldom bring together."""
    rng = random.Random(f"market network {seed}")
    drawn = _drawn(rng, seed)
    if seed % 10 == 3:
        lookups = tuple(0 if i == 0 else 300 for i in range(len(drawn.weights)))
        return replace(
            _with(drawn, Trick.NONE, Trick.COPYCAT, Trick.NONE), lookups_ms=lookups, delay_ms=(1, 40), loss=0.0
        )
    if seed % 10 == 7:
        four = replace(drawn, weights=WEIGHTS[0], drifts=(1.0,) * 4, offsets_ms=(0,) * 4, lookups_ms=(0,) * 4)
        lies, calm = {rng.randrange(4): Lie.SPLITTING}, _with(four, Trick.PARTIAL, Trick.NONE, Trick.PARTIAL)
        return replace(calm, lies=lies, delay_ms=(1, 40), loss=0.0)
    return drawn


def _with(scenario: Scenario, *tricks: Trick) -> Scenario:
    """These bidders, and nothing that breaks."""
    prices = tuple(1_000_000 + 500_000 * i for i in range(len(tricks)))
    return replace(
        scenario, tricks=tricks, prices=prices, crashes=(), restarts=(), partition=None, lookup_reorg_ms=None
    )


def _drawn(rng: random.Random, seed: int) -> Scenario:
    weights = rng.choices(WEIGHTS, (4, 3, 3, 1, 1))[0]
    n = len(weights)
    lies = _lies(rng, weights)
    tricks = tuple(_tricks(rng))
    calm = rng.random() < 0.25
    ties = rng.random() < 0.25
    slowest = rng.choice((10, 20) if calm else (20, 60, 150, 400))
    late = rng.randrange(n)
    return Scenario(
        seed=seed,
        weights=weights,
        lies=lies,
        tricks=tricks,
        prices=tuple(1_000_000 if ties else rng.randrange(500_000, 3_000_000) for _ in tricks),
        liar_leads=rng.random() < 0.5,
        ties=ties,
        bidders_only=rng.random() < 0.5,
        loss=0.0 if calm else rng.choice((0.0, 0.1, 0.3, 0.5)),
        delay_ms=(1, slowest),
        duplicates=rng.choice((0.0, 0.1, 0.3)),
        lookups_ms=tuple(
            rng.randrange(50) + (rng.randrange(1_500) if not calm and i == late and rng.random() < 0.4 else 0)
            for i in range(n)
        ),
        drifts=tuple(rng.uniform(0.95, 1.05) for _ in range(n)),
        offsets_ms=tuple(rng.randrange(10**9) for _ in range(n)),
        crashes=() if calm else tuple(_crashes(rng, n)),
        restarts=() if calm else tuple(_restarts(random.Random(f"restarts {seed}"), len(tricks))),
        partition=None if calm or rng.random() < 0.7 else _partition(rng, n),
        lookup_reorg_ms=None if calm or rng.random() < 0.85 else _reorg(rng),
        reorg_changes_snapshot=rng.random() < 0.5,
        acceptance_reorgs=rng.choice((0, 0, 0, 1, 2)),
        as_json=rng.random() < 0.03,
    )


def _lies(rng: random.Random, weights: tuple[int, ...]) -> dict[int, Lie]:
    """Faulty stake stays below a third."""
    lies: dict[int, Lie] = {}
    for _ in range(rng.choice((0, 1, 1, 2))):
        liar = rng.randrange(len(weights))
        if 3 * sum(weights[i] for i in {*lies, liar}) < sum(weights):
            lies[liar] = rng.choice(list(Lie))
    return lies


def _tricks(rng: random.Random) -> list[Trick]:
    honest = [rng.choice((Trick.NONE, Trick.NONE, Trick.NONE, Trick.DECLINES)) for _ in range(rng.randrange(5))]
    hostile = [rng.choice(list(Trick)) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    tricks = honest + hostile
    rng.shuffle(tricks)
    return tricks


def _crashes(rng: random.Random, n: int) -> list[Crash]:
    """At any time, or when lists and votes are signed."""
    return [
        Crash(
            rng.randrange(n),
            rng.choice((rng.randrange(STABLE_MS - 2_000), rng.randrange(600, 1_800))),
            rng.choice((rng.randrange(20, 200), rng.randrange(20, 1_500))),
            rng.random() < 0.5,
        )
        for _ in range(rng.choice((0, 0, 1, 2, 4)))
    ]


def _restarts(rng: random.Random, bidders: int) -> list[Restart]:
    """Of some nodes, before, between and after their commit and their reveal."""
    return [
        Restart(bidder, rng.randrange(100, 1_500), rng.randrange(20, 600))
        for bidder in range(bidders)
        if rng.random() < 0.1
    ]


def _partition(rng: random.Random, n: int) -> Partition:
    start = rng.randrange(1_500)
    away = tuple(rng.sample(range(n), rng.randint(1, n - 1)))
    return Partition(away, start, start + rng.randrange(200, 3_000))


def _reorg(rng: random.Random) -> tuple[int, int]:
    gone = rng.randrange(100, 2_000)
    return gone, gone + rng.randrange(50, 800)
