from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparewatt.policy.fields import COMPLIANCES, TIERS
from sparewatt.policy.gpu_figures import memory_bandwidth_of
from sparewatt.policy.gpus import GPU_CLASSES, gpu_class_of
from sparewatt.policy.market_ids import (
    COMPLIANCE_ID,
    COUNTRY_ID,
    GPU_CLASS_ID,
    GPU_MODEL_ID,
    NONE,
    OTHER_GPU,
    TIER_ID,
    country_id_of,
    gpu_class_id_of,
    gpu_model_id_of,
    mask_of,
    models_of_class,
)
from sparewatt.policy.regions import COUNTRIES
from sparewatt.policy.zones import ZONE_ID, ZONES_MAX

PUBLISHED = json.loads((Path(__file__).parent / "published_ids.json").read_text())
"""What was published first. It is never edited: rows that come later stand in the tables alone."""
TABLES = {
    "countries": COUNTRY_ID,
    "zones": ZONE_ID,
    "gpu_models": GPU_MODEL_ID,
    "gpu_classes": GPU_CLASS_ID,
    "tiers": TIER_ID,
    "compliance": {f"{standard} {auditor}": number for (standard, auditor), number in COMPLIANCE_ID.items()},
}


@pytest.mark.parametrize("table", TABLES)
def test_a_published_id_never_changes_its_meaning(table: str) -> None:
    assert {name: TABLES[table].get(name) for name in PUBLISHED[table]} == PUBLISHED[table]


@pytest.mark.parametrize("table", sorted(set(TABLES) - {"gpu_classes"}))
def test_new_rows_are_appended(table: str) -> None:
    ids = list(TABLES[table].values())
    assert ids == list(range(1, len(ids) + 1))
    assert list(TABLES[table])[: len(PUBLISHED[table])] == list(PUBLISHED[table])


def test_ids_fit_where_contracts_keep_them() -> None:
    assert all(0 < number < OTHER_GPU for table in TABLES.values() for number in table.values())
    assert max(ZONE_ID.values()) < ZONES_MAX


def test_every_word_of_the_vocabulary_has_an_id() -> None:
    assert set(COUNTRY_ID) == COUNTRIES
    assert tuple(GPU_CLASS_ID) == GPU_CLASSES
    assert tuple(TIER_ID) == TIERS
    assert {standard for standard, _ in COMPLIANCE_ID} == set(COMPLIANCES)
    assert all(memory_bandwidth_of(name) is not None for name in GPU_MODEL_ID)


def test_classes_are_ordered_by_their_numbers() -> None:
    assert list(GPU_CLASS_ID.values()) == sorted(set(GPU_CLASS_ID.values()))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Apple M3 Max (40 cores)", "apple-m3-max"),
    ],
)
def test_a_card_has_one_id_by_any_spelling(text: str, name: str) -> None:
    assert gpu_model_id_of(text) == GPU_MODEL_ID[name]


@pytest.mark.parametrize("text", ["", "  ", "cpu", "none"])
def test_a_machine_without_a_gpu_has_id_and_class_0(text: str) -> None:
    assert (gpu_model_id_of(text), gpu_class_id_of(text)) == (NONE, NONE)


@pytest.mark.parametrize("text", ["RTX 9999", "Quadro RTX 6000", "gpu"])
def test_an_unknown_card_is_not_taken_for_none(text: str) -> None:
    assert (gpu_model_id_of(text), gpu_class_id_of(text)) == (OTHER_GPU, NONE)


def test_the_models_of_a_class_are_those_of_the_vocabulary() -> None:
    assert GPU_MODEL_ID["h100"] in models_of_class("h100")
    classed = {number for gpu_class in GPU_CLASSES for number in models_of_class(gpu_class)}
    assert classed == {number for name, number in GPU_MODEL_ID.items() if gpu_class_of(name)}


@pytest.mark.parametrize(
    ("region", "country"), [("DE", "DE"), ("de-berlin", "DE"), ("us-west", "US"), ("uk", "GB"), ("EU", None)]
)
def test_a_country_is_read_from_the_region_that_a_node_names(region: str, country: str | None) -> None:
    assert country_id_of(region) == (COUNTRY_ID[country] if country else NONE)


def test_a_mask_has_a_bit_for_each_id() -> None:
    assert mask_of() == 0
    assert mask_of(0, 3, 255) == 1 | 1 << 3 | 1 << 255
