"""An era as the API publishes it, for the commands that show and replay it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparewatt.core.money import format_usd
from sparewatt.protocol.api.rewards import EraInputs
from sparewatt.protocol.contracts.payouts import PayoutEntry
from sparewatt.trust.rewards.replay import replay_era


def published_era(inputs: EraInputs, *, epoch: int = 1, before: Sequence[PayoutEntry] = ()) -> dict[str, Any]:
    replay = replay_era(inputs, before)
    rewards = replay.rewards
    return {
        "era": inputs.era,
        "since": inputs.since,
        "until": inputs.until,
        "pool_micro": rewards.pool_micro,
        "pool_usd": format_usd(rewards.pool_micro * 1_000),
        "given_micro": rewards.given_micro,
        "given_usd": format_usd(rewards.given_micro * 1_000),
        "carried_nano": rewards.carried_nano,
        "inputs_hash": "0x" + replay.inputs_hash.hex(),
        "epoch": epoch if replay.root is not None else None,
        "root": None if replay.root is None else "0x" + replay.root.hex(),
        "state": "claimable" if replay.root is not None else "empty",
        "inputs": msgspec.to_builtins(inputs),
        "rewards": msgspec.to_builtins(rewards),
    }
