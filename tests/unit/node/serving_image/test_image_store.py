from __future__ import annotations

from sparewatt.node.serving_image.image_store import image_tag


def test_a_models_name_becomes_a_tag() -> None:
    assert image_tag("Org/Model:7B") == "localhost/sparewatt-serve:org-model-7b"
