"""The shipped table agrees with itself: no id belongs to two rows, and every id leads back to its row."""

from __future__ import annotations

from collections import Counter

import pytest

from sparewatt.policy.model_names.known_models import KNOWN_MODELS, TRUSTED_PUBLISHERS, KnownModel
from sparewatt.policy.model_names.parser import identify


def test_names_are_unique_and_plain() -> None:
    assert [name for name, count in Counter(model.name for model in KNOWN_MODELS).items() if count > 1] == []
    assert all(model.name == model.name.lower() and ":" not in model.name for model in KNOWN_MODELS)


@pytest.mark.parametrize("model", KNOWN_MODELS, ids=lambda model: model.name)
def test_every_id_of_a_row_leads_to_its_name(model: KnownModel) -> None:
    for known_id in (model.name, *model.hugging_face.split(), *model.ollama.split()):
        assert identify(known_id).name == model.name, known_id
    assert identify(model.name).billions == model.billions


@pytest.mark.parametrize("model", [m for m in KNOWN_MODELS if m.name.endswith("-base")], ids=lambda model: model.name)
def test_a_base_model_has_the_size_of_the_model_that_was_made_from_it(model: KnownModel) -> None:
    made = {each.name: each.billions for each in KNOWN_MODELS}
    assert made[model.name.removesuffix("-base")] == model.billions


def test_the_makers_are_among_the_trusted_publishers() -> None:
    assert {"meta-llama", "qwen", "bartowski"} <= TRUSTED_PUBLISHERS
    assert "somebody" not in TRUSTED_PUBLISHERS
