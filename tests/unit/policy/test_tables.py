"""The tables: regions, GPUs, quantizations."""

from __future__ import annotations

import pytest

from sparewatt.policy.gpus import GPU_CLASSES, gpu_class_of, gpu_name
from sparewatt.policy.quantization import quantization_of
from sparewatt.policy.regions import COUNTRIES, COVERS, GROUPS, outside, place_of, shortest_names


def test_there_are_as_many_countries_as_in_iso_3166_and_kosovo() -> None:
    assert len(COUNTRIES) == 249 + 1
    assert len(COVERS["EU"] & COUNTRIES) == 27
    assert len(COVERS["EEA"] & COUNTRIES) == 30


def test_no_group_has_the_name_of_a_country() -> None:
    assert COUNTRIES.isdisjoint(GROUPS)


@pytest.mark.parametrize(
    ("region", "place"),
    [
        ("DE", "DE"),
        ("de-berlin", "DE"),
        ("eu-west", "EU"),
        ("us-east", "US"),
        ("UK", "GB"),
        ("na", "NA"),
        ("eu-west-2", None),  # London
        ("local", None),
        ("", None),
        ("DE FR", None),
    ],
)
def test_a_reported_region_is_a_place_or_none(region: str, place: str | None) -> None:
    assert place_of(region) == place


def test_a_group_covers_the_groups_within_it_and_not_those_around_it() -> None:
    assert "EU" in COVERS["EEA"]
    assert "EEA" not in COVERS["EU"]
    assert "EU" not in outside(frozenset({"DE"}))
    assert "DE" not in outside(COVERS["EU"])


def test_places_in_the_fewest_words() -> None:
    assert shortest_names(COVERS["EU"] | COVERS["EEA"] | {"US"}) == ["EEA", "US"]
    assert shortest_names(COVERS["EU"] - {"DE"})[:2] == ["AT", "BE"]
    assert shortest_names(frozenset()) == []


@pytest.mark.parametrize(
    ("text", "name", "gpu_class"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090", "rtx24"),
        ("RTX4090", "rtx-4090", "rtx24"),
        ("rtx_4090", "rtx-4090", "rtx24"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop", "rtx16"),
        ("NVIDIA A100-SXM4-80GB", "a100", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100", "h100"),
        ("NVIDIA H100 NVL", "h100", "h100"),
        ("NVIDIA L40S", "l40s", "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", "l40s"),
        ("NVIDIA RTX A6000", "rtx-a6000", "l40s"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", "l40s"),
        ("Quadro RTX 6000", "rtx-6000", None),
        ("Tesla T4", "t4", "rtx16"),
        ("AMD Instinct MI300X", "mi300x", "h200"),
        ("NVIDIA B200", "b200", "b200"),
        ("NVIDIA A10G", "a10g", "rtx24"),
        ("cpu", "cpu", None),
        ("", "", None),
        ("RTX 9999", "rtx-9999", None),
    ],
)
def test_a_gpu_has_a_name_and_a_class_or_none(text: str, name: str, gpu_class: str | None) -> None:
    assert (gpu_name(text), gpu_class_of(text)) == (name, gpu_class)


def test_classes_are_ordered() -> None:
    order = ["rtx24", "l40s", "a100", "h100", "b200"]
    assert sorted(order, key=GPU_CLASSES.index) == order


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Q4_K_M", "int4"),
        ("IQ3_XS", "int3"),
        ("Q8_0", "int8"),
        ("q4", "int4"),
        ("w4a16", "int4"),
        ("F16", "fp16"),
        ("BF16", "bf16"),
        ("fp8", "fp8"),
        ("AWQ", "int4"),
        ("MXFP4", "mxfp4"),
        ("quark", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_quantization_is_known_or_unknown(name: str | None, word: str) -> None:
    assert quantization_of(name) == word
