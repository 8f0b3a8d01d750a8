from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import ModelNotFound, NoCapacity, NoEligibleNode
from sparewatt.core.ids import ModelId
from sparewatt.inference.dispatch.failure_reasons import ContextTooLong
from sparewatt.inference.dispatch.node_selection import no_match_error
from sparewatt.inference.matcher.explain import describe, nearest_models
from sparewatt.inference.matcher.formula import BALANCED, NEURALGRID, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision, MatchJob, Rejection
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import GIB, a_job, a_model, a_row, node_id, situation, some_specs, table_of


def decide(rows: list[NodeRow], job: MatchJob | None = None, policy: Ranking = BALANCED) -> Decision:
    return match(job or a_job(), table_of(*rows), situation(), ranking=policy, seed=1)


def explain(rows: list[NodeRow], job: MatchJob | None = None, policy: Ranking = BALANCED) -> dict[str, Any]:
    explained: dict[str, Any] = msgspec.to_builtins(describe(decide(rows, job, policy), {row.id: row for row in rows}))
    return explained


def mixed_rows() -> list[NodeRow]:
    cold = a_model(state="on_disk")
    return [
        a_row(1),
        a_row(2, connected=False),
        a_row(3, load=NodeLoad(draining=True)),
        a_row(4, specs=some_specs(a_model(context_length=100))),
        a_row(5, specs=some_specs(cold, vram_bytes=4 * GIB)),
        a_row(6, specs=some_specs(a_model(measured=None))),
        a_row(7, load=NodeLoad(foreign=99)),
        a_row(8, specs=some_specs(a_model(id="another"))),
        a_row(9),
    ]


def test_the_funnel_counts_every_node_once() -> None:
    explained = explain(mixed_rows())
    dropped = {step["filter"]: step["dropped"] for step in explained["funnel"]}
    assert dropped == {
        "model": 1,
        "online": 1,
        "accepting": 1,
        "context": 1,
        "vram": 1,
        "measured": 1,
        "capacity": 1,
        "timed": 0,
        "checked": 0,
        "not_tried": 0,
        "shortlist": 0,
    }
    assert explained["candidates_total"] == 9
    assert explained["funnel"][-1]["left"] == 9 - sum(dropped.values()) == len(explained["ranked"])


def test_each_step_of_the_funnel_leaves_what_it_did_not_drop() -> None:
    explained = explain(mixed_rows())
    left = explained["candidates_total"]
    for step in explained["funnel"]:
        left -= step["dropped"]
        assert step["left"] == left


def test_every_node_that_has_the_model_and_was_stopped_has_its_reason_in_words() -> None:
    rejected = {item["node"]: item for item in explain(mixed_rows())["rejected"]}
    assert {node: item["reason"] for node, item in rejected.items()} == {
        node_id(2): "offline",
        node_id(3): "draining",
        node_id(4): "prompt_too_long",
        node_id(5): "too_little_vram",
        node_id(6): "not_measured",
        node_id(7): "full",
    }
    assert rejected[node_id(4)]["detail"] == "holds 100 tokens of context; the prompt has at least 125"
    assert rejected[node_id(7)]["detail"] == "already has all the jobs it may queue (36)"
    assert all(item["name"] == "attic" for item in rejected.values())


@pytest.mark.parametrize("reason", list(Rejection))
def test_there_is_a_sentence_for_each_reason(reason: Rejection) -> None:
    from sparewatt.inference.matcher.explain import _SENTENCES

    assert _SENTENCES[reason].format(needed=1.0, had=2.0)


def test_ranked_candidates_show_cost_in_seconds_for_balanced() -> None:
    best = explain(mixed_rows())["ranked"][0]
    assert best["score"] is None
    assert best["cost_s"] == pytest.approx(sum(best["parts"].values()), abs=1e-5)
    assert list(best["parts"]) == [*BALANCED.part_names, "jitter"]
    assert best["price_usd"] == "0.000022"


def test_ranked_candidates_show_a_score_for_neuralgrid() -> None:
    best = explain(mixed_rows(), policy=NEURALGRID)["ranked"][0]
    assert best["cost_s"] is None
    assert best["score"] == pytest.approx(best["parts"]["vram"] + best["parts"]["compute"] + best["parts"]["cost"])


def test_the_chosen_node_is_the_best_or_none() -> None:
    explained = explain(mixed_rows())
    assert explained["chosen"] == explained["ranked"][0]["node"]
    assert explain([])["chosen"] is None


def test_a_node_that_is_gone_is_explained_without_its_name() -> None:
    decision = decide([a_row(1), a_row(2, connected=False)])
    explained = msgspec.to_builtins(describe(decision, {}))
    assert explained["ranked"][0]["name"] is None
    assert explained["rejected"][0]["name"] is None


def test_relaxations_are_shown_only_when_nobody_was_eligible() -> None:
    long = a_row(1, specs=some_specs(a_model(context_length=100)))
    assert explain([long])["nearest_relaxations"] == ["a prompt under 100 tokens adds 1 node"]
    assert explain([long, a_row(2)])["nearest_relaxations"] == []


def test_a_relaxation_counts_only_the_nodes_it_would_add() -> None:
    rows = [a_row(n, specs=some_specs(a_model(context_length=size))) for n, size in ((1, 100), (2, 120), (3, 120))]
    assert explain(rows)["nearest_relaxations"] == ["a prompt under 120 tokens adds 2 nodes"]


def test_relaxations_name_memory_absence_and_load() -> None:
    rows = [
        a_row(1, specs=some_specs(a_model(state="on_disk"), vram_bytes=4_000_000_000)),
        a_row(2, connected=False),
        a_row(3, load=NodeLoad(foreign=99)),
    ]
    assert explain(rows)["nearest_relaxations"] == [
        "a job that fits 4e+09 bytes of memory adds 1 node",
        "waiting for 1 node to come back",
        "waiting for 1 node to finish a job",
    ]


# the error that goes with it


def test_an_unknown_model_names_the_nearest() -> None:
    rows = [a_row(1)]
    error = no_match_error(decide(rows, a_job(model=ModelId("lama-3-8b"))), table_of(*rows))
    assert isinstance(error, ModelNotFound)
    assert error.nearest == ("llama-3-8b",)


def test_an_empty_network_says_so() -> None:
    error = no_match_error(decide([]), NodeTable())
    assert isinstance(error, ModelNotFound)
    assert error.nearest == ()


@pytest.mark.parametrize(
    "row",
    [
        a_row(1, connected=False),
        a_row(1, load=NodeLoad(draining=True)),
        a_row(1, load=NodeLoad(foreign=99)),
        a_row(1, specs=some_specs(a_model(measured=None))),
    ],
    ids=["offline", "draining", "full", "not measured"],
)
def test_what_time_can_mend_is_no_capacity_with_a_retry(row: NodeRow) -> None:
    error = no_match_error(decide([row]), table_of(row))
    assert isinstance(error, NoCapacity)
    assert error.retry_after_s


def test_a_prompt_too_long_for_all_is_the_clients_error() -> None:
    rows = [a_row(n, specs=some_specs(a_model(context_length=100 + n))) for n in (1, 2)]
    error = no_match_error(decide(rows), table_of(*rows))
    assert isinstance(error, ContextTooLong)
    assert "102 tokens" in error.message


def test_a_prompt_too_long_is_told_also_when_its_node_is_beyond_the_kept_rejections() -> None:
    small = some_specs(a_model(state="on_disk"), vram_bytes=1)
    rows = [a_row(n, specs=small) for n in range(1, 101)] + [a_row(200, specs=some_specs(a_model(context_length=100)))]
    assert isinstance(no_match_error(decide(rows), table_of(*rows)), ContextTooLong)


def test_too_little_memory_everywhere_is_no_eligible_node() -> None:
    rows = [a_row(1, specs=some_specs(a_model(state="on_disk"), vram_bytes=1))]
    assert isinstance(no_match_error(decide(rows), table_of(*rows)), NoEligibleNode)


def test_nearest_models_ignore_case_and_come_best_first() -> None:
    known = ["Llama-3-8B", "qwen2.5-7b", "llama-3-70b", "mistral"]
    assert nearest_models("LLAMA-3-8b", known)[:2] == ["Llama-3-8B", "llama-3-70b"]
    assert len(nearest_models("x", known)) == 3
    assert nearest_models("x", []) == []
