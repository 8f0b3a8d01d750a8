from __future__ import annotations

from sparewatt.core.errors import InvalidField, NoCapacity
from sparewatt.protocol.ollama.errors import ollama_error


def test_an_error_is_one_text_with_the_field_before_it() -> None:
    assert ollama_error(InvalidField("Too hot.", param="options.temperature")) == (
        400,
        {"error": "options.temperature: Too hot."},
    )
    assert ollama_error(NoCapacity("Full.")) == (503, {"error": "Full."})
