from __future__ import annotations

import json
import time

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

ADDRESS, NODE = "0x" + "ab" * 20, "0x" + "cd" * 20
PROVIDER = {
    "id": ADDRESS,
    "node": NODE,
    "name": "attic",
    "held": True,
    "status": "active",
    "offers_leases": True,
    "bond_usd": "12.5",
    "bond_nano": 12_500_000_000,
    "free_usd": "10",
    "free_nano": 10_000_000_000,
    "locked_usd": "2.5",
    "locked_nano": 2_500_000_000,
    "unbonding_usd": "0",
    "unbonding_nano": 0,
}
REQUEST = {"id": "bond:x", "kind": "bond", "state": "done", "tx": "0x1"}
CHANGED = {"changed": True, "request": REQUEST, "provider": PROVIDER}


def test_providers_are_listed_with_their_bonds(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/providers", {"object": "list", "data": [PROVIDER]})
    shown = run("providers").stdout
    assert "attic" in shown
    assert "$12.50" in shown
    assert run("providers", "list", "--quiet").stdout.strip() == ADDRESS
    assert json.loads(run("providers", "--json").stdout)["data"] == [PROVIDER]


def test_an_operator_names_another_account(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/providers?account=acc_x", {"object": "list", "data": [PROVIDER]})
    assert "attic" in run("providers", "--account", "acc_x").stdout


def test_an_unbonding_shows_when_it_ends(network: FakeNetwork, run: Run) -> None:
    unbonding = {"unbonding_usd": "2", "unbonding_nano": 2 * 10**9}
    network.on("GET /v1/providers/attic", PROVIDER | unbonding | {"unbonded_at": time.time() + 3 * 86_400 + 60})
    assert "$2.00, your credits in 3 days" in run("providers", "show", "attic").stdout
    network.on("GET /v1/providers/attic", PROVIDER | unbonding | {"unbonded_at": None})
    assert "your credits" not in run("providers", "show", "attic").stdout


def test_a_node_that_offers_no_leases_names_the_command(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/providers/attic", PROVIDER | {"offers_leases": False})
    assert "sparewatt node leases on" in run("providers", "show", "attic").stdout


def test_an_empty_list_names_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/providers", {"object": "list", "data": []})
    assert "sparewatt providers register" in run("providers").stderr


@pytest.mark.parametrize(("held", "said"), [(True, "kept by the network"), (False, "in your wallet")])
def test_one_provider_is_shown_with_where_its_key_is(network: FakeNetwork, run: Run, *, held: bool, said: str) -> None:
    network.on("GET /v1/providers/attic", PROVIDER | {"held": held})
    shown = run("providers", "show", "attic").stdout
    assert said in shown
    assert ADDRESS in shown


def test_a_node_is_registered(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/providers", CHANGED, status=201)
    result = run("providers", "register", "attic")
    assert network.requests[0].body == {"node": "attic"}
    assert "Registering on the chain" in result.stderr
    assert "Registered." in result.stderr
    assert ADDRESS in result.stdout


def test_a_wallet_gets_its_transaction_and_nothing_is_sent(network: FakeNetwork, run: Run) -> None:
    made = {"chain_id": 31337, "sender": ADDRESS, "to": NODE, "data": "0xfeed", "value": "0x0"}
    network.on("POST /v1/providers/wallet", made)
    result = run("providers", "register", "attic", "--wallet", ADDRESS)
    assert network.requests[0].body == {"node": "attic", "wallet": ADDRESS}
    for part in ("31337", ADDRESS, NODE, "0xfeed"):
        assert part in result.stdout
    assert json.loads(run("providers", "register", "attic", "--wallet", ADDRESS, "--json").stdout) == made


def test_a_bond_sends_amount_source_and_id(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/providers/attic/bond", CHANGED, status=201)
    run("providers", "bond", "attic", "10", "--from", "earnings", "--id", "x")
    assert network.requests[0].body == {"usd": "10", "id": "x", "source": "earnings"}
    assert "Bonded." in run("providers", "bond", "attic", "10").stderr


def test_a_bond_that_waits_for_a_payout_root_says_so(network: FakeNetwork, run: Run) -> None:
    waiting = CHANGED | {"request": REQUEST | {"state": "asked"}}
    network.on("POST /v1/providers/attic/bond", waiting, status=201)
    said = run("providers", "bond", "attic", "10").stderr
    assert "payout root" in said
    assert "Bonded." not in said


def test_what_was_done_before_says_so(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/providers/attic/unbond", CHANGED | {"changed": False})
    assert "nothing changed" in run("providers", "unbond", "attic", "1", "--id", "x").stderr


def test_a_negative_amount_reaches_the_network_which_refuses_it_in_words(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/providers/attic/bond", 400, "invalid_amount", "'-1' is less than nothing.")
    result = run("providers", "bond", "attic", "-1")
    assert result.exit_code != 0
    assert "less than nothing" in result.stderr


def test_a_status_is_one_that_an_owner_may_set(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/providers/attic/status", CHANGED, status=201)
    assert run("providers", "status", "attic", "maintenance").exit_code == 0
    assert network.requests[0].body == {"status": "maintenance"}
    assert run("providers", "status", "attic", "suspended").exit_code == 2


def test_json_is_the_reply_alone(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/providers/attic/bond", CHANGED, status=201)
    result = run("providers", "bond", "attic", "10", "--json")
    assert json.loads(result.stdout) == CHANGED
    assert result.stderr == ""


def test_a_provider_that_is_not_there_names_the_next_step(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/providers/attic", 404, "provider_not_found")
    assert "sparewatt providers register" in run("providers", "show", "attic").stderr
