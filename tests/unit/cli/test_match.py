from __future__ import annotations

import json

import msgspec
import pytest

from sparewatt.cli.match import time_line
from sparewatt.protocol.api.matches import MatchAttempt
from tests.unit.cli.canned import BERLIN, LIMA, NEURALGRID, NOBODY, OSLO, PAST, attempt, candidate, explanation, past
from tests.unit.cli.conftest import Run, run_alone
from tests.unit.cli.fake_network import FakeNetwork


def line_with(text: str, output: str) -> list[str]:
    return next(line.split() for line in output.splitlines() if text in line)


def test_a_dry_run_asks_with_the_given_job(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NEURALGRID)
    words = ["--prompt-tokens", "9", "org/small-model", "--max-tokens", "7", "--policy", "neuralgrid"]
    assert run("match", *words).exit_code == 0
    asked = {"model": "org/small-model", "prompt_tokens": 9, "max_tokens": 7, "policy": "neuralgrid"}
    assert network.requests[0].body == asked


def test_a_dry_run_asks_for_whom_the_query_allows(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NEURALGRID)
    assert run("match", "org/small-model", "--route", "region=EU max_price<=0.3").exit_code == 0
    assert network.requests[0].headers["X-Sparewatt-Route"] == "region=EU max_price<=0.3"
    assert run("match", "org/small-model").exit_code == 0
    assert "X-Sparewatt-Route" not in network.requests[1].headers


@pytest.mark.parametrize("query", ["region=É", "region=EU\nx: y"])
def test_a_query_that_fits_no_header_is_refused_before_anything_is_sent(
    network: FakeNetwork, run: Run, query: str
) -> None:
    result = run("match", "org/small-model", "--route", query)
    assert result.exit_code == 2
    assert "plain ASCII" in result.stderr
    assert network.requests == []


def test_a_dry_run_shows_funnel_candidates_and_choice(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", explanation())
    result = run("match", "org/small-model")
    assert result.exit_code == 0
    assert line_with("all nodes", result.stdout)[2] == "4"
    assert line_with("online ", result.stdout)[1:3] == ["1", "3"]
    assert "offline  last seen 90 s ago" in result.stdout
    assert line_with("COST", result.stdout) == ["NODE", "REGION", "COST", "NETWORK", "PREFILL", "DECODE", "USD"]
    assert line_with("→", result.stdout) == ["→", "berlin", "eu", "1,234", "12", "222", "1,000", "$0.0000012"]
    assert line_with("oslo", result.stdout) == ["oslo", "eu", "2,500", "40", "60", "2,400", "$0.0000012"]
    assert "Zero for all: queue, cold_load, price, suspect, jitter" in result.stdout
    assert f"Would go to berlin ({BERLIN})." in result.stdout


def test_a_node_on_trial_is_said_to_be_one(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", explanation(is_trial=True))
    assert "new to the network" in run("match", "org/small-model").stdout
    network.on("POST /v1/match", explanation())
    assert "new to the network" not in run("match", "org/small-model").stdout


def test_money_and_its_weight_have_names_of_their_own(network: FakeNetwork, run: Run) -> None:
    ranked = [candidate(BERLIN, "berlin", 1.5, price=0.5, jitter=0.25, cold_load=0.75)]
    network.on("POST /v1/match", explanation(ranked=ranked))
    shown = run("match", "org/small-model").stdout
    assert "COST  COLD LOAD  PRICED  JITTER         USD\n" in shown
    assert "priced is the price, counted as time\n" in shown
    assert "jitter spreads near ties: a fixed hash of match and node\n" in shown


def test_parts_that_are_zero_are_not_explained(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", explanation())
    assert "near ties" not in run("match", "org/small-model").stdout


def test_scores_have_no_unit(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NEURALGRID)
    result = run("match", "org/small-model")
    assert line_with("→", result.stdout) == ["→", "berlin", "eu", "0.875", "0.300", "0.500", "0.075", "$0.01"]


def test_a_dry_run_without_a_candidate_has_its_own_exit_code(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NOBODY)
    result = run("match", "org/small-model")
    assert result.exit_code == 5
    assert "No node can take this job." in result.stdout
    assert "  - Wait for a node of org/small-model to come back." in result.stdout


def test_a_dry_run_says_why_no_node_can_take_it(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NOBODY | {"why_nobody": "The model 'x' is not served by this network."})
    shown = run("match", "org/small-model").stdout
    assert "\nThe model 'x' is not served by this network.\nWhat would help most:\n" in shown
    assert "No node can take" not in shown


def test_a_dry_run_without_a_candidate_as_json(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", NOBODY)
    result = run("match", "org/small-model", "--json")
    assert result.exit_code == 5
    assert json.loads(result.stdout) == NOBODY


def test_a_refused_dry_run_has_the_same_exit_code(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/match", 503, "no_eligible_node")
    assert run("match", "m").exit_code == 5


def test_a_dry_run_of_an_unknown_model_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("POST /v1/match", 404, "model_not_found")
    assert run("match", "m").exit_code == 4


def test_explain_shows_the_attempts_on_a_time_line(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/matches/match_1", PAST)
    result = run("match", "explain", "match_1")
    assert result.exit_code == 0
    lines = result.stdout[result.stdout.index("Attempts") :].splitlines()
    assert "timed out" in lines[2]
    assert "░" * 12 in lines[2]
    assert "no first token" in lines[2]
    assert lines[3].split() == ["oslo", "done", "1,000", "1,500", "2,000", "42", "░" * 6 + "█" * 6]
    assert f"Went to oslo ({OSLO})." in result.stdout


def test_explain_shows_where_one_node_went_on_with_anothers_answer(network: FakeNetwork, run: Run) -> None:
    first = attempt(BERLIN, "berlin", outcome="failed", tokens=12, chars=55)
    second = attempt(OSLO, "oslo", tokens=30, continued_from={"tokens": 12, "chars": 55})
    network.on("GET /v1/matches/match_1", past(attempts=[first, second]))
    shown = run("match", "explain", "match_1").stdout
    assert "\noslo went on after 12 tokens (55 characters)\n" in shown
    assert shown.count("went on") == 1


def test_explain_shows_among_whom_the_node_was_chosen_that_went_on(network: FakeNetwork, run: Run) -> None:
    attempts = [attempt(BERLIN, "berlin", outcome="failed"), attempt(OSLO, "oslo")]
    move = {"attempt": 1, "after_tokens": 12, "chosen": OSLO, "candidates": [candidate(OSLO, "oslo", 1.0)]}
    network.on("GET /v1/matches/match_1", past(chosen=OSLO, attempts=attempts, moves=[move]))
    shown = run("match", "explain", "match_1").stdout
    first, later = shown[shown.index("Candidates, ") :].split("Candidates to go on after 12 tokens")
    assert [line.split()[1] for line in first.splitlines() if line.startswith("→")] == ["berlin"]
    assert [line.split()[1] for line in later.splitlines() if line.startswith("→")] == ["oslo"]


@pytest.mark.parametrize(("tokens", "verdict"), [(0, "No node answered."), (7, "No node answered to the end.")])
def test_explain_of_a_failed_match_names_no_winner(network: FakeNetwork, run: Run, tokens: int, verdict: str) -> None:
    tried = attempt(BERLIN, "berlin", outcome="failed", tokens=tokens)
    network.on("GET /v1/matches/match_1", past(outcome="failed", attempts=[tried]))
    result = run("match", "explain", "match_1")
    assert result.stdout.endswith(f"\n{verdict}\n")
    assert "Went to" not in result.stdout


def test_explain_as_json(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/matches/match_1", PAST)
    assert json.loads(run("match", "explain", "match_1", "--json").stdout) == PAST


def test_explain_of_a_match_without_a_node_is_no_failure(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/matches/match_1", past(ranked=[], chosen=None, outcome="failed"))
    result = run("match", "explain", "match_1")
    assert result.exit_code == 0
    assert "No node took this job." in result.stdout


def test_explain_says_that_an_answer_came_in_one_piece(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/matches/match_1", PAST)
    assert "in one piece" not in run("match", "explain", "match_1").stdout
    whole = attempt(OSLO, "oslo", ended_ms=9.0)
    network.on("GET /v1/matches/match_1", PAST | {"streamed": False, "attempts": [whole]})
    shown = run("match", "explain", "match_1").stdout
    assert "came in one piece" in shown
    assert "█ answering" not in shown


def test_explain_of_an_unknown_match_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/matches/match_0", 404, "match_not_found")
    assert run("match", "explain", "match_0").exit_code == 4


def test_a_model_can_be_called_explain(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/match", explanation())
    assert run("match", "--", "explain").exit_code == 0
    assert network.requests[0].body["model"] == "explain"


def test_many_rejections_are_cut(network: FakeNetwork, run: Run) -> None:
    rejected = [{"node": LIMA, "name": f"n{i}", "reason": "offline", "detail": ""} for i in range(25)]
    network.on("POST /v1/match", explanation(rejected=rejected))
    output = run("match", "m").stdout
    assert "n19" in output
    assert "n20" not in output
    assert "and 5 more" in output


def test_match_alone_shows_its_help() -> None:
    result = run_alone("match")
    assert result.exit_code == 2
    assert "explain ID" in result.stderr


@pytest.mark.parametrize("words", [["--max-tokens", "0"], ["--policy", "best"], ["second-model"]])
def test_a_wrong_option_is_a_usage_error(words: list[str]) -> None:
    result = run_alone("match", "m", *words)
    assert result.exit_code == 2
    assert "preview" not in result.stderr
    assert "Usage: sparewatt match [OPTIONS] MODEL\nTry 'sparewatt match --help'." in result.stderr


def test_an_option_before_explain_belongs_to_it(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/matches/match_1", PAST)
    assert json.loads(run("match", "--json", "explain", "match_1").stdout) == PAST


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ({"started_ms": 0, "ended_ms": 0}, "░"),
        ({"started_ms": 100}, " " * 23 + "░"),
        ({"started_ms": 0, "first_token_ms": 0, "ended_ms": 100}, "█" * 24),
        ({"started_ms": 50, "first_token_ms": 75}, " " * 12 + "░" * 6),
    ],
)
def test_time_line_of_odd_attempts(times: dict[str, int], line: str) -> None:
    odd = msgspec.convert(attempt("n", "n", **times), MatchAttempt)
    assert time_line(odd, end_ms=100).rstrip() == line
    assert len(time_line(odd, end_ms=0)) == 24
