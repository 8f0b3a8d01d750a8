"""Brings an image of a serving node to this machine's container engine, and finds it there again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiodocker.exceptions import DockerError

from sparewatt.node.leases.runtime.engine import ContainerEngine, within
from sparewatt.node.leases.runtime.image_pull import find_image
from sparewatt.node.leases.runtime.model import EngineUnavailable
from sparewatt.node.serving_image.image_archive import MODEL_LABEL, WEIGHTS_LABEL

REPOSITORY = "localhost/sparewatt-serve"
"""An engine asks no registry for what begins so."""
LOAD_S = 1_800.0
TAG_CHARS_MAX = 128


@dataclass(frozen=True, slots=True)
class ServingImage:
    tag: str
    image_id: str
    model: str
    weights_bytes: int


def image_tag(model: str) -> str:
    """By which a model's image is known on a machine."""
    return f"{REPOSITORY}:{re.sub(r'[^a-z0-9._-]', '-', model.lower())[:TAG_CHARS_MAX]}"


async def find_serving_image(engine: ContainerEngine, model: str) -> ServingImage | None:
    """None if there is none, or one of another model has its name."""
    found = await find_image(engine, image_tag(model))
    return None if found is None else _read(found, image_tag(model), model)


async def load_image(engine: ContainerEngine, archive: Path, model: str) -> ServingImage:
    """Raises EngineUnavailable."""
    try:
        async with within(LOAD_S):
            with archive.open("rb") as opened:
                await engine.docker.images.import_image(opened)
    except DockerError as error:
        raise EngineUnavailable(f"the engine does not take the image: {error.message}") from None
    found = await find_serving_image(engine, model)
    if found is None:
        raise EngineUnavailable("the engine took the image, and does not list it")
    return found


def _read(found: dict[str, Any], tag: str, model: str) -> ServingImage | None:
    labels = (found.get("Config") or {}).get("Labels") or {}
    size = str(labels.get(WEIGHTS_LABEL, ""))
    if labels.get(MODEL_LABEL) != model or not size.isdecimal():
        return None
    return ServingImage(tag, str(found.get("Id")), model, int(size))
