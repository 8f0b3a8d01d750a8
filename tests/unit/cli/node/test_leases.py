from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.node.leases.rules_file import read_lease_rules
from sparewatt.node.settings import read_saved_settings
from tests.unit.cli.fake_agent import STATUS, Node

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


MARKET: dict[str, Any] = {
    "provider": "0x" + "d" * 40,
    "height": 1234,
    "height_from": "gateway",
    "validators": 4,
    "offer": {
        "prices": [{"gpus": 1, "hourly_uusd": 400_000}],
        "cpu_hourly_uusd": None,
        "discounts": [{"least_s": 604_800, "off_ppm": 100_000}],
        "gpus": 1,
        "cpu_milli": 6_000,
        "memory_mib": 32_768,
        "disk_mib": 102_400,
    },
    "rules": {"longest_s": 7_200, "refused_images": ["*/xmrig*"]},
    "counts": {"bid": 3, "BUSY": 2},
    "heartbeats": [{"validator": "0x1", "heard_at": 5.0, "trouble": None}],
    "bids": [
        {
            "order": "0x" + "1" * 64,
            "attempt": 0,
            "state": "held",
            "price_uusd": 400_000,
            "pay_uusd": 450_000,
            "renter": "0x" + "e" * 40,
            "refused": {},
        }
    ],
}
OFFERING = STATUS | {"leases": True, "lease_wallet": None, "lease_market": MARKET}


def test_what_is_offered_is_shown(node: Node) -> None:
    node.answer = {"status": OFFERING}
    shown = node.run("leases").stdout
    for text in ("0.40 an hour", "10 % off from 7d", "block 1,234", "gateway's word", "2h", "*/xmrig*"):
        assert text in shown
    assert "1 of 4 hear this node" in shown
    assert "3 bid" in shown
    assert "lease held" in shown
    assert json.loads(node.run("leases", "--json").stdout)["rules"] == MARKET["rules"]


def test_auctions_that_ended_are_shown_with_the_order_to_replay(node: Node) -> None:
    order, other = "0x" + "2" * 64, "0x" + "3" * 64
    ended = [
        {"order": order, "attempt": 0, "result": "standby", "price_uusd": 20_000, "winner_pay_uusd": 11_000},
        {"order": other, "attempt": 0, "result": "declined: image", "price_uusd": 0, "winner_pay_uusd": 0},
    ]
    node.answer = {
        "status": OFFERING | {"lease_market": MARKET | {"ended": [each | {"unix_s": 1.0} for each in ended]}}
    }
    result = node.run("leases")
    rows = {words[-1]: words for words in map(str.split, result.stdout.splitlines()) if words}
    assert rows[order][-5:-1] == ["lost,", "stand-in", "$0.02", "$0.011"]
    assert rows[other][-5:-1] == ["declined:", "image", "-", "-"]
    assert result.stdout.index(other) < result.stdout.index(order), "the newest first"
    assert "validator replay ORDER" in result.stderr


def test_status_says_whose_word_the_height_is(node: Node) -> None:
    node.answer = {"status": OFFERING}
    shown = node.run("status").stdout
    assert "offered; 1 held" in shown
    assert "by the gateway's word" in shown
    node.answer = {"status": OFFERING | {"lease_market": MARKET | {"height_from": "own", "chain_trouble": "timeout"}}}
    assert "by your own chain's node; it does not answer now: timeout" in node.run("status").stdout


def test_rules_that_are_not_named_stay(node: Node) -> None:
    node.answer = {"status": OFFERING}
    node.run("leases", "offer", "--price", "1=0.4", "--price", "4=1.50", "--reclaim", "2h", "on")
    assert node.requests[-1] == {
        "do": "lease_offer",
        "leases": True,
        "lease_rules": {
            "longest_s": 7_200,
            "refused_images": ["*/xmrig*"],
            "prices": [{"gpus": 1, "hourly_uusd": 400_000}, {"gpus": 4, "hourly_uusd": 1_500_000}],
            "reclaim_s": 7_200,
        },
    }


RULES = {
    "prices": [{"gpus": 1, "hourly_uusd": 400_000}, {"gpus": 2, "hourly_uusd": 700_000}],
    "discounts": [{"least_s": 86_400, "off_ppm": 100_000}],
    "refused_images": ["*/xmrig*"],
    "refused_tenants": [WALLET],
}


@pytest.mark.parametrize(
    ("words", "name", "kept"),
    [
        (["--price", "4=1"], "prices", [(1, 400_000), (2, 700_000), (4, 1_000_000)]),
        (["--price", "2=0.6"], "prices", [(1, 400_000), (2, 600_000)]),
        (["--price", "1=none"], "prices", [(2, 700_000)]),
        (["--discount", "7d=25"], "discounts", [(86_400, 100_000), (604_800, 250_000)]),
        (["--discount", "1d=none"], "discounts", []),
        (["--refuse-image", "*/miner*"], "refused_images", ["*/xmrig*", "*/miner*"]),
        (["--refuse-image", "*/xmrig*"], "refused_images", ["*/xmrig*"]),
        (["--allow-image", "*/xmrig*"], "refused_images", []),
        (["--refuse-tenant", "0x" + "A" * 40], "refused_tenants", [WALLET, "0x" + "a" * 40]),
        (["--allow-tenant", WALLET], "refused_tenants", []),
    ],
)
def test_what_is_named_leaves_the_others_of_its_kind(node: Node, words: list[str], name: str, kept: list[Any]) -> None:
    node.answer = {"status": OFFERING | {"lease_market": MARKET | {"rules": RULES}}}
    assert node.run("leases", "offer", *words).exit_code == 0
    sent = node.requests[-1]["lease_rules"]
    assert [tuple(each.values()) if isinstance(each, dict) else each for each in sent[name]] == kept
    assert {other: sent[other] for other in RULES if other != name} == {
        other: RULES[other] for other in RULES if other != name
    }


def test_an_image_that_is_not_refused_cannot_be_allowed(node: Node) -> None:
    node.answer = {"status": OFFERING}
    result = node.run("leases", "offer", "--allow-image", "*/other*")
    assert (result.exit_code, "is not refused now" in result.stderr) == (2, True)
    assert all(request["do"] == "status" for request in node.requests)


def test_a_provider_is_not_told_to_register_and_a_short_notice_is_pointed_out(node: Node) -> None:
    node.answer = {"status": OFFERING}
    shown = node.run("leases", "offer", "--reclaim", "5m").stderr
    assert "providers register" not in shown
    assert "orders ask for a notice of 10m" in shown
    assert "notice of" not in node.run("leases", "offer", "--reclaim", "10m").stderr


def test_a_chain_that_is_behind_is_pointed_out(node: Node) -> None:
    own = MARKET | {"height_from": "own", "height": 1_234, "told_height": 1_300, "counts": {"differs": 2}}
    node.answer = {"status": OFFERING | {"lease_market": own}}
    assert "66 behind the gateway's: no bids" in node.run("status").stdout
    assert "2 not confirmed by your chain" in node.run("leases").stdout
    node.answer = {"status": OFFERING | {"lease_market": own | {"told_height": 1_240}}}
    assert "behind" not in node.run("status").stdout


def test_a_reset_forgets_them(node: Node) -> None:
    node.answer = {"status": OFFERING}
    node.run("leases", "offer", "--reset", "off")
    assert node.requests[-1] == {"do": "lease_offer", "leases": False, "lease_rules": {}}


def test_without_an_agent_rules_count_from_the_next_start(away: Node) -> None:
    words = ["--cpu-price", "0.01", "--discount", "7d=12.5%", "--longest", "2d", "--refuse-tenant", "0x" + "A" * 40]
    words += ["--gpus", "1", "--cpus", "2.5", "--memory-gb", "16", "--disk-gb", "0.5", "--no-egress"]
    words += ["--tenant-broken-max", "37.5"]
    shown = away.run("leases", "offer", *words)
    assert "next start" in shown.stderr
    rules = read_lease_rules(away.folder)
    assert (rules.cpu_hourly_uusd, rules.discounts[0].off_ppm, rules.longest_s) == (10_000, 125_000, 172_800)
    assert (rules.gpus, rules.cpu_milli, rules.memory_mib, rules.disk_mib) == (1, 2_500, 15_259, 477)
    assert rules.tenant_broken_ppm == 375_000
    assert (rules.refused_tenants, rules.egress) == (("0x" + "a" * 40,), False)
    assert read_saved_settings(away.folder).leases is True
    away.run("leases", "offer", "off")
    assert read_saved_settings(away.folder).leases is False
    assert read_lease_rules(away.folder) == rules
    assert "not offered" in away.run("leases").stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["--price", "0.40"],
        ["--price", "one=0.40"],
        ["--price", "1=nan"],
        ["--price", "1=-1"],
        ["--price", "1=0"],
        ["--price", "0=1"],
        ["--price", "1=0.4", "--price", "1=0.5"],
        ["--cpu-price", "free"],
        ["--discount", "7d=100"],
        ["--discount", "soon=10"],
        ["--refuse-tenant", "bob"],
        ["--refuse-image", "with space"],
        ["--gpus", "-1"],
        ["--longest", "0s"],
    ],
)
def test_rules_of_no_sense_change_nothing(away: Node, wrong: list[str]) -> None:
    assert away.run("leases", "offer", *wrong).exit_code in {1, 2}
    assert not away.folder.exists()


def test_an_agent_that_refuses_is_quoted(node: Node) -> None:
    node.answer = {"error": "This machine has less gpus than that (1)."}
    result = node.run("leases", "offer", "--gpus", "9")
    assert result.exit_code != 0
    assert "less gpus" in result.stderr


MACHINE: dict[str, Any] = {
    "folder": "/srv/machine",
    "trouble": None,
    "taken": [
        {
            "node": "0x" + number * 40,
            "is_own": number == "1",
            "order": "0x" + number * 64,
            "attempt": 0,
            "state": state,
            "gpus": 1,
            "cpu_milli": 1_500,
            "memory_mib": 4_000,
            "disk_mib": 8_000,
            "cards": cards,
        }
        for number, state, cards in (("1", "held", ["0"]), ("2", "bidding", []))
    ],
    "gives_way_to": "0x" + "1" * 64,
    "inference": {"hourly_uusd": 120_000, "served_s": 7_200},
}
TWO_CARDS = {"gpus": 2, "cpu_milli": 8_000, "memory_mib": 1, "disk_mib": 1}


def on_machine(**changes: Any) -> dict[str, Any]:
    market = MARKET | {"measured": TWO_CARDS, "machine": MACHINE | changes}
    return {"status": OFFERING | {"lease_market": market}}


@pytest.mark.parametrize("command", ["leases", "status"])
def test_what_all_agents_promise_and_what_pays_are_shown(node: Node, command: str) -> None:
    node.answer = on_machine()
    shown = " ".join(node.run(command).stdout.split())
    assert "Leased 1 GPUs, 1.5 processors" in shown
    assert "Reserved 1 GPUs" in shown
    assert "Gives way to the lease 0x1111" in shown
    assert "earned $0.12 an hour over 2.0 h, by your prices; a lease of the machine pays $0.80 an hour" in shown
    assert "an hour, $0.68 more; '--follow-pay' keeps leases from paying less" in shown
    if command == "leases":
        assert "this one 0x1111111111111111 leased 0 1.5" in shown
        assert "0x2222222222 0x2222222222222222 reserved 1 1.5" in shown


def test_an_offer_that_follows_pay_says_what_it_raised(node: Node) -> None:
    rules = {
        "follow_pay": True,
        "prices": [{"gpus": 1, "hourly_uusd": 100_000}],
        "discounts": [{"least_s": 3_600, "off_ppm": 500_000}],
    }
    offer = MARKET["offer"] | {"prices": [{"gpus": 1, "hourly_uusd": 400_000}], "discounts": []}
    node.answer = on_machine(inference={"hourly_uusd": 800_000, "served_s": 7_200})
    node.answer["status"]["lease_market"] |= {"rules": rules, "offer": offer}
    shown = " ".join(node.run("leases").stdout.split())
    assert "an hour, as much; leases follow it: raised 1 GPU from $0.10 to $0.40, left out 1 discount" in shown


def test_a_lease_that_pays_less_than_inference_is_said(node: Node) -> None:
    node.answer = on_machine(inference={"hourly_uusd": 1_000_000, "served_s": 7_200})
    assert "$0.20 LESS" in " ".join(node.run("leases").stdout.split())


def test_an_account_that_cannot_be_used_and_little_time_are_said(node: Node) -> None:
    node.answer = on_machine(trouble="It is broken.", inference={"hourly_uusd": None, "served_s": 60}, taken=[])
    shown = node.run("leases").stdout
    assert "no leases are offered: It is broken." in shown
    assert "too little to tell" in shown


def test_commands_for_cards_come_in_pairs_and_are_forgotten_together(away: Node) -> None:
    assert away.run("leases", "offer", "--free-command", "docker stop vllm").exit_code == 2
    away.run("leases", "offer", "--free-command", "docker stop vllm", "--restore-command", "docker start vllm")
    rules = read_lease_rules(away.folder)
    assert (rules.free_command, rules.restore_command) == ("docker stop vllm", "docker start vllm")
    assert away.run("leases", "offer", "--free-command", "none").exit_code == 2
    away.run("leases", "offer", "--free-command", "none", "--restore-command", "none", "--follow-pay")
    rules = read_lease_rules(away.folder)
    assert (rules.free_command, rules.restore_command, rules.follow_pay) == (None, None, True)
    away.run("leases", "offer", "--no-follow-pay")
    assert not read_lease_rules(away.folder).follow_pay
