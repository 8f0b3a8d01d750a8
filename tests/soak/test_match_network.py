"""The match of 10,000 orders over a simulated network, and every planted bug found from the first order on.

Run by `make soak`; writes docs/measurements/match-network.md. MATCH_ORDERS and MATCH_SEED change count and chance.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.market_network.bugs import BUGS
from tests.market_network.happenings import EVERYTHING, Happenings, rows_of
from tests.market_network.invariants import violations
from tests.market_network.memory import remembered
from tests.market_network.planted import Bug, planted
from tests.market_network.scenario import Trick, scenario_of
from tests.market_network.world import World, simulate

ORDERS = int(os.environ.get("MATCH_ORDERS", "10000"))
SEED = int(os.environ.get("MATCH_SEED", "1000000"))
RUNS_PER_BUG = 500
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "match-network.md"

TEXT = """# The match over a bad network

Made by `make soak` (tests/soak/test_match_network.py): the product's state machines with simulated clocks, disks and
network; half of the messages may be lost, validators crash and lie, bidders cheat.

| what | value |
| --- | ---: |
| orders | {orders:,} |
| first seed | {seed:,} |
| orders that broke an invariant | {broken_count:,} |
| certified in round 0, 1, 2, 3 or later | {rounds} |
| honest bids in the certified tree | {admitted:.1%} |
| of these on a calm network | {admitted_calm:.1%} |
| lookup to a final certificate, simulated, median | {median_ms:,} ms |
| seconds of one core | {seconds:,.0f} |
{broken}
## What happened in them

| what | how often |
| --- | ---: |
{happened}
"""


class Tally:
    def __init__(self) -> None:
        self.broken: list[str] = []
        self.rounds: Counter[int] = Counter()
        self.bids: Counter[tuple[bool, bool]] = Counter()
        """Honest bids, by whether the network was calm and whether they are in the tree."""
        self.ends_ms: list[int] = []
        self.happened: Happenings = Counter()

    def add(self, world: World) -> None:
        accepted = world.chain.accepted
        assert accepted is not None
        self.rounds[min(accepted.round, 3)] += 1
        self.ends_ms.append(world.timeline.now_ms)
        validator = next(each for each in world.validators if each.is_honest and each.last_record is not None)
        assert validator.last_record is not None
        leaves = {leaf.provider for each in validator.last_record.proposals if each.task == accepted.task
                  for leaf in each.leaves}  # fmt: skip
        for bidder in world.bidders:
            if bidder.trick is Trick.NONE and leaves:
                self.bids[world.scenario.is_calm, bidder.address in leaves] += 1

    def share(self, *, calm: tuple[bool, ...]) -> float:
        there = sum(self.bids[each, True] for each in calm)
        return there / max(1, there + sum(self.bids[each, False] for each in calm))


def test_no_order_breaks_an_invariant() -> None:
    started, tally = time.process_time(), Tally()
    for seed in range(SEED, SEED + ORDERS):
        with remembered():
            world = simulate(scenario_of(seed))
            tally.happened += world.watch.happened
            if found := violations(world):
                tally.broken.append(f"seed {seed}: {found[0]}")
            else:
                tally.add(world)
    REPORT.write_text(
        TEXT.format(
            orders=ORDERS,
            seed=SEED,
            broken_count=len(tally.broken),
            broken="".join(f"\n- {each}" for each in tally.broken) + "\n" * bool(tally.broken),
            rounds=", ".join(f"{tally.rounds[each]:,}" for each in range(4)),
            admitted=tally.share(calm=(True, False)),
            admitted_calm=tally.share(calm=(True,)),
            median_ms=sorted(tally.ends_ms)[len(tally.ends_ms) // 2] if tally.ends_ms else 0,
            seconds=time.process_time() - started,
            happened="\n".join(f"| {what} | {count:,} |" for what, count in rows_of(tally.happened)),
        )
    )
    assert tally.broken == []
    assert set(EVERYTHING) <= tally.happened.keys()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_from_the_first_order_on(bug: Bug, tmp_path: Path) -> None:
    with planted(bug, tmp_path) as core, remembered():
        for seed in range(SEED, SEED + RUNS_PER_BUG):
            if any(each.startswith(bug.found_as) for each in violations(simulate(scenario_of(seed), core=core))):
                return
    pytest.fail(f"{RUNS_PER_BUG} orders did not show it")
