"""Which name a node's model gets, which model a client means, and how far another node's word about a digest goes."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.inference.fleet.model_catalog import (
    ModelCatalog,
    ResolvedModel,
    base_name,
    server_id_of,
    with_quantization,
)
from sparewatt.protocol.link.node_report import MODEL_ID_CHARS_MAX, ModelReport, NodeLoad, NodeSpecs
from tests.unit.inference.nodes import a_model, node_id, some_specs

ANN, BOB, CAT, DAN = (AccountId(f"acc_{name}") for name in ("ann", "bob", "cat", "dan"))
Q4_BYTES, Q8_BYTES = 4_920_000_000, 8_540_000_000
DIGEST = "sha256:667b0c1932bc6ffc593ed1d03f895bf2dc8dc6df21db3042284a6f4416b06a29"


def a_report(model_id: str, **changes: Any) -> ModelReport:
    return a_model(**({"id": model_id, "weights_bytes": Q4_BYTES, "quantization": "Q4_K_M"} | changes))


def names_of(specs: NodeSpecs) -> dict[str, str]:
    """By the server's ids."""
    return {server_id_of(model): model.id for model in specs.models}


def named(catalog: ModelCatalog, *reports: ModelReport, number: int = 1, owner: AccountId = ANN) -> dict[str, str]:
    return names_of(catalog.named(node_id(number), owner, some_specs(*reports)))


def somebody(_: str) -> bool:
    """A node has a model of that name."""
    return True


def nobody(_: str) -> bool:
    return False


# names of reports


@pytest.mark.parametrize(
    "model_id", ["llama3.1:8b-instruct-q4_K_M", "meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B-Instruct-Q4_K_M"]
)
def test_every_owner_s_id_becomes_one_name_and_is_kept(model_id: str) -> None:
    (model,) = ModelCatalog().named(node_id(1), ANN, some_specs(a_report(model_id))).models
    assert (model.id, model.served_as) == ("llama-3.1-8b", model_id)


def test_a_report_that_has_the_network_s_name_is_not_touched() -> None:
    specs = some_specs(a_report("llama-3.1-8b"), a_report("deterministic"))
    assert ModelCatalog().named(node_id(1), ANN, specs) is specs


def test_naming_twice_changes_nothing() -> None:
    catalog = ModelCatalog()
    once = catalog.named(node_id(1), ANN, some_specs(a_report("llama3.1:8b"), a_report("llama3.1")))
    assert catalog.named(node_id(1), ANN, once) is once


def test_a_server_that_reports_no_quantization_is_taken_by_its_id_s_word() -> None:
    report = a_report("Llama-3.1-8B-Instruct.Q8_0.gguf", quantization=None, weights_bytes=Q8_BYTES)
    (model,) = ModelCatalog().named(node_id(1), ANN, some_specs(report)).models
    assert model.quantization == "Q8_0"


def test_two_quantizations_on_one_node_stay_apart_and_the_smaller_has_the_plain_name() -> None:
    q8 = a_report("llama3.1:8b-instruct-q8_0", quantization="Q8_0", weights_bytes=Q8_BYTES)
    q4 = a_report("llama3.1:8b")
    for reports in ((q8, q4), (q4, q8)):
        assert named(ModelCatalog(), *reports) == {
            "llama3.1:8b-instruct-q8_0": "llama-3.1-8b:q8_0",
            "llama3.1:8b": "llama-3.1-8b",
        }


def test_a_third_id_of_the_same_weights_keeps_itself_and_order_is_the_server_s() -> None:
    reports = [a_report("llama3.1:latest"), a_report("llama3.1:8b"), a_report("llama3.1:8b-instruct-q4_K_M")]
    specs = ModelCatalog().named(node_id(1), ANN, some_specs(*reports))
    assert [model.id for model in specs.models] == ["llama3.1:latest", "llama-3.1-8b", "llama-3.1-8b:q4_k_m"]
    assert [server_id_of(model) for model in specs.models] == [report.id for report in reports]


def test_a_model_that_is_reported_twice_counts_once() -> None:
    specs = ModelCatalog().named(node_id(1), ANN, some_specs(*[a_report("m", quantization=None)] * 2))
    assert [model.id for model in specs.models] == ["m"]


def test_a_small_file_with_a_great_name_gets_a_name_that_nobody_asks_for() -> None:
    """Also not the id that it gives itself: clients may ask for the real model by that id."""
    catalog = ModelCatalog()
    for model_id in ("Llama-3.1-70B-Instruct", "llama-3.1-70b"):
        report = a_report(model_id, weights_bytes=808_000_000)
        naming = catalog.naming_of(ANN, report)
        assert naming.name == f"unverified/{model_id}"
        assert naming.why == "0.808 GB of weights are about 1.3 billion parameters, and llama-3.1-70b has 70.6"
        assert named(catalog, report) == {model_id: f"unverified/{model_id}"}
        assert catalog.resolve(model_id, is_served=nobody).name == "llama-3.1-70b"


def test_a_long_id_stays_within_the_bound() -> None:
    long_id = "x" * (MODEL_ID_CHARS_MAX - 5) + "-70b"
    naming = ModelCatalog().naming_of(ANN, a_report(f"{long_id}.gguf"[-MODEL_ID_CHARS_MAX:], weights_bytes=10**8))
    assert naming.why is not None
    assert len(naming.name) == MODEL_ID_CHARS_MAX


def test_load_is_told_by_the_network_s_names() -> None:
    catalog = ModelCatalog()
    catalog.named(node_id(1), ANN, some_specs(a_report("llama3.1:8b"), a_report("m")))
    load = NodeLoad(foreign=2, foreign_models=("llama3.1:8b", "m"))
    assert catalog.with_names(node_id(1), load).foreign_models == ("llama-3.1-8b", "m")
    assert catalog.with_names(node_id(2), load) is load
    idle = NodeLoad()
    assert catalog.with_names(node_id(1), idle) is idle


# the operator's aliases


def test_an_alias_names_reports_and_requests() -> None:
    catalog = ModelCatalog({"our-llama": "llama-3.1-8b"})
    assert named(catalog, a_report("our-llama")) == {"our-llama": "llama-3.1-8b"}
    assert catalog.resolve("our-llama", is_served=nobody) == ResolvedModel("llama-3.1-8b")
    assert catalog.aliases_of("llama-3.1-8b")[-1] == "our-llama"


def test_an_alias_of_a_digest_names_whoever_reports_it() -> None:
    catalog = ModelCatalog({DIGEST: "llama-3.1-8b"})
    assert named(catalog, a_report("whatever", weights_digest=DIGEST)) == {"whatever": "llama-3.1-8b"}
    assert named(catalog, a_report("whatever")) == {"whatever": "whatever"}


def test_an_alias_does_not_vouch_for_a_size() -> None:
    catalog = ModelCatalog({"our-llama": "llama-3.1-70b"})
    assert named(catalog, a_report("our-llama", weights_bytes=10**9)) == {"our-llama": "unverified/our-llama"}


def test_an_alias_with_a_star_is_for_all_names_that_begin_so() -> None:
    catalog = ModelCatalog({"claude-*": "big", "claude-haiku-*": "small", "claude-opus-4": "huge"})
    assert catalog.resolve("claude-sonnet-4-5", is_served=nobody).name == "big"
    assert catalog.resolve("claude-haiku-4-5-20251001", is_served=nobody).name == "small"
    assert catalog.resolve("claude-opus-4", is_served=nobody).name == "huge"
    assert catalog.resolve("claude", is_served=nobody).name == "claude"
    assert catalog.aliases_of("big") == ["claude-*"]


def test_an_alias_with_a_star_hides_no_model_that_is_served_or_known() -> None:
    catalog = ModelCatalog({"llama*": "big", "our-*": "big"})
    assert catalog.resolve("llama3.1:8b", is_served=nobody).name == "llama-3.1-8b"
    assert catalog.resolve("our-tune", is_served=lambda name: name == "our-tune").name == "our-tune"
    assert catalog.set_aliases({})
    assert catalog.resolve("our-other", is_served=nobody).name == "our-other"


def test_only_other_aliases_are_a_change() -> None:
    catalog = ModelCatalog({"a": "b"})
    assert not catalog.set_aliases({"a": "b"})
    assert catalog.set_aliases({})
    assert catalog.aliases == {}


# weights digests


def vouch(catalog: ModelCatalog, number: int, owner: AccountId, model_id: str = "llama3.1:8b", **changes: Any) -> None:
    named(catalog, a_report(model_id, **({"weights_digest": DIGEST} | changes)), number=number, owner=owner)


OURS = a_report("our-own-name", weights_digest=DIGEST)


def test_two_other_owners_that_agree_give_the_same_weights_their_name() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, BOB)
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}
    vouch(catalog, 3, CAT)
    assert catalog.take_stale() == {node_id(1)}
    assert named(catalog, OURS) == {"our-own-name": "llama-3.1-8b"}
    assert catalog.resolve("our-own-name", is_served=nobody).name == "llama-3.1-8b"
    assert catalog.resolve("our-own-name", is_served=somebody).name == "our-own-name"


def test_many_nodes_of_one_other_owner_are_one_voice() -> None:
    """Else whoever runs two nodes could move others' models under a name of his choice."""
    catalog = ModelCatalog()
    for number in (2, 3, 4):
        vouch(catalog, number, BOB)
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}


def test_an_owner_s_own_node_is_enough() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, ANN)
    assert named(catalog, OURS) == {"our-own-name": "llama-3.1-8b"}


def test_owners_that_disagree_give_no_name() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, BOB)
    vouch(catalog, 3, CAT)
    vouch(catalog, 4, DAN, "qwen3-8b")
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}


def test_a_copied_digest_over_weights_of_another_size_gives_no_name() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, BOB, weights_bytes=Q4_BYTES + 10**9)
    vouch(catalog, 3, CAT, weights_bytes=Q4_BYTES - 10**9)
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}
    assert named(catalog, a_report("our-own-name", weights_digest=DIGEST, weights_bytes=0)) == {
        "our-own-name": "our-own-name"
    }


def test_a_known_id_is_never_renamed_by_others() -> None:
    catalog = ModelCatalog()
    for number, owner in ((2, BOB), (3, CAT), (4, DAN)):
        vouch(catalog, number, owner, "qwen3-8b")
    assert named(catalog, a_report("llama3.1:8b", weights_digest=DIGEST)) == {"llama3.1:8b": "llama-3.1-8b"}


def test_a_contradicted_name_vouches_for_nothing() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, BOB, "llama3.1:70b")
    vouch(catalog, 3, CAT, "llama3.1:70b")
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}


def test_what_a_node_vouched_for_goes_with_its_report() -> None:
    catalog = ModelCatalog()
    vouch(catalog, 2, BOB)
    vouch(catalog, 3, CAT)
    named(catalog, OURS)
    catalog.take_stale()
    vouch(catalog, 3, CAT)
    assert not catalog.take_stale()  # nothing new
    named(catalog, a_report("m"), number=3, owner=CAT)
    assert catalog.take_stale() == {node_id(1)}
    assert named(catalog, OURS) == {"our-own-name": "our-own-name"}
    assert catalog.resolve("our-own-name", is_served=nobody).name == "our-own-name"


# what clients ask for


@pytest.mark.parametrize(
    ("asked", "is_served", "resolved"),
    [
        ("llama-3.1-8b", True, ResolvedModel("llama-3.1-8b")),
        ("meta-llama/Llama-3.1-8B-Instruct", False, ResolvedModel("llama-3.1-8b")),
        ("llama3.1:8b-instruct-q4_K_M", False, ResolvedModel("llama-3.1-8b", "q4_K_M")),
        ("Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", False, ResolvedModel("llama-3.1-8b", "Q8_0")),
        ("m", False, ResolvedModel("m")),
        ("ggml-model-7b-q4_0.gguf", True, ResolvedModel("ggml-model-7b-q4_0.gguf")),
        ("ggml-model-7b-q4_0.gguf", False, ResolvedModel("ggml-model-7b", "q4_0")),
    ],
)
def test_any_id_of_a_model_means_it(asked: str, is_served: bool, resolved: ResolvedModel) -> None:  # noqa: FBT001
    assert ModelCatalog().resolve(asked, is_served=somebody if is_served else nobody) == resolved


def test_the_second_quantization_of_a_node_is_named_after_the_first() -> None:
    assert with_quantization("m", "Q8_0") == "m:q8_0"
    assert with_quantization("m", None) == "m"
    assert with_quantization("m", "something") == "m"
    assert base_name("m:q8_0", {"m", "m:q8_0"}) == "m"
    assert base_name("m:q8_0", {"m:q8_0"}) == "m:q8_0"
    assert base_name("m", {"m"}) == "m"
