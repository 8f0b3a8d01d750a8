"""One model, one name: what servers call the same weights, and what must never be taken for the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.policy.model_names.known_models import KNOWN_MODELS
from sparewatt.policy.model_names.parser import (
    ModelIdentity,
    NameParts,
    aliases_of,
    identify,
    is_known_name,
    name_parts,
    split_quantization,
    without_directories,
)
from sparewatt.policy.quantization import quantization_of


@pytest.mark.parametrize(
    ("model_id", "quantization"),
    [
        ("llama-3.1-8b", None),
        ("meta-llama/Llama-3.1-8B-Instruct", None),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", None),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "4bit"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "w4a16"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "AWQ"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "FP8"),
        ("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", "4bit"),
        ("llama3.1", None),
        ("llama3.1:latest", None),
        ("llama3.1:8b", None),
        ("llama3.1:8b-instruct-q4_K_M", "q4_K_M"),
        ("library/llama3.1:8b", None),
        ("registry.ollama.ai/library/llama3.1:8b", None),
        ("hf.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "Q4_K_M"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("Meta-Llama-3.1-8B-Instruct.Q8_0.gguf", "Q8_0"),
        ("/srv/models/Meta-Llama-3.1-8B-Instruct-IQ4_XS.gguf", "IQ4_XS"),
        ("C:\\models\\Meta-Llama-3.1-8B-Instruct-f16.gguf", "f16"),
        ("meta-llama_Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("meta-llama-3.1-8b-instruct", None),
        ("meta-llama-3.1-8b-instruct@q4_k_m", "q4_k_m"),
        ("lmstudio-community/meta-llama-3.1-8b-instruct", None),
        ("llama-3.1-8b:q8_0", "q8_0"),
        ("/cache/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a1", None),
    ],
)
def test_every_server_s_id_of_one_model_has_one_name(model_id: str, quantization: str | None) -> None:
    assert identify(model_id) == ModelIdentity("llama-3.1-8b", quantization, 8.03, is_known=True)


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "smollm2-135m"),
        ("smollm2-135m", "smollm2-135m"),
        ("smollm2:135m", "smollm2-135m"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "qwen3-30b-a3b"),
        ("Qwen2.5-Coder-32B-Instruct-Q4_K_M-00001-of-00002.gguf", "qwen2.5-coder-32b"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b"),
        ("phi4:latest", "phi-4"),
        ("microsoft/phi-4", "phi-4"),
        ("nomic-embed-text:latest", "nomic-embed-text-v1.5"),
        ("text-embedding-bge-m3", "text-embedding-bge-m3"),
        ("Mixtral-8x7B-Instruct-v0.1-AWQ", "mixtral-8x7b-v0.1"),
        ("google_gemma-3-4b-it-Q4_K_M.gguf", "gemma-3-4b"),
        ("TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("DeepSeek-R1-Distill-Qwen-7B-Q4_K_M.gguf", "deepseek-r1-distill-qwen-7b"),
    ],
)
def test_ids_of_other_families(model_id: str, name: str) -> None:
    assert identify(model_id).name == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Llama-3.1-8B-Instruct", "Llama-3.1-70B-Instruct"),  # sizes
        ("Llama-3-8B-Instruct", "Llama-3.1-8B-Instruct"),  # versions
        ("Llama-3.1-70B-Instruct", "Llama-3.3-70B-Instruct"),
        ("mistral:v0.2", "mistral:v0.3"),
        ("Qwen3-30B-A3B", "Qwen3-30B-A3B-Instruct-2507"),
        ("Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct-1M"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),  # base and instruct
        ("llama3.1:8b-text-q4_0", "llama3.1:8b-instruct-q4_0"),
        ("Qwen3-8B-Base", "Qwen3-8B"),
        ("google/gemma-3-4b-pt", "google/gemma-3-4b-it"),
        ("gemma3:4b-it-qat", "gemma3:4b"),  # trained once more
        ("Qwen2.5-7B-Instruct", "Qwen2.5-Coder-7B-Instruct"),  # purposes
        ("Llama-3.2-11B-Vision-Instruct", "Llama-3.2-11B-Vision"),
        ("DeepSeek-R1-Distill-Llama-8B", "Llama-3.1-8B-Instruct"),  # distillates
        ("DeepSeek-R1-Distill-Qwen-7B", "Qwen2.5-7B-Instruct"),
        ("deepseek-r1:8b", "deepseek-r1:8b-llama-distill"),  # a tag that has changed its meaning
        ("NousResearch/Hermes-3-Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),  # fine-tunes
        ("Hermes-3-Llama-3.1-8B.Q4_K_M.gguf", "Llama-3.1-8B-Instruct.Q4_K_M.gguf"),
        ("Meta-Llama-3.1-8B-Instruct-abliterated-Q4_K_M.gguf", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"),
        ("somebody/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),  # anybody can use the name
        ("hf.co/somebody/Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "llama3.1:8b"),
        ("somebody/llama3.1:8b", "llama3.1:8b"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct", "Llama-3.1-70B-Instruct"),
        ("OurTune-7B.Q4_K_M.gguf", "OurTune-8B.Q4_K_M.gguf"),
        ("ann/OurTune-7B-GGUF", "bob/OurTune-7B-GGUF"),
    ],
)
def test_two_models_never_get_one_name(one: str, other: str) -> None:
    assert identify(one).name != identify(other).name


@pytest.mark.parametrize(
    "model_id",
    [
        "deterministic",
        "m1",
        "gpt-4o",
        "org/with-slash",
        "model.gguf",
        "ggml-model-Q4_K_M.gguf",
        "Tiny",
        "a:b",
        "our-7b",
    ],
)
def test_an_id_that_says_nothing_is_its_own_name(model_id: str) -> None:
    assert identify(model_id) == ModelIdentity(model_id)


@pytest.mark.parametrize("ending", [".Q4_K_M.gguf", "-Q8_0.gguf", ".IQ2_XXS", "-AWQ", ":q4_0", "-GPTQ-Int4", "-fp8"])
def test_of_an_unknown_model_only_its_quantization_is_left_out(ending: str) -> None:
    found = identify(f"OurTune-v2-7B{ending}")
    assert (found.name, found.billions, found.is_known) == ("OurTune-v2-7B", 7.0, False)
    assert quantization_of(found.quantization) != "unknown"


def test_directories_say_nothing_about_a_file() -> None:
    assert (
        identify("/home/ann/OurTune-7B.Q4_K_M.gguf").name == identify("D:\\OurTune-7B.Q8_0.gguf").name == "OurTune-7B"
    )
    assert identify("/home/ann/OurTune-7B.gguf").name == "OurTune-7B"


@pytest.mark.parametrize(
    ("model_id", "shown"),
    [
        ("/home/ann/OurTune-7B.gguf", "OurTune-7B.gguf"),
        ("~/models/OurTune-7B/", "OurTune-7B"),
        ("C:\\Users\\ann\\m.gguf", "m.gguf"),
        ("./m.gguf", "m.gguf"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama3.1:8b", "llama3.1:8b"),
    ],
)
def test_a_path_does_not_tell_strangers_whose_it_is(model_id: str, shown: str) -> None:
    assert without_directories(model_id) == shown


def test_a_small_name_without_more_is_the_network_s_and_the_maker_s_spelling_is_the_maker_s() -> None:
    """Hugging Face calls the base model `Llama-3.1-8B`; the network calls the instruct model `llama-3.1-8b`."""
    assert identify("llama-3.1-8b").name == "llama-3.1-8b"
    assert identify("Llama-3.1-8B").name == "llama-3.1-8b-base"
    assert identify("llama-3.1-8b.Q4_K_M.gguf").name == "llama-3.1-8b-base"


def test_experts_have_no_size_that_a_name_could_tell() -> None:
    assert identify("OurMix-8x7B.Q4_0.gguf") == ModelIdentity("OurMix-8x7B", "Q4_0", None)


@given(st.text(max_size=300))
def test_any_text_has_a_name_and_names_are_stable(text: str) -> None:
    found = identify(text)
    assert found.name or not text
    if found.is_known:
        assert identify(found.name).name == found.name


@given(st.sampled_from(KNOWN_MODELS), st.sampled_from(["", ":q4_0", ":Q8_0", "@fp8"]))
def test_the_name_of_a_known_model_with_any_quantization_is_that_model(known: object, suffix: str) -> None:
    name = known.name  # type: ignore[attr-defined]
    assert identify(f"{name}{suffix}").name == name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("llama-3.1-8b", NameParts("llama-3.1", "8b", "instruct")),
        ("qwen2.5-coder-7b-base", NameParts("qwen2.5-coder", "7b", "base")),
        ("mixtral-8x7b-v0.1", NameParts("mixtral", "8x7b", "v0.1")),
        ("smollm2-135m", NameParts("smollm2", "135m", "instruct")),
        ("phi-4", NameParts("phi-4", None, "instruct")),
    ],
)
def test_a_name_has_family_size_and_variant(name: str, parts: NameParts) -> None:
    assert name_parts(name) == parts


def test_only_a_quantization_is_split_off() -> None:
    assert split_quantization("llama-3.1-8b:q8_0") == ("llama-3.1-8b", "q8_0")
    assert split_quantization("m@fp8") == ("m", "fp8")
    assert split_quantization("llama3.1:8b") == ("llama3.1:8b", None)
    assert split_quantization(":q8_0") == (":q8_0", None)


def test_a_model_s_well_known_ids_are_its_aliases() -> None:
    aliases = aliases_of("llama-3.1-8b")
    assert aliases[0] == "meta-llama/Llama-3.1-8B-Instruct"
    assert "llama3.1:8b" in aliases
    assert {identify(alias).name for alias in aliases} == {"llama-3.1-8b"}
    assert aliases_of("nobody-knows-it") == ()
    assert is_known_name("llama-3.1-8b")
    assert not is_known_name("llama3.1")
