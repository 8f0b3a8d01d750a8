"""Brings an image to this machine, within a bound on the disk that it may take."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiodocker.exceptions import DockerError

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.engine import ENGINE_S, ContainerEngine, within
from sparewatt.node.leases.runtime.model import EngineUnavailable, ImageUnavailable
from sparewatt.node.leases.runtime.runtime import ImageId, OnProgress

PULL_S = 1_800.0
IMAGE_BYTES_MAX = 64 * 1024 * MIB
"""On disk. Images of machine learning have 5 to 25 GB."""
DISK_FREE_BYTES_MIN = 1024 * MIB
DISK_LOOK_S = 1.0
REGISTRY_OF_THIS_MACHINE = "localhost/"
"""How podman names what was built here."""

FreeBytes = Callable[[str], int]


def disk_free_bytes(folder: str) -> int:
    return shutil.disk_usage(folder or "/").free


async def pull_image(
    engine: ContainerEngine, image: str, on_progress: OnProgress, *, free_bytes: FreeBytes = disk_free_bytes
) -> ImageId:
    """Raises ImageUnavailable."""
    local = await find_image(engine, image)
    if local is not None and (_is_fixed(image) or _was_built_here(local)):
        return ImageId(local["Id"])
    try:
        await _pull_within_disk(engine, image, on_progress, free_bytes=free_bytes)
    except DockerError as error:
        if local is None:
            raise ImageUnavailable(f"{image} cannot be pulled: {error.message}") from None
        on_progress(f"{image} cannot be pulled; the one on this machine is used")
    found = await find_image(engine, image)
    if found is None:
        raise ImageUnavailable(f"{image} was pulled, but is not there")
    return ImageId(found["Id"])


async def find_image(engine: ContainerEngine, image: str) -> dict[str, Any] | None:
    try:
        async with within(ENGINE_S):
            return await engine.docker.images.inspect(image)
    except DockerError:
        return None


def _is_fixed(image: str) -> bool:
    """Whether the name is one of content: then a registry has nothing newer."""
    return "@sha256:" in image


def _was_built_here(found: dict[str, Any]) -> bool:
    tags = found.get("RepoTags") or ()
    return not found.get("RepoDigests") or all(tag.startswith(REGISTRY_OF_THIS_MACHINE) for tag in tags)


async def _pull_within_disk(
    engine: ContainerEngine, image: str, on_progress: OnProgress, *, free_bytes: FreeBytes
) -> None:
    """Ends the engine's pull when it takes too much of the disk, or too long."""
    pulling = asyncio.ensure_future(_pull(engine, image, on_progress))
    try:
        with suppress(OSError):  # the engine's folder is not this user's to look at
            folder = (await engine.facts()).data_root
            before = await asyncio.to_thread(free_bytes, folder)
            while not (await asyncio.wait([pulling], timeout=DISK_LOOK_S))[0]:
                free = await asyncio.to_thread(free_bytes, folder)
                if free < DISK_FREE_BYTES_MIN or before - free > IMAGE_BYTES_MAX:
                    raise ImageUnavailable(f"{image} is too large for this machine's disk")
        await pulling
    finally:
        pulling.cancel()
        await asyncio.wait([pulling])


async def _pull(engine: ContainerEngine, image: str, on_progress: OnProgress) -> None:
    try:
        async with within(PULL_S):
            async for line in engine.docker.images.pull(image, stream=True):
                if line.get("status"):
                    on_progress(" ".join(str(line.get(key) or "") for key in ("id", "status", "progress")).strip())
    except EngineUnavailable as error:
        raise ImageUnavailable(f"{image} cannot be pulled: {error}") from None
