from __future__ import annotations

import json

import pytest

from sparewatt.cli import output
from tests.unit.cli.canned import BERLIN, LIMA, OSLO, node, node_list, reputation
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import FakeNetwork

STATES = {"online": "●", "busy": "◐", "suspect": "◔", "offline": "✕", "draining": "‖"}


@pytest.mark.parametrize(("state", "shape"), STATES.items())
def test_state_is_shape_and_word(network: FakeNetwork, run: Run, state: str, shape: str) -> None:
    network.on("GET /v1/nodes", node_list(node(BERLIN, "berlin", state=state)))
    assert f"{shape} {state}" in run("nodes").stdout


def test_states_differ_in_colour() -> None:
    assert len({output.state_cell(state).style for state in STATES}) == len(STATES)
    assert output.state_cell("dreaming").text == "? dreaming"


def test_nodes_are_listed(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes", node_list(node(BERLIN, "berlin"), node(OSLO, "oslo", last_seen_at=None)))
    result = run("nodes", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "berlin" in lines[1]
    assert BERLIN[:10] in lines[1]
    assert "2 x RTX 4090" in lines[1]
    assert "1/4" in lines[1]
    assert lines[2].endswith("never")


def test_quiet_prints_full_ids(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes", node_list(node(BERLIN, "berlin"), node(OSLO, "oslo")))
    assert run("nodes", "-q").stdout.split() == [BERLIN, OSLO]


def test_json_prints_the_answer_of_the_api(network: FakeNetwork, run: Run) -> None:
    answer = node_list(node(BERLIN, "berlin"))
    network.on("GET /v1/nodes", answer)
    assert json.loads(run("nodes", "list", "--json").stdout) == answer


def test_no_nodes_says_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes", node_list())
    assert "'sparewatt node join'" in run("nodes").stderr


def test_show_has_claimed_and_measured_side_by_side(network: FakeNetwork, run: Run) -> None:
    network.on(f"GET /v1/nodes/{BERLIN}", node(BERLIN, "berlin"))
    causes = [{"cause": "link_lost", "count": 2, "last_unix_s": 1}]
    known = reputation(0.85, 0.71, jobs=20, failures=2, causes=causes)
    network.on(f"GET /v1/nodes/{BERLIN}/reputation", known)
    result = run("nodes", "show", BERLIN)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    said = "85%, at least 71%; 2 of 20 jobs failed: 2 link_lost"
    assert ["Reputation", *said.split()] in rows
    assert ["OF", "WHAT", "CLAIMED", "MEASURED"] in rows
    assert ["hardware", "memory", "24.0", "GiB", "-"] in rows
    assert ["hardware", "TFLOPS", "82.6", "71.2"] in rows
    assert ["hardware", "price", "per", "hour", "$0.40", "-"] in rows
    assert ["org/small-model", "prefill", "tokens/s", "9,000", "7,654"] in rows
    assert ["org/small-model", "decode", "tokens/s", "120", "98.7"] in rows
    assert ["org/small-model", "first", "token", "after", "1,000", "-", "381", "ms"] in rows
    assert ["org/small-model", "on", "disk", "8,192", "Q8_0", "$0.02", "$0.04"] in rows


def test_show_tells_what_is_wrong_with_a_price(network: FakeNetwork, run: Run) -> None:
    dear = node(BERLIN, "berlin")
    dear["models"][0]["price"]["notice"] = "Its price is above $2."
    network.on(f"GET /v1/nodes/{BERLIN}", dear)
    network.on(f"GET /v1/nodes/{BERLIN}/reputation", reputation(1.0, 0.5))
    assert "org/small-model: Its price is above $2." in run("nodes", "show", BERLIN).stderr
    network.on(f"GET /v1/nodes/{BERLIN}", node(BERLIN, "berlin"))
    assert run("nodes", "show", BERLIN).stderr == ""


def test_show_keeps_the_digits_of_a_small_number(network: FakeNetwork, run: Run) -> None:
    network.on(f"GET /v1/nodes/{BERLIN}", node(BERLIN, "berlin", measured={"tflops": 0.024}))
    network.on(f"GET /v1/nodes/{BERLIN}/reputation", reputation(0.9, 0.7))
    rows = [line.split() for line in run("nodes", "show", BERLIN).stdout.splitlines()]
    assert ["hardware", "TFLOPS", "82.6", "0.024"] in rows
    assert ["Reputation", "90%,", "at", "least", "70%"] in rows


@pytest.mark.parametrize(
    ("columns", "headers"),
    [
        (200, "STATE NAME ID REGION HARDWARE MODELS RUNNING QUEUED RTT SEEN"),
        (80, "STATE NAME ID REGION HARDWARE MODELS RUNNING QUEUED"),
        (50, "STATE NAME ID REGION RUNNING"),
        (20, "STATE NAME ID"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_in_whole_rows(
    network: FakeNetwork, run: Run, monkeypatch: pytest.MonkeyPatch, columns: int, headers: str
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    network.on("GET /v1/nodes", node_list(node(BERLIN, "cellar"), node(OSLO, "oslo")))
    header, *rows = run("nodes").stdout.splitlines()
    assert header.split() == headers.split()
    assert [row.split()[:4] for row in rows] == [
        ["●", "online", "cellar", BERLIN[:10]],
        ["●", "online", "oslo", OSLO[:10]],
    ]


def test_show_of_a_node_that_was_never_measured(network: FakeNetwork, run: Run) -> None:
    bare = node(BERLIN, "berlin", state="offline", measured={"tflops": None}, models=[])
    network.on(f"GET /v1/nodes/{BERLIN}", bare)
    network.on(f"GET /v1/nodes/{BERLIN}/reputation", reputation(0.5, 0.1, jobs=0, failures=0, causes=[]))
    result = run("nodes", "show", BERLIN)
    assert result.exit_code == 0
    assert result.stdout.endswith("Models\nnone\n")


@pytest.mark.parametrize("wanted", ["berlin", BERLIN[:6], BERLIN, BERLIN.upper().replace("0X", "0x")])
def test_show_takes_a_name_or_the_start_of_an_id(network: FakeNetwork, run: Run, wanted: str) -> None:
    berlin = node(BERLIN, "berlin")
    network.on("GET /v1/nodes", node_list(berlin, node(OSLO, "oslo")))
    network.on(f"GET /v1/nodes/{BERLIN}", berlin)
    assert json.loads(run("nodes", "show", wanted, "--json").stdout)["id"] == BERLIN


def test_show_refuses_what_can_mean_two_nodes(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes", node_list(node(OSLO, "oslo"), node(LIMA, "lima")))
    result = run("nodes", "show", "0xb2")
    assert result.exit_code == 1
    assert OSLO in result.stderr
    assert LIMA in result.stderr


@pytest.mark.parametrize("wanted", ["nobody", "0xff", "0x" + "f" * 40])
def test_show_of_an_unknown_node_is_not_found(network: FakeNetwork, run: Run, wanted: str) -> None:
    network.on("GET /v1/nodes", node_list(node(OSLO, "oslo")))
    assert run("nodes", "show", wanted).exit_code == 4


def test_a_name_cannot_steer_the_terminal(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes", node_list(node(BERLIN, "\x1b]0;owned\x07\u202eevil\n[red]x")))
    assert "]0;ownedevil[red]x" in run("nodes").stdout


# queries


def test_a_query_is_sent_to_the_network(network: FakeNetwork, run: Run) -> None:
    path = "/v1/nodes?q=region%3DEU+gpu_class%3E%3Da100+uptime%3E%3D0.99&sort=price"
    network.on(f"GET {path}", node_list(node(BERLIN, "berlin")) | {"total": 3, "funnel": []})
    assert run("nodes", "region=EU gpu_class>=a100 uptime>=0.99", "--sort", "price", "-q").stdout.split() == [BERLIN]
    assert run("nodes", "--sort", "price", "region=EU", "gpu_class>=a100", "uptime>=0.99", "-q").stdout == f"{BERLIN}\n"


def test_a_query_with_words_for_operators_is_one_too(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes?q=region+in+%5BEU%2C+NA%5D", node_list(node(BERLIN, "berlin")))
    assert "berlin" in run("nodes", "region in [EU, NA]").stdout


def test_a_query_that_no_node_satisfies_says_what_would_help(network: FakeNetwork, run: Run) -> None:
    funnel = [{"filter": "region", "dropped": 4, "left": 3}, {"filter": "max_price", "dropped": 3, "left": 0}]
    helps = ["max_price 0.3→0.34 adds 3 nodes"]
    network.on(
        "GET /v1/nodes?q=max_price%3D0.3", node_list() | {"total": 7, "funnel": funnel, "nearest_relaxations": helps}
    )
    result = run("nodes", "max_price=0.3")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "None of 7 nodes is allowed: region dropped 4, max_price dropped 3.",
        "  max_price 0.3→0.34 adds 3 nodes",
    ]


def test_a_query_of_an_empty_network_says_how_to_join(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/nodes?q=region%3DEU", node_list() | {"total": 0, "funnel": []})
    assert "'sparewatt node join'" in run("nodes", "region=EU").stderr


def test_a_mistyped_command_is_no_query(network: FakeNetwork, run: Run) -> None:
    result = run("nodes", "shwo")
    assert result.exit_code == 2
    assert not network.requests
