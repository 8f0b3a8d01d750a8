"""Each figure comes from the best source that there is, whatever the server leaves out or makes up."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.backends.backend import BackendLoad, BackendModel
from sparewatt.node.facts.figure import Figure
from sparewatt.node.facts.owner_facts import OwnerFacts
from sparewatt.node.facts.server_facts import (
    KV_BYTES_DEFAULT,
    KV_SHARE,
    ModelFacts,
    ServerAnswers,
    ServerFacts,
    kv_capacity_bytes,
    resolve_facts,
)
from sparewatt.node.hardware.gpu import Hardware
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder
from sparewatt.protocol.link.node_report import validated

GB = 10**9
RTX_4090 = Hardware("NVIDIA GeForce RTX 4090", 1, 24 * GB, 82.6)
H200 = Hardware("NVIDIA H200", 1, 150 * GB, 67)
NO_GPU = Hardware("cpu", 0, 32 * GB, 1)
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_KV = 131_072


def model(name: str = LLAMA, **known: Any) -> BackendModel:
    given: dict[str, Any] = {"context_length": 32768, "quantization": None, "weights_bytes": 0}
    given |= {"kv_bytes_per_token": 0, "parameters": None} | known
    return BackendModel(name, "warm", **given)


def resolve(
    *models: BackendModel,
    kind: str = "vllm",
    slots: int | None = None,
    load: BackendLoad | None = None,
    hardware: Hardware = RTX_4090,
    owner: OwnerFacts | None = None,
    **more: Any,
) -> ServerFacts:
    answers = ServerAnswers(kind, models or [model()], slots, load)
    return resolve_facts(answers, owner=owner or OwnerFacts(), hardware=hardware, **more)[0]


def resolve_one(given: BackendModel, *, kind: str = "vllm", owner: OwnerFacts | None = None) -> ModelFacts:
    (facts,) = resolve(given, kind=kind, owner=owner).models
    return facts


def vllm_load(tokens: int | None = 35_312, **more: Any) -> BackendLoad:
    return BackendLoad(running=0, context_tokens=tokens, **more)


class TestSlots:
    def test_a_vllm_with_little_memory_still_runs_as_many_requests_as_it_schedules(self) -> None:
        """35k tokens of cache and a context of 32,768 are one request at worst, and hundreds as they are."""
        facts = resolve(load=vllm_load())
        assert facts.slots == Figure(256, "default")
        assert facts.kv_tokens == Figure(35_312, "server")
        assert kv_capacity_bytes(facts, bytes_max=1 << 50) == 35_312 * LLAMA_KV

    @pytest.mark.parametrize(
        ("hardware", "slots"),
        [
            (RTX_4090, 256),
            (H200, 1024),
            (Hardware("NVIDIA H100 80GB HBM3", 2, 2 * 85 * GB, 67), 1024),
            (Hardware("NVIDIA A100-SXM4-80GB", 1, 85 * GB, 19), 256),
            (Hardware("RTX 4090", 8, 8 * 24 * GB, 82), 256),
            (NO_GPU, 128),
        ],
        ids=lambda value: getattr(value, "gpu", value),
    )
    def test_the_default_of_vllm_depends_on_the_memory_of_one_card(self, hardware: Hardware, slots: int) -> None:
        assert resolve(hardware=hardware).slots == Figure(slots, "default")

    def test_each_engine_of_a_data_parallel_vllm_has_its_own(self) -> None:
        assert resolve(load=vllm_load(engines=4)).slots.value == 4 * 256

    @pytest.mark.parametrize(
        ("tokens", "context", "slots"),
        [(None, 32768, 2048), (20480, 32768, 2048), (1000, 32768, 500), (10**6, 8192, 4096)],
    )
    def test_the_default_of_sglang_depends_on_its_cache(self, tokens: int | None, context: int, slots: int) -> None:
        facts = resolve(model(context_length=context), kind="sglang", load=vllm_load(tokens) if tokens else None)
        assert facts.slots == Figure(slots, "default")

    @pytest.mark.parametrize(("kind", "slots"), [("ollama", 1), ("lm-studio", 1), ("llama.cpp", 4), ("openai", 4)])
    def test_other_kinds_have_their_own_default(self, kind: str, slots: int) -> None:
        assert resolve(kind=kind).slots == Figure(slots, "default")

    def test_the_order_is_owner_server_observation_default(self) -> None:
        assert resolve(slots=8, learned_slots=16, owner=OwnerFacts(slots=4)).slots == Figure(4, "owner")
        assert resolve(slots=8, learned_slots=16).slots == Figure(8, "server")
        assert resolve(learned_slots=16).slots == Figure(16, "learned")

    @pytest.mark.parametrize("lie", [10**18, 4097, -3])
    def test_a_lie_stays_within_a_report(self, lie: int) -> None:
        assert 1 <= resolve(slots=lie).slots.value <= 4096


class TestKvCache:
    @pytest.mark.parametrize("kind", ["ollama", "lm-studio", "llama.cpp"])
    def test_slots_with_a_context_each_hold_all_of_them(self, kind: str) -> None:
        facts = resolve(model(context_length=8192), kind=kind, slots=3)
        assert facts.kv_tokens == Figure(3 * 8192, "server")

    def test_of_several_models_of_such_a_server_none_has_all_of_it(self) -> None:
        assert resolve(model("a-8b"), model("b-8b"), kind="ollama").kv_tokens is None

    @pytest.mark.parametrize("kind", ["vllm", "sglang", "openai"])
    def test_a_shared_cache_of_unknown_size_is_unknown(self, kind: str) -> None:
        facts = resolve(kind=kind)
        assert facts.kv_tokens is None
        assert kv_capacity_bytes(facts, bytes_max=1 << 50) is None

    def test_the_owner_knows_better(self) -> None:
        assert resolve(load=vllm_load(), owner=OwnerFacts(kv_tokens=99)).kv_tokens == Figure(99, "owner")

    def test_adapters_on_the_same_weights_share_one_capacity(self) -> None:
        lora = model("my-adapter", weights_name=LLAMA)
        facts = resolve(model(weights_name=LLAMA), lora, load=vllm_load())
        assert kv_capacity_bytes(facts, bytes_max=1 << 50) == 35_312 * LLAMA_KV

    def test_models_of_different_shape_have_none(self) -> None:
        facts = resolve(model("a-8b"), model("b-70b"), load=vllm_load())
        assert kv_capacity_bytes(facts, bytes_max=1 << 50) is None

    def test_ten_to_the_eighteen_tokens_are_not_reported(self) -> None:
        facts = resolve(load=vllm_load(10**18))
        assert facts.kv_tokens is not None
        assert facts.kv_tokens.value == 1 << 40
        assert kv_capacity_bytes(facts, bytes_max=1 << 50) == 1 << 50

    @pytest.mark.parametrize("tokens", [0, -5])
    def test_no_tokens_are_no_figure(self, tokens: int) -> None:
        kv_tokens = resolve(load=vllm_load(tokens)).kv_tokens
        assert kv_tokens is None or kv_tokens.value >= 1


class TestModel:
    def test_a_model_of_a_known_family_has_all_figures(self) -> None:
        facts = resolve_one(model())
        assert facts.weights_bytes == Figure(16_060_000_000, "family table")
        assert facts.kv_bytes_per_token == Figure(LLAMA_KV, "family table")
        assert facts.context == Figure(32768, "server")

    def test_what_the_server_loaded_says_more_than_an_alias(self) -> None:
        facts = resolve_one(model("gpt-4", weights_name="/models/Qwen2.5-7B-Instruct-AWQ"))
        assert facts.weights_bytes == Figure(round(7.616e9 * 5 / 8), "family table")
        assert facts.quantization == Figure("int4", "model name")
        assert facts.kv_bytes_per_token == Figure(57_344, "family table")

    def test_the_servers_own_figures_come_first(self) -> None:
        facts = resolve_one(model(weights_bytes=5 * GB, kv_bytes_per_token=1000, quantization="Q4_K_M"))
        assert facts.weights_bytes == Figure(5 * GB, "server")
        assert facts.kv_bytes_per_token == Figure(1000, "server")
        assert facts.quantization == Figure("Q4_K_M", "server")

    def test_the_owner_comes_before_the_server(self) -> None:
        owner = OwnerFacts(context=1, weights_bytes=2, kv_bytes_per_token=3, prefix_cache_tokens=0)
        facts = resolve_one(model(weights_bytes=5, kv_bytes_per_token=6, prefix_cache_tokens=7), owner=owner)
        assert facts.context == Figure(1, "owner")
        assert facts.weights_bytes == Figure(2, "owner")
        assert facts.kv_bytes_per_token == Figure(3, "owner")
        assert facts.prefix_cache_tokens == Figure(0, "owner")

    def test_an_unknown_model_has_the_size_in_its_name_and_a_usual_share_for_a_token(self) -> None:
        facts = resolve_one(model("someone/new-13B"))
        assert facts.weights_bytes == Figure(26 * GB, "model name")
        assert facts.kv_bytes_per_token == Figure(26 * GB // KV_SHARE, "share of weights")

    def test_quantized_weights_do_not_shrink_the_cache(self) -> None:
        wide, narrow = (resolve_one(model(name)) for name in ("new-13B", "new-13B-AWQ"))
        assert wide.kv_bytes_per_token == narrow.kv_bytes_per_token
        by_size = resolve_one(model("new", weights_bytes=4_800_000_000, quantization="Q4_0"))
        assert by_size.kv_bytes_per_token == Figure(160_000, "share of weights")

    def test_a_model_about_which_nothing_is_known_has_the_usual_room_for_a_token(self) -> None:
        facts = resolve_one(model("a-model"))
        assert facts.weights_bytes is None
        assert facts.kv_bytes_per_token == Figure(KV_BYTES_DEFAULT, "default")

    def test_a_cache_with_8_bits_takes_half(self) -> None:
        assert resolve_one(model(kv_bits=8)).kv_bytes_per_token == Figure(LLAMA_KV // 2, "family table")
        assert resolve_one(model("a-model", kv_bits=8)).kv_bytes_per_token.value == KV_BYTES_DEFAULT // 2

    def test_a_name_that_the_number_of_parameters_contradicts_is_not_believed(self) -> None:
        facts = resolve_one(model("llama-3.1-8b", parameters=10**9))
        assert facts.weights_bytes == Figure(2 * GB, "server")
        assert facts.kv_bytes_per_token == Figure(2 * GB // KV_SHARE, "share of weights")

    def test_a_mixture_of_experts_claims_the_speed_of_its_active_parameters(self, tmp_path: Any) -> None:
        answers = ServerAnswers("vllm", [model("Qwen/Qwen3-30B-A3B")])
        _, (found,) = resolve_facts(answers, owner=OwnerFacts(), hardware=RTX_4090)
        settings = NodeSettings("http://127.0.0.1:1", data_dir=tmp_path)
        claimed = SpecsBuilder(settings, RTX_4090, speed_of=lambda _: None).model_report(found).claimed
        assert claimed is not None
        assert claimed.prefill_tps == pytest.approx(82.6e12 / (2 * 3.35e9))

    @pytest.mark.parametrize(
        "lies",
        [
            {"weights_bytes": 10**18, "kv_bytes_per_token": 10**18},
            {"weights_bytes": -1, "kv_bytes_per_token": -1},
            {"parameters": 10**18},
            {"parameters": 1},
            {"prefix_cache_tokens": 10**18},
            {"weights_name": "9999b-" * 10_000},
            {"quantization": "Q4_K_M" * 1000, "weights_bytes": GB},
        ],
        ids=str,
    )
    def test_lies_stay_within_a_report(self, tmp_path: Any, lies: dict[str, Any]) -> None:
        answers = ServerAnswers("vllm", [model(**({"quantization": None} | lies))], load=vllm_load(10**18))
        facts, (found,) = resolve_facts(answers, owner=OwnerFacts(), hardware=RTX_4090)
        assert 1 <= facts.models[0].kv_bytes_per_token.value <= 1 << 30
        builder = SpecsBuilder(NodeSettings("http://127.0.0.1:1", data_dir=tmp_path), RTX_4090, speed_of=lambda _: None)
        if found.quantization is None:
            specs = builder.build(BackendSpecs("vllm", facts.slots.value, [found]))
            assert validated(specs) == specs


class TestMemoryAndPrefill:
    def test_a_measured_card_comes_before_its_data_sheet(self) -> None:
        assert resolve(copy_bytes_s=9e11).bandwidth_bytes_s == Figure(9e11, "measured")
        assert resolve().bandwidth_bytes_s == Figure(1008e9, "card table")

    def test_an_unknown_card_has_no_bandwidth(self) -> None:
        assert resolve(hardware=NO_GPU).bandwidth_bytes_s is None

    @pytest.mark.parametrize(("name", "cards"), [("llama-3.1-8b", 1), ("llama-3.1-70b-awq", 2), ("llama-3.1-70b", 6)])
    def test_weights_spread_over_cards_have_the_bandwidth_of_all_of_them(self, name: str, cards: int) -> None:
        machine = Hardware("RTX 4090", 8, 8 * 24 * GB, 82)
        assert resolve(model(name), hardware=machine).bandwidth_bytes_s == Figure(cards * 1008e9, "card table")

    def test_no_more_cards_are_in_use_than_there_are(self) -> None:
        machine = Hardware("RTX 4090", 2, 2 * 24 * GB, 82)
        facts = resolve(hardware=machine, load=vllm_load(10**12))
        assert facts.bandwidth_bytes_s == Figure(2 * 1008e9, "card table")

    def test_chunked_prefill_is_what_the_server_says_else_its_default(self) -> None:
        assert resolve(load=vllm_load(chunks_prefill=False)).chunked_prefill == Figure(False, "server")
        assert resolve().chunked_prefill == Figure(True, "default")
        assert resolve(kind="openai").chunked_prefill is None
