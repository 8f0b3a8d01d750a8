from __future__ import annotations

import json

import pytest

from tests.unit.cli.canned import BARE_MODEL, MODEL, model_list
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_network import KEY, FakeNetwork


@pytest.mark.parametrize("words", [["models"], ["models", "list"]], ids=" ".join)
def test_models_are_listed_with_prices_per_million(network: FakeNetwork, run: Run, words: list[str]) -> None:
    network.on("GET /v1/models", model_list(MODEL, BARE_MODEL))
    result = run(*words)
    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()
    assert header.split()[:4] == ["MODEL", "CONTEXT", "NODES", "WARM"]
    assert first.split() == ["org/small-model", "8,192", "3", "2", "Q8_0,", "F16", "$0.02", "$0.04"]
    assert second.split() == ["bare", "-", "0", "0", "-", "$0", "$0"]


def test_quiet_prints_ids_only(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models", model_list(MODEL, BARE_MODEL))
    assert run("models", "-q").stdout == "org/small-model\nbare\n"


def test_json_prints_the_answer_of_the_api(network: FakeNetwork, run: Run) -> None:
    answer = model_list(MODEL | {"new_field": 1})
    network.on("GET /v1/models", answer)
    assert json.loads(run("models", "--json").stdout) == answer


def test_no_models_says_what_to_do(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models", model_list())
    result = run("models")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "'sparewatt node join'" in result.stderr


def test_show_asks_for_an_id_with_slashes(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models/org/small-model", MODEL)
    result = run("models", "show", "org/small-model")
    assert result.exit_code == 0
    assert "8,192 tokens" in result.stdout
    assert "$0.04 per 1M tokens" in result.stdout
    assert "sparewatt chat org/small-model" in result.stderr


def test_show_as_json(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models/org/small-model", MODEL)
    assert json.loads(run("models", "show", "org/small-model", "--json").stdout) == MODEL


@pytest.mark.parametrize(
    "before", [["--json"], ["--api-key", "show", "--json"], ["--api-key=x", "--json"]], ids=" ".join
)
def test_options_may_stand_before_show(network: FakeNetwork, run: Run, before: list[str]) -> None:
    network.on("GET /v1/models/org/small-model", MODEL)
    assert json.loads(run("models", *before, "show", "org/small-model").stdout) == MODEL


def test_a_word_after_two_dashes_is_no_command(run: Run) -> None:
    result = run("models", "--", "show")
    assert result.exit_code == 2
    assert "Usage: sparewatt models list" in result.stderr


def test_show_of_an_unknown_model_is_not_found(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/models/x", 404, "model_not_found", "The model 'x' is not served by this network.")
    result = run("models", "show", "x")
    assert result.exit_code == 4
    assert result.stderr == (
        "error: The model 'x' is not served by this network.\nSee what is served with 'sparewatt models'.\n"
    )


def test_a_wrong_key_is_an_error_of_its_own(network: FakeNetwork, run: Run) -> None:
    network.fail("GET /v1/models", 401, "invalid_api_key", f"The key {KEY} is not known.")
    result = run("models", "--json")
    assert result.exit_code == 3
    assert KEY not in result.output
    told = json.loads(result.stderr)["error"]
    assert (told["code"], told["status"], told["type"]) == ("invalid_api_key", 401, "t")


def test_an_answer_of_another_shape_is_explained(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models", {"models": []})
    result = run("models")
    assert result.exit_code == 1
    assert f"The gateway at {network.base_url} answered something that this version" in result.stderr
    assert "does not know" in result.stderr
    assert "Update" in result.stderr


# names


def test_show_lists_what_else_a_model_is_called(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/models/m", MODEL | {"id": "m", "aliases": ["org/M", "m:latest"]})
    assert "Also called    org/M, m:latest" in run("models", "show", "m").stdout


ALIAS = {"name": "ours", "target": "llama-3.1-8b", "created_at": 1.0}


def test_an_alias_is_set_listed_and_removed(network: FakeNetwork, run: Run) -> None:
    network.on("POST /v1/model-aliases", ALIAS, status=201)
    network.on("GET /v1/model-aliases", {"object": "list", "data": [ALIAS]})
    network.on("DELETE /v1/model-aliases/org/ours", ALIAS | {"name": "org/ours"})
    assert run("models", "alias", "ours", "llama-3.1-8b").stderr == "ours is llama-3.1-8b now.\n"
    assert network.requests[-1].body == {"name": "ours", "target": "llama-3.1-8b"}
    assert run("models", "aliases").stdout.split() == ["NAME", "MODEL", "ours", "llama-3.1-8b"]
    assert json.loads(run("models", "aliases", "--json").stdout)["data"] == [ALIAS]
    assert run("models", "unalias", "org/ours").stderr == "org/ours is no alias any more.\n"


def test_without_aliases_the_next_step_is_named(network: FakeNetwork, run: Run) -> None:
    network.on("GET /v1/model-aliases", {"object": "list", "data": []})
    assert "sparewatt models alias NAME MODEL" in run("models", "aliases").stderr
