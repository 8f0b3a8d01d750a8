"""An era computed again from what was published: the same amounts, the same hash, the same Merkle root. Pure.

A reward root holds what every address got in all eras, so it follows from the era's inputs and the leaves of the batch
before, which are published as well and have a root of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.protocol.api.rewards import EraInputs, EraRewards
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.trust.rewards.era import payments_of, reward_era
from sparewatt.trust.rewards.rule import inputs_hash


@dataclass(frozen=True, slots=True)
class EraReplay:
    rewards: EraRewards
    inputs_hash: bytes
    root_before: bytes | None
    """Of the leaves before the era; None if there were none."""
    root: bytes | None
    """None if the era gave nothing to anybody."""


def replay_era(inputs: EraInputs, before: Sequence[PayoutEntry]) -> EraReplay:
    """`before`: the leaves of the batch before the era's, ascending by address. Raises ValueError if they are not."""
    rewards = reward_era(inputs)
    payments = payments_of(rewards)
    entries = {entry.account: entry for entry in before}
    for address, micro in payments.items():
        earned = entries[address].earned if address in entries else 0
        entries[address] = PayoutEntry(address, earned + micro, 0)
    after = [entries[address] for address in sorted(entries)]
    return EraReplay(
        rewards=rewards,
        inputs_hash=inputs_hash(inputs),
        root_before=settlement_tree(before).root if before else None,
        root=settlement_tree(after).root if payments else None,
    )
