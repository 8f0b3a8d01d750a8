"""What a simulated node learns from its server's pages, and what each kind of server keeps to itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.policy.gpu_figures import memory_bandwidth_of
from sparewatt.sim.fleet.reported_facts import ReportedFacts, driver_name, reported_facts
from sparewatt.sim.scenario import GB, SLOTS, SimGpu, SimModel, read_fleet, read_models
from tests.unit.sim.conftest import H200, SMALL, make_site

LLAMA_8B, QWEN_32B_AWQ = read_models()[0], read_models()[4]


def facts(server: str, model: SimModel = LLAMA_8B, *, slots: int | None = None) -> ReportedFacts:
    return reported_facts(make_site(gpu=H200, server=server, slots=slots or SLOTS[server][-1]), model)


def test_the_models_of_the_table_are_those_of_the_tests() -> None:
    assert (LLAMA_8B.name, QWEN_32B_AWQ.name) == ("8b-fp16", "32b-int4")


@pytest.mark.parametrize("server", SLOTS)
@pytest.mark.parametrize("model", read_models(), ids=lambda model: model.name)
def test_every_model_is_known_well_enough_on_every_server(server: str, model: SimModel) -> None:
    found = facts(server, model)
    assert found.weights_bytes == pytest.approx(model.weights_bytes, rel=0.2)
    assert found.kv_bytes_per_token == pytest.approx(model.kv_bytes_per_token, rel=0.2)
    assert found.bandwidth_bytes_s == 4800e9
    assert found.knows_kv_tokens


def test_vllm_tells_no_weights_so_the_family_table_does() -> None:
    known, unknown = facts("vllm"), facts("vllm", SMALL)
    assert known.weights_bytes != int(LLAMA_8B.weights_bytes)
    assert known.weights_bytes == pytest.approx(8.03e9 * 2, rel=0.001)
    assert unknown.weights_bytes == 0


def test_vllm_does_not_tell_its_slots() -> None:
    assert facts("vllm", slots=7).slots == facts("vllm", slots=256).slots


@pytest.mark.parametrize("server", ["sglang", "llama.cpp"])
def test_others_tell_their_slots(server: str) -> None:
    assert [facts(server, slots=slots).slots for slots in (3, 16)] == [3, 16]


def test_ollama_tells_no_slots_so_one_is_assumed() -> None:
    assert [facts("ollama", slots=slots).slots for slots in (1, 4)] == [1, 1]


@pytest.mark.parametrize("server", ["llama.cpp", "ollama"])
def test_slotted_servers_tell_the_weights_of_the_file(server: str) -> None:
    assert facts(server, SMALL).weights_bytes == int(SMALL.weights_bytes)
    assert facts(server).context_length == 32_768


@pytest.mark.parametrize(
    ("server", "caches"), [("vllm", True), ("sglang", True), ("llama.cpp", False), ("ollama", False)]
)
def test_only_batching_servers_are_known_to_cache_prefixes(server: str, *, caches: bool) -> None:
    assert facts(server).caches_prefixes is caches


def test_a_context_is_as_long_as_the_server_was_started_with() -> None:
    assert facts("vllm").context_length == facts("sglang").context_length == 131_072


def test_the_machines_true_speed_is_no_fact_of_the_server() -> None:
    site = make_site(gpu=H200)
    assert reported_facts(replace(site, speed=0.3), LLAMA_8B) == reported_facts(site, LLAMA_8B)


@pytest.mark.parametrize("gpu", read_fleet(), ids=lambda gpu: gpu.name)
def test_every_card_of_the_fleet_is_known_by_its_drivers_name(gpu: SimGpu) -> None:
    assert memory_bandwidth_of(driver_name(gpu)) == pytest.approx(gpu.bandwidth_gb_s * GB, rel=0.2)
