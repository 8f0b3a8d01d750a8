"""What data sheets say of a card, found by whatever its driver or its owner calls it."""

from __future__ import annotations

import pytest

from sparewatt.policy.gpu_figures import _OF_CARD, fp16_tflops_of, memory_bandwidth_of
from sparewatt.policy.gpus import _CLASS_OF, gpu_name


@pytest.mark.parametrize(
    ("name", "gb_s"),
    [
        ("NVIDIA GeForce RTX 4090", 1008),
        ("rtx_4090", 1008),
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3352),
        ("NVIDIA H100 PCIe", 2039),
        ("NVIDIA H100 NVL", 3938),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("Apple M2 Max (38 cores)", 410),
        ("AMD Radeon RX 7900 XTX", 960),
    ],
)
def test_a_cards_bandwidth_is_found_by_its_drivers_name(name: str, gb_s: float) -> None:
    assert memory_bandwidth_of(name) == gb_s * 1e9


@pytest.mark.parametrize("name", ["", "cpu", "gpu", "RTX 9999 Ultra", "x" * 10_000])
def test_an_unknown_card_has_no_figures(name: str) -> None:
    assert memory_bandwidth_of(name) is None
    assert fp16_tflops_of(name) is None


def test_a_name_without_its_form_factor_gets_the_fastest_card_of_that_name() -> None:
    """It is a ceiling: a slower variant must not be taken for the fastest one."""
    forms = ("PCIe", "80GB HBM3", "NVL")
    assert memory_bandwidth_of("h100") == max(memory_bandwidth_of(f"NVIDIA H100 {form}") or 0.0 for form in forms)


def test_compute_is_that_of_dense_16_bit_products() -> None:
    assert fp16_tflops_of("NVIDIA H200") == 989
    assert fp16_tflops_of("NVIDIA A100-SXM4-40GB") == 312


def test_every_card_of_the_vocabulary_has_figures() -> None:
    assert {name for name in _CLASS_OF if name not in _OF_CARD} == set()


def test_the_tables_names_are_spelled_as_the_vocabulary_spells_them() -> None:
    assert [name for name in _OF_CARD if gpu_name(name) != name] == []


def test_no_figure_is_out_of_the_range_of_real_cards() -> None:
    for name, (gb_s, tflops) in _OF_CARD.items():
        assert 50 < gb_s <= 8000, name
        assert 2 < tflops <= 2500, name
