"""An era replayed: the root is that of the leaves before and what the era adds, and any change of an input shows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.trust.rewards.era import payments_of
from sparewatt.trust.rewards.replay import replay_era
from tests.unit.trust.rewards.eras import a_node, an_era, payee


def test_the_root_holds_what_every_address_got_in_all() -> None:
    before = [PayoutEntry(payee(1), 1_000, 0), PayoutEntry(payee(7), 5, 0)]
    replay = replay_era(an_era(a_node(1), a_node(2)), before)
    paid = payments_of(replay.rewards)
    entries = [
        PayoutEntry(payee(1), 1_000 + paid[payee(1)], 0),
        PayoutEntry(payee(2), paid[payee(2)], 0),
        PayoutEntry(payee(7), 5, 0),
    ]
    assert replay.root == settlement_tree(entries).root
    assert replay.root_before == settlement_tree(before).root


def test_an_era_that_gave_nothing_has_no_root() -> None:
    replay = replay_era(an_era(a_node(1, up_s=0)), [])
    assert (replay.root, replay.root_before) == (None, None)


def test_a_changed_input_is_another_hash_and_another_root() -> None:
    era = an_era(a_node(1), a_node(2))
    changed = replace(era, nodes=[a_node(1, failed=30), a_node(2)])
    first, second = replay_era(era, []), replay_era(changed, [])
    assert first.inputs_hash != second.inputs_hash
    assert first.root != second.root
    assert replay_era(era, []) == first


def test_leaves_that_are_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascend"):
        replay_era(an_era(a_node(1)), [PayoutEntry(payee(7), 5, 0), PayoutEntry(payee(1), 5, 0)])
