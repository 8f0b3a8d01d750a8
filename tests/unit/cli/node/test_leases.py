from __future__ import annotations

import json

from sparewatt.node.settings import read_saved_settings
from tests.unit.cli.fake_agent import Node

WALLET = "0x" + "7" * 40


def test_a_running_agent_is_told(node: Node) -> None:
    assert "offers leases" in node.run("leases", "on").stderr
    node.run("leases", "on", "--wallet", WALLET)
    assert "no leases" in node.run("leases", "off").stderr
    assert node.requests == [
        {"do": "leases", "leases": True, "lease_wallet": None},
        {"do": "leases", "leases": True, "lease_wallet": WALLET},
        {"do": "leases", "leases": False, "lease_wallet": None},
    ]


def test_without_an_agent_it_counts_from_the_next_start(away: Node) -> None:
    assert "next start" in away.run("leases", "on", "--wallet", WALLET).stderr
    saved = read_saved_settings(away.folder)
    assert (saved.leases, saved.lease_wallet) == (True, WALLET)
    away.run("leases", "off")
    saved = read_saved_settings(away.folder)
    assert (saved.leases, saved.lease_wallet) == (False, None)


def test_json_says_whether_an_agent_runs(away: Node) -> None:
    reply = json.loads(away.run("leases", "on", "--json").stdout)
    assert reply == {"running": False, "leases": True, "lease_wallet": None}


def test_a_wallet_is_an_address(away: Node) -> None:
    for wrong in ("0x12", "vitalik.eth", WALLET + "7"):
        assert away.run("leases", "on", "--wallet", wrong).exit_code == 2
    assert read_saved_settings(away.folder).leases is None
