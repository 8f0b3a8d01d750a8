"""Which nodes that are away keep their models in the table."""

from __future__ import annotations

from sparewatt.core.ids import AccountId
from sparewatt.inference.fleet.away_models import AwayModels
from tests.unit.inference.nodes import node_id

LENDER, CROWD = AccountId("acc_lender"), AccountId("acc_crowd")


def test_within_the_budget_every_node_keeps_its_models() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    assert away.leave(node_id(1), LENDER, models=4, has_served=False) == []
    assert away.leave(node_id(2), LENDER, models=6, has_served=False) == []
    assert len(away) == 2


def test_beyond_it_who_left_first_loses_them() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    for number in (1, 2, 3):
        away.leave(node_id(number), LENDER, models=3, has_served=False)
    assert away.leave(node_id(4), LENDER, models=6, has_served=False) == [node_id(1), node_id(2)]
    assert len(away) == 2


def test_a_node_with_more_models_than_the_budget_keeps_none() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    assert away.leave(node_id(1), LENDER, models=11, has_served=True) == [node_id(1)]
    assert len(away) == 0


def test_strangers_that_never_served_push_out_nobody_who_did() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    away.leave(node_id(1), LENDER, models=10, has_served=True)
    dropped = [each for n in range(2, 50) for each in away.leave(node_id(n), CROWD, models=10, has_served=False)]
    assert node_id(1) not in dropped
    assert len(away) == 2


def test_one_account_s_nodes_that_served_push_out_only_its_own() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    away.leave(node_id(1), LENDER, models=10, has_served=True)
    dropped = [each for n in range(2, 50) for each in away.leave(node_id(n), CROWD, models=10, has_served=True)]
    assert dropped == [node_id(n) for n in range(2, 49)]


def test_a_node_that_is_back_frees_its_share_and_nothing_is_kept_of_it() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    away.leave(node_id(1), LENDER, models=10, has_served=True)
    away.join(node_id(1))
    away.join(node_id(1))
    assert (len(away), away._served) == (0, {})
    assert away.leave(node_id(2), LENDER, models=10, has_served=True) == []


def test_a_node_that_leaves_twice_counts_once_by_its_latest_report() -> None:
    away = AwayModels(per_account_max=10, unserved_max=10)
    away.leave(node_id(1), LENDER, models=6, has_served=False)
    assert away.leave(node_id(1), LENDER, models=10, has_served=False) == []
    assert away.leave(node_id(2), LENDER, models=0, has_served=False) == []
    assert len(away) == 1


def test_of_nodes_that_never_served_only_the_last_stay() -> None:
    away = AwayModels(per_account_max=10, unserved_nodes_max=2)
    for number in (1, 2, 3):
        away.leave(node_id(number), LENDER, models=0, has_served=False)
        away.leave(node_id(10 + number), LENDER, models=1, has_served=True)
    assert away.take_surplus() == [node_id(1)]
    assert away.take_surplus() == []
    away.join(node_id(2))
    away.leave(node_id(4), CROWD, models=0, has_served=False)
    assert away.take_surplus() == []
