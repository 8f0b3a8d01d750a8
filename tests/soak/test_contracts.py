"""The contracts over long counts: 200,000 random steps, 10,000 auctions and settlements beside Python, every bit.

Run by `make soak`; writes docs/measurements/contracts.md. CONTRACT_STEPS, CONTRACT_CASES and CONTRACT_SEED change the
counts and the chance.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from sparewatt.chain.contracts import shipped_artifacts
from sparewatt.protocol.signing import keccak256
from tests.evm.cases import (
    compare_streams,
    open_order,
    random_case,
    require_false,
    require_forged_is_punished,
    require_honest_is_safe,
    require_same_judgement,
)
from tests.evm.machine import deploy, rolled_back
from tests.evm.market_walk import ACTS, MarketWalk, walk_market
from tests.evm.test_twins import mutated_calls, require_refused
from tests.evm.twin_cases import all_twins
from tests.evm.walks import WALKS, Walk, deployed_network

STEPS = int(os.environ.get("CONTRACT_STEPS", "200000"))
CASES = int(os.environ.get("CONTRACT_CASES", "10000"))
SEED = int(os.environ.get("CONTRACT_SEED", "1"))
STEPS_PER_WALK = 100
ACTS_ALL_IN = 20_000
"""Steps of the market's walk in which every kind of attacker must have acted."""
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "contracts.md"

HEAD = """# Contracts over long counts

Made by `make soak` (tests/soak/test_contracts.py); a row is as of its last full run. The last column names the bytecode
that it ran on: the first digits of its hash over all contracts. Seconds depend on what else the machine did.

| what | count | failures | seconds | contracts |
| --- | ---: | ---: | ---: | --- |
"""


def fingerprint() -> str:
    artifacts = shipped_artifacts()
    return keccak256(b"".join(artifacts[name].bytecode.encode() for name in sorted(artifacts))).hex()[:8]


def counted(what: str, count: int, work: Callable[[], None]) -> None:
    """Do it, and write its row into the report."""
    started = time.monotonic()
    work()
    old = REPORT.read_text().splitlines() if REPORT.exists() else []
    rows = {line.split("|")[1].strip(): line for line in old if line.startswith("| ") and "---" not in line}
    rows.pop("what", None)
    rows[what] = f"| {what} | {count:,} | 0 | {time.monotonic() - started:.0f} | {fingerprint()} |"
    REPORT.write_text(HEAD + "".join(f"{rows[name]}\n" for name in sorted(rows)))


def test_no_attacker_of_the_market_gains_and_no_honest_party_loses() -> None:
    """Half of all steps: several orders, bonds, pauses and claims at once, with honest parties among attackers."""
    steps = STEPS // 2
    counted(f"steps of {MarketWalk.__name__}", steps, lambda: check_all_acts(walk_market(seed=SEED, steps=steps)))


def check_all_acts(counts: Counter[str]) -> None:
    never = {act.__name__ for act in ACTS} - set(counts)
    assert not never or counts.total() < ACTS_ALL_IN, f"never came to act: {never}"


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
def test_no_random_walk_breaks_an_invariant(walk: type[Walk]) -> None:
    deployed_network()
    examples = -(-STEPS // 2 // len(WALKS) // STEPS_PER_WALK)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS_PER_WALK,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    counted(
        f"steps of {walk.__name__}, at most",
        examples * STEPS_PER_WALK,
        lambda: run_state_machine_as_test(seed(SEED)(walk), settings=chosen),
    )


def test_python_and_contracts_judge_every_auction_alike() -> None:
    rng = random.Random(SEED)
    with rolled_back():
        window = deploy("rule_window")

        def work() -> None:
            for _ in range(CASES):
                case = random_case(rng, rng.randbytes(32))
                require_same_judgement(window, case)
                require_false(window, rng, case)

        counted("random (policy, bids, snapshot), Python = contract", CASES, work)


def test_no_honest_vote_is_slashed_and_every_bent_one_is() -> None:
    rng = random.Random(SEED)
    with rolled_back():
        order = open_order(deployed_network())

        def work() -> None:
            for _ in range(CASES):
                require_honest_is_safe(rng, order)
                require_forged_is_punished(rng, order)

        counted("honest votes slandered in vain, bent ones punished", CASES, work)


def test_python_and_the_escrow_agree_on_every_settlement() -> None:
    network = deployed_network()
    work = lambda: compare_streams(network, random.Random(SEED), settlements=CASES)  # noqa: E731
    counted("random settlements, Python = escrow", CASES, work)


def test_no_bit_of_a_signed_message_can_be_changed() -> None:
    with rolled_back():
        twins = all_twins(deployed_network())
        calls = [(twin, mutated_calls(twin)) for twin in twins]

        def work() -> None:
            for twin, mutants in calls:
                require_refused(twin, mutants)

        counted("twins with one bit changed, refused", sum(len(mutants) for _, mutants in calls), work)
