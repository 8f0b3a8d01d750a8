from __future__ import annotations

from typing import Any

import pytest

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.unit.cli.canned import page
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

ADDRESSES = [f"0x{digit * 40}" for digit in "abc"]


def batch(root: bytes, **changes: object) -> dict[str, Any]:
    leaves = [{"address": address, "earned_micro": 5, "spent_micro": 1} for address in ADDRESSES]
    given: dict[str, Any] = {
        "epoch": 3,
        "created_at": 1.0,
        "root": "0x" + root.hex(),
        "leaves": 3,
        "promised_micro": 15,
        "promised_usd": "0.000015",
        "added_micro": 15,
        "added_usd": "0.000015",
        "state": "ready",
        "posted_at": None,
        "posted_tx": None,
        "data": leaves,
        "next": None,
    }
    return given | changes


RIGHT = settlement_tree([PayoutEntry(address, 5, 1) for address in ADDRESSES]).root


def test_a_batch_whose_leaves_make_its_root_holds(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/payouts/batches/3?limit=1000", batch(RIGHT))
    result = run("payouts", "verify", "3")
    assert result.exit_code == 0
    assert "holds" in result.stdout


@pytest.mark.parametrize(
    ("root", "changes"), [(bytes(32), {}), (RIGHT, {"promised_micro": 14}), (RIGHT, {"leaves": 4})]
)
def test_a_batch_that_does_not_hold_is_a_failure(
    network: FakeNetwork, run: Run, root: bytes, changes: dict[str, object]
) -> None:
    network.on("GET /v1/payouts/batches/3?limit=1000", batch(root, **changes))
    result = run("payouts", "verify", "3")
    assert result.exit_code == 1
    assert "evidence" in result.stderr


CLAIMED = {
    "address": "0x" + "a" * 40,
    "epoch": 3,
    "amount_micro": 250_000,
    "amount_usd": "0.25",
    "state": "claimed",
    "reason": None,
    "tx": "0xfe",
}
REFUSED = CLAIMED | {"state": "failed", "reason": "the contract says NOT_IN_ROOT.", "tx": None}


def claims(*lines: object, waiting_micro: int = 0) -> dict[str, Any]:
    totals = {"account": "acc_ann", "claimed_micro": 1_000_000, "claimed_usd": "1"}
    return page(*lines) | totals | {"waiting_usd": "0.5", "waiting_micro": waiting_micro}


def test_a_claim_tells_what_went_where(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/payouts/claim", claims(CLAIMED))
    result = run("payouts", "claim")
    assert result.exit_code == 0
    assert f"Claimed $0.25 to {CLAIMED['address']} (0xfe)." in result.stdout


def test_a_claim_that_the_contract_refused_is_an_error_after_those_that_worked(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/payouts/claim?account=acc_ann", claims(CLAIMED, REFUSED))
    result = run("payouts", "claim", "--account", "acc_ann")
    assert result.exit_code == 1
    assert "Claimed $0.25" in result.stdout
    assert "NOT_IN_ROOT" in result.stderr


@pytest.mark.parametrize(("waiting_micro", "said"), [(500_000, True), (0, False)])
def test_with_nothing_to_claim_it_says_what_waits(
    network: FakeNetwork, run: Run, waiting_micro: int, *, said: bool
) -> None:
    network.on("POST /v1/payouts/claim", claims(waiting_micro=waiting_micro))
    result = run("payouts", "claim")
    assert result.exit_code == 0
    assert "$1.00 were claimed so far" in result.stderr
    assert ("wait for their batch" in result.stderr) is said


def test_without_payouts_the_next_command_is_earnings(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/payouts?limit=1000", page())
    assert "sparewatt node earnings" in run("payouts").stderr


def test_a_struck_batch_is_decided_one_way_or_the_other(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/payouts/batches/4/decide", {"made": False, "batch": None})
    assert "posted again" in run("payouts", "decide", "4", "--post-again").stderr
    assert network.requests[0].body == {"action": "post_again"}
    network.on("POST /v1/payouts/batches/4/decide", {"made": True, "batch": None})
    assert "new batch" in run("payouts", "decide", "4", "--make-anew").stderr
    assert run("payouts", "decide", "4").exit_code == 2
