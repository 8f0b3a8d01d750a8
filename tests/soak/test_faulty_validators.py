"""Real validators, one with another fault in every order: each is matched, and only the liar is ever accused.

Run by `make soak`; writes docs/measurements/faulty-validators.md. FAULTY_ORDERS changes the count.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparewatt.localnet.anvil_binary import find_anvil
from tests.integration.validator.conftest import VALIDATORS, open_network
from tests.integration.validator.faulty_validator import Fault
from tests.integration.validator.test_faulty_validators import (
    DEATHS,
    LIES,
    assert_signed_once,
    back,
    challenged,
    decided_with,
    has_died,
)

ORDERS = int(os.environ.get("FAULTY_ORDERS", "60"))
"""A few seconds each; a stand-in's bond is enough for 66."""
SEED = 21
ROUNDS_SHOWN = 3
ROUND_MS = 4_000
"""Of round 0: long enough for a machine that does other work as well."""
REPORT = Path(__file__).resolve().parents[2] / "docs" / "measurements" / "faulty-validators.md"

TEXT = """# One faulty validator of four

Made by `make soak` (tests/soak/test_faulty_validators.py) on {cores} cores, Python {python}, with a load average of
{load:.1f} at the end. A local chain, two bidders, four validators as real processes. Round 0 takes {round_s:.0f} s
instead of 0.3 s, so that no round is lost by the machine's other work. The faulty validator leads the first round of
every order and has another fault in each, by chance. After each order a stranger who knows the chain alone collects
the records and asks the contract about every fault that they prove.

| measure | value |
| --- | ---: |
| orders | {orders} |
| matched with the right provider | {right} |
| attempts with two accepted certificates | {twice} |
| faults proven of a liar | {proven} |
| orders of a liar without a proof: another leader was faster | {unproven} |
| faults proven of an honest validator, or of one that was slow, cut off or killed | {innocent} |
| seconds | {seconds:,.0f} |

| fault of the leader | orders | certified in round 0, 1, 2 or later | proven |
| --- | ---: | ---: | ---: |
{rows}

A lie costs its round. So does a leader that is slow, cut off, or killed before all have its proposal.
"""


@dataclass
class Tally:
    rounds: Counter[tuple[Fault | None, int]] = field(default_factory=Counter)
    proven: Counter[Fault | None] = field(default_factory=Counter)
    """Orders in which a fault of the culprit is proven."""
    innocent: int = 0

    def orders(self, fault: Fault | None) -> int:
        return sum(count for (each, _), count in self.rounds.items() if each is fault)

    def row(self, fault: Fault | None) -> str:
        rounds = ", ".join(str(self.rounds[fault, number]) for number in range(ROUNDS_SHOWN))
        return f"| {fault.value if fault else 'none'} | {self.orders(fault)} | {rounds} | {self.proven[fault]} |"

    @property
    def unproven(self) -> int:
        return sum(self.orders(fault) - self.proven[fault] for fault in LIES)


@pytest.mark.asyncio
async def test_every_order_is_matched_whatever_one_validator_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUND_MS", str(ROUND_MS))
    binary = await find_anvil(notify=print)
    rng, tally, began_s = random.Random(SEED), Tally(), time.monotonic()
    async with open_network(tmp_path, binary, options=("--no-challenge",), faulty=VALIDATORS - 1) as network:
        culprit = network.validators[-1]
        liar = (await network.status(VALIDATORS - 1)).vote_key
        for _ in range(ORDERS):
            fault = rng.choice([None, *Fault])
            order = await decided_with(network, culprit, fault)
            assert order.certificate is not None
            tally.rounds[fault, min(order.certificate.record.round, ROUNDS_SHOWN - 1)] += 1
            if fault in DEATHS:
                await has_died(culprit)
            culprit.fault_file.unlink(missing_ok=True)
            await back(network, culprit)
            proofs = (await challenged(network, order.order_id)).proofs
            guilty = {each for proof in proofs for each in proof.fault.culprits}
            tally.proven[fault] += liar in guilty
            tally.innocent += bool(guilty - {liar}) or (liar in guilty and fault not in LIES)
            assert_signed_once(culprit)
        certificates = await network.certificates()
    twice = sum(count > 1 for count in certificates.values())
    REPORT.write_text(
        TEXT.format(
            cores=os.cpu_count(),
            python=platform.python_version(),
            load=os.getloadavg()[0],
            round_s=ROUND_MS / 1000,
            orders=ORDERS,
            right=sum(tally.rounds.values()),
            twice=twice,
            proven=sum(tally.proven.values()),
            unproven=tally.unproven,
            innocent=tally.innocent,
            seconds=time.monotonic() - began_s,
            rows="\n".join(tally.row(fault) for fault in (None, *Fault)),
        )
    )
    assert (tally.innocent, twice) == (0, 0)
    assert not [number for _, number in tally.rounds if number > 1], "at most one round later"
