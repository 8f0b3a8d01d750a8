"""Writes `match_transcripts.json`: `python -m tests.vectors.make_transcripts`.

Whole matches as one validator sees them. Each has the validator's key; what it had stored and recorded before, where it
was restarted; what it was given at which millisecond of its own clock; what it must sign, in order; its record; and the
task on which the network agreed, as fields, as the bytes that are hashed, and as their hash. The network is the
simulated one, with fixed seeds, so that nothing changes by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparewatt.market.match.model import MatchOutput
from sparewatt.market.match.record import write_record
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.contracts.match import Task
from sparewatt.protocol.contracts.match_messages import MatchMessage, encode_message
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash, type_text
from tests.market_network.memory import remembered
from tests.market_network.scenario import Lie, Scenario, Trick
from tests.market_network.world import Core, World, simulate
from tests.vectors.encoding import to_json

FILE = Path(__file__).with_name("match_transcripts.json")
THREE: dict[str, Any] = {"tricks": (Trick.NONE,) * 3, "prices": (2_000_000, 1_000_000, 2_500_000), "bidders_only": True}
LEADER_STEPS = {1: "commit list", 2: "reveal list", 3: "vote"}
LEADER_SEEDS = {1: 11, 2: 112, 3: 13}

SCENARIOS: dict[str, Scenario] = {
    "calm": Scenario(seed=1, **THREE),
    **{
        f"leader stops at its {step}": Scenario(seed=LEADER_SEEDS[count], leader_stops_at=count, **THREE)
        for count, step in LEADER_STEPS.items()
    },
    "leader is silent": Scenario(seed=20, lies={1: Lie.SILENT}, liar_leads=True, **THREE),
    "equivocating lists": Scenario(seed=121, lies={2: Lie.SPLITTING}, liar_leads=True, **THREE),
    "leader leaves out a bid": Scenario(seed=322, lies={0: Lie.OMITTING}, liar_leads=True, **THREE),
    "no bids": Scenario(seed=23, tricks=(), prices=(), bidders_only=True),
    "all rejected": Scenario(seed=24, tricks=(Trick.OVER_CAP,) * 2, prices=(1, 1), bidders_only=True),
    "reorganisation after the acceptance": Scenario(seed=125, acceptance_reorgs=1, **THREE),
    "unequal weights": Scenario(seed=26, weights=(40, 30, 20, 10), **THREE),
    "tie": Scenario(seed=127, ties=True, **{**THREE, "prices": (1_000_000,) * 3}),
}


class RecordedMatch(ValidatorMatch):
    """Writes down what it is given and what it signs."""

    def start(self, now_ms: int) -> MatchOutput:
        self.began_ms = now_ms
        self.inputs: list[tuple[int, MatchMessage | None]] = []
        self.outputs: list[MatchMessage] = []
        return self._noted(super().start(now_ms))

    def receive(self, message: MatchMessage, *, now_ms: int) -> MatchOutput:
        self.inputs.append((now_ms, message))
        return self._noted(super().receive(message, now_ms=now_ms))

    def tick(self, now_ms: int) -> MatchOutput:
        self.inputs.append((now_ms, None))
        return self._noted(super().tick(now_ms))

    def _noted(self, output: MatchOutput) -> MatchOutput:
        self.outputs += output.records
        return output


def made() -> dict[str, Any]:
    with remembered():
        return {"transcripts": [_transcript(name, scenario) for name, scenario in _scenarios()]}


def _scenarios() -> Iterator[tuple[str, Scenario]]:
    yield from SCENARIOS.items()
    voted_ms = _vote_time(simulate(replace(SCENARIOS["calm"], seed=30), core=Core(RecordedMatch)))
    yield (
        "lookup reorganised between vote and submit",
        replace(SCENARIOS["calm"], seed=30, lookup_reorg_ms=(voted_ms + 2, voted_ms + 200)),
    )


def _vote_time(world: World) -> int:
    witness = _witness(world)
    return next(
        each.at_ms for each in witness.record().notes if each.what.startswith("voted")
    )  # the lookup was seen at 0


def text() -> str:
    return json.dumps(made(), indent=None, separators=(",", ":"), sort_keys=True) + "\n"


def _transcript(name: str, scenario: Scenario) -> dict[str, Any]:
    world = simulate(scenario, core=Core(RecordedMatch))
    accepted = world.chain.accepted
    assert accepted is not None, name
    witness = _witness(world)
    stored = [each for each in world.validators[_number(world, witness)].disk if each not in witness.outputs]
    messages: dict[bytes, int] = {}
    inputs = []
    for at_ms, message in witness.inputs:
        body = encode_message(message) if message is not None else None
        inputs.append([at_ms, None if body is None else messages.setdefault(body, len(messages))])
    return {
        "name": name,
        "vote_key": "0x" + witness._key.secret_hex(),
        "started_ms": witness.began_ms,
        "stored": [json.loads(encode_message(each)) for each in stored],
        "recorded": None if witness._recorded is None else write_record(witness._recorded),
        "messages": [json.loads(body) for body in messages],
        "inputs": inputs,
        "signs": [json.loads(encode_message(each)) for each in witness.outputs],
        "record": write_record(witness.record()),
        "round": accepted.round,
        "task": to_json(accepted.task),
        "task_bytes": "0x" + task_bytes(accepted.task).hex(),
        "task_hash": "0x" + struct_hash(accepted.task).hex(),
    }


def _witness(world: World) -> RecordedMatch:
    """An honest validator that is up at the end, not the leader if another is."""
    matches = [each.match for each in world.validators if each.is_honest and each.match is not None]
    last = max(matches, key=lambda match: match.vote_key != world.leader(0))
    assert isinstance(last, RecordedMatch)
    return last


def _number(world: World, match: RecordedMatch) -> int:
    return world.number_of(match.vote_key)


def task_bytes(task: Task) -> bytes:
    """The type's hash and the fields, a word each."""
    words = [value if isinstance(value, bytes) else value.to_bytes(32, "big") for value in task.values()]
    return keccak256(type_text(Task).encode()) + b"".join(words)


if __name__ == "__main__":
    FILE.write_text(text())
