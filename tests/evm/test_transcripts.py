"""Python, Vyper and replay agree on every recorded match: the committed transcripts, and simulated ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.market.match.record import AuctionRecord, read_record, write_record
from sparewatt.market.match.replay import pool_of, replay
from sparewatt.protocol.contracts.match import Task
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.machine import Contract, deploy
from tests.evm.network import Network
from tests.market_network.memory import remembered
from tests.market_network.scenario import scenario_of
from tests.market_network.world import simulate
from tests.vectors import make_transcripts
from tests.vectors.encoding import from_json

TRANSCRIPTS: list[dict[str, Any]] = json.loads(make_transcripts.FILE.read_text())["transcripts"]
SIMULATED = range(20)


@pytest.fixture
def window(network: Network) -> Contract:
    return deploy("rule_window")


def require_same_judgement(window: Contract, record: AuctionRecord, task: Task) -> None:
    again, context = replay(record, accepted=task), record.context
    assert again.differences == ()
    assert window.task_hash(task.values()) == again.task_hash == struct_hash(task)
    assert window.policy_hash(context.terms.values()) == task.policy_hash
    profiles = [context.profiles[leaf.provider.lower()].values() for leaf in again.leaves]
    leaves = [leaf.values() for leaf in again.leaves]
    truths, best, pay = window.judge(task.values(), context.terms.values(), profiles, leaves)
    assert list(truths) == [True] * len(leaves)
    assert tuple(best) == (task.first, task.second, task.third)
    assert pay == (again.winner.pay_uusd if again.winner is not None else 0)
    assert task.bid_count == len(leaves)
    tree = merkle_tree([window.leaf_hash(leaf) for leaf in leaves])
    assert tree.root == task.bid_root


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda each: each["name"])
def test_a_recorded_match_is_judged_the_same(window: Contract, transcript: dict[str, Any]) -> None:
    task = from_json(Task, transcript["task"])
    assert "0x" + struct_hash(task).hex() == transcript["task_hash"]
    require_same_judgement(window, read_record(transcript["record"]), task)


def test_what_a_validator_records_of_a_simulated_match_is_judged_the_same(window: Contract) -> None:
    """After loss, crashes and lies, and as it is published: in JSON. That all replays agree is an invariant."""
    for seed in SIMULATED:
        with remembered():
            world = simulate(scenario_of(seed))
            assert world.chain.accepted is not None
            task = world.chain.accepted.task
            honest = [each.last_record for each in world.validators if each.is_honest and each.last_record is not None]
            record = next(each for each in honest if struct_hash(task) in pool_of([each]).tasks)
            require_same_judgement(window, read_record(json.loads(json.dumps(write_record(record)))), task)
