from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiodocker.exceptions import DockerError

from sparewatt.core.limits import MIB
from sparewatt.node.leases.runtime.engine import ContainerEngine
from sparewatt.node.leases.runtime.image_pull import IMAGE_BYTES_MAX, pull_image
from sparewatt.node.leases.runtime.model import ImageUnavailable

PULLED = {"Id": "sha256:new", "RepoTags": ["app:1"], "RepoDigests": ["app@sha256:1"]}


class FakeImages:
    def __init__(self, *, here: dict[str, Any] | None, registry: dict[str, Any] | None, hangs: bool = False) -> None:
        self.here = here
        self.registry = registry
        self.hangs = hangs
        self.pulls = 0

    async def inspect(self, _name: str) -> dict[str, Any]:
        if self.here is None:
            raise DockerError(404, "no such image")
        return self.here

    async def pull(self, _name: str, *, stream: bool) -> AsyncIterator[dict[str, Any]]:
        assert stream
        self.pulls += 1
        yield {"id": "layer", "status": "Downloading", "progress": "[==>]"}
        if self.hangs:
            await asyncio.Event().wait()
        if self.registry is None:
            raise DockerError(500, "no route to host")
        self.here = self.registry


class FakeEngine:
    def __init__(self, images: FakeImages) -> None:
        self.docker = self
        self.images = images
        self.data_root = "/d"

    async def facts(self) -> FakeEngine:
        return self


async def pull(images: FakeImages, name: str = "app:1", **options: Any) -> tuple[str, list[str]]:
    said: list[str] = []
    options.setdefault("free_bytes", lambda _folder: 10**12)
    found = await pull_image(cast("ContainerEngine", FakeEngine(images)), name, said.append, **options)
    return found, said


async def test_an_image_is_pulled_with_progress() -> None:
    assert await pull(FakeImages(here=None, registry=PULLED)) == ("sha256:new", ["layer Downloading [==>]"])


async def test_a_newer_one_of_the_registry_replaces_what_is_here() -> None:
    old = {"Id": "sha256:old", "RepoTags": ["app:1"], "RepoDigests": ["app@sha256:0"]}
    assert (await pull(FakeImages(here=old, registry=PULLED)))[0] == "sha256:new"


async def test_what_cannot_be_pulled_but_is_here_is_used_and_told() -> None:
    found, said = await pull(FakeImages(here=PULLED, registry=None))
    assert (found, said[-1]) == ("sha256:new", "app:1 cannot be pulled; the one on this machine is used")


@pytest.mark.parametrize(
    ("here", "name"),
    [
        ({"Id": "a", "RepoTags": ["localhost/app:1"], "RepoDigests": ["localhost/app@sha256:1"]}, "app:1"),
        ({"Id": "a", "RepoTags": ["app:1"], "RepoDigests": []}, "app:1"),
        ({"Id": "a", "RepoTags": ["app:1"], "RepoDigests": ["app@sha256:1"]}, "app@sha256:1"),
    ],
    ids=["built by podman", "built by docker", "named by content"],
)
async def test_what_no_registry_has_newer_is_not_asked_for(here: dict[str, Any], name: str) -> None:
    images = FakeImages(here=here, registry=None)
    assert (await pull(images, name))[0] == "a"
    assert images.pulls == 0


async def test_an_image_that_is_nowhere_says_why() -> None:
    with pytest.raises(ImageUnavailable, match="no route to host"):
        await pull(FakeImages(here=None, registry=None))


@pytest.mark.parametrize("later", [MIB, 10**12 - IMAGE_BYTES_MAX - 1], ids=["disk full", "image too large"])
async def test_a_pull_that_takes_too_much_of_the_disk_is_ended(later: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.node.leases.runtime.image_pull.DISK_LOOK_S", 0.01)
    free = iter([10**12, 10**12])
    images = FakeImages(here=None, registry=PULLED, hangs=True)
    with pytest.raises(ImageUnavailable, match="too large"):
        await pull(images, free_bytes=lambda _folder: next(free, later))


async def test_a_store_that_cannot_be_looked_at_does_not_keep_from_pulling() -> None:
    def refuse(_folder: str) -> int:
        raise PermissionError(str(Path("/d")))

    assert (await pull(FakeImages(here=None, registry=PULLED), free_bytes=refuse))[0] == "sha256:new"
