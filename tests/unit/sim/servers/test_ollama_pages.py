from __future__ import annotations

import msgspec
import pytest

from sparewatt.sim.servers.facts import ServerLoad
from sparewatt.sim.servers.ollama_pages import live_pages, parameter_size, static_pages
from tests.unit.sim.servers.conftest import make_facts


@pytest.mark.parametrize(
    ("parameters", "text"),
    [(8_030_261_248, "8.0B"), (7_000_000_000, "7B"), (134_515_008, "134.52M"), (270_000_000, "270M"), (12, "12")],
)
def test_parameters_are_written_as_ollama_writes_them(parameters: int, text: str) -> None:
    assert parameter_size(parameters) == text


def test_the_shape_of_the_model_is_shown() -> None:
    shown = msgspec.json.decode(static_pages(make_facts("ollama"))["/api/show"])

    assert shown["model_info"]["llama.block_count"] == 32
    assert shown["model_info"]["llama.attention.head_count_kv"] == 8


def test_a_loaded_model_takes_its_weights_and_its_whole_kv_cache() -> None:
    facts = make_facts("ollama", slots=2)
    (loaded,) = msgspec.json.decode(live_pages(facts, ServerLoad())["/api/ps"])["models"]

    assert loaded["size_vram"] - facts.weights_bytes == 2 * facts.context_length * facts.kv_bytes_per_token
    assert loaded["context_length"] == facts.context_length


def test_the_digest_tells_quantizations_apart() -> None:
    digests = set()
    for quantization in ("Q4_K_M", "Q8_0"):
        pages = static_pages(make_facts("ollama", quantization=quantization))
        digests.add(msgspec.json.decode(pages["/api/tags"])["models"][0]["digest"])

    assert len(digests) == 2
