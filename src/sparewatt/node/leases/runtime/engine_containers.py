"""Containers of leases at an engine, by their names: made, started, looked at, ended. One call each, no decisions."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError

from sparewatt.node.leases.runtime.container_spec import MachineSide, docker_config, libpod_config
from sparewatt.node.leases.runtime.engine import ENGINE_S, ContainerEngine, within
from sparewatt.node.leases.runtime.model import (
    ContainerPlan,
    ContainerState,
    EngineUnavailable,
    ImageUnavailable,
    LeaseContainer,
    LeaseLabel,
    StartRefused,
)
from sparewatt.node.leases.runtime.naming import LABEL_CONTENT, LABEL_LEASE, container_name, label_of
from sparewatt.node.leases.runtime.streams import MOMENT

CONTAINERS_MAX = 1_000
"""Of leases on one machine. More are not looked at."""
HALF_REMOVED_MAX = 20
"""More than an engine removes at the moment in which it dies."""
_HALF_REMOVED = re.compile(r'getting container from store "([0-9a-f]{64})": container not known')
_STATES = {
    "created": ContainerState.CREATED,
    "configured": ContainerState.CREATED,
    "initialized": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
    "stopping": ContainerState.RUNNING,
    "paused": ContainerState.PAUSED,
    "removing": ContainerState.GONE,
}
"""The words of Docker and podman; any other is an end."""


class EngineContainers:
    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine

    async def create(self, plan: ContainerPlan, side: MachineSide) -> None:
        """One that is there already stays as it is. Raises StartRefused or ImageUnavailable."""
        try:
            await self._create(plan, side)
        except DockerError as error:
            if error.status == 404 and "image" in error.message.lower():
                raise ImageUnavailable(f"{plan.image} is not on this machine") from None
            if error.status != 409 and "already in use" not in error.message:
                raise StartRefused(error.message) from None

    async def _create(self, plan: ContainerPlan, side: MachineSide) -> None:
        is_podman = (await self._engine.facts()).is_podman
        async with within(ENGINE_S):
            if plan.gpu_ids and is_podman:
                await self._engine.libpod("containers/create", libpod_config(plan, side))
            else:
                config = docker_config(plan, side)
                await self._engine.docker.containers.create(config, name=container_name(plan.label))

    async def start(self, name: str) -> None:
        """Raises StartRefused with the engine's reason."""
        try:
            async with within(ENGINE_S):
                await self.handle(name).start()
        except DockerError as error:
            raise StartRefused(error.message) from None

    async def stop(self, name: str, *, grace_s: float) -> None:
        with suppress(DockerError):  # it is gone, or has ended by itself
            async with within(ENGINE_S + grace_s):
                await self.handle(name).stop(t=round(grace_s))

    async def remove(self, name: str) -> None:
        """With what it wrote. Idempotent."""
        with suppress(DockerError):
            async with within(ENGINE_S):
                await self.handle(name).delete(force=True, v=True)

    async def pause(self, name: str) -> None:
        with suppress(DockerError):  # it has ended, or is paused
            async with within(ENGINE_S):
                await self.handle(name).pause()

    async def unpause(self, name: str) -> None:
        with suppress(DockerError):
            async with within(ENGINE_S):
                await self.handle(name).unpause()

    async def inspect(self, name: str, *, size: bool = False) -> dict[str, Any] | None:
        """None if it is not there. What the engine cannot show just now (podman, of one that is being removed) is not
        known: EngineUnavailable."""
        try:
            async with within(ENGINE_S):
                return await self.handle(name).show(**({"size": 1} if size else {}))
        except DockerError as error:
            if error.status == 404:
                return None
            raise EngineUnavailable(f"the container engine does not show {name} ({error.message})") from None

    async def names(self) -> list[str]:
        """Of all that have the label of a lease.

        A podman that was interrupted while it removed a container knows of it and has lost its storage; then it lists
        none at all. What it names is one of ours, since it looks at labels first: it is removed to the end.
        """
        for _ in range(HALF_REMOVED_MAX):
            try:
                async with within(ENGINE_S):
                    found = await self._engine.docker.containers.list(all=1, filters=f'{{"label": ["{LABEL_LEASE}"]}}')
            except DockerError as error:
                half_removed = _HALF_REMOVED.search(error.message)
                if half_removed is None:
                    raise EngineUnavailable(f"the container engine lists nothing ({error.message})") from None
                await self.remove(half_removed[1])
            else:
                return [str(each["Names"][0]).lstrip("/") for each in found[:CONTAINERS_MAX]]
        raise EngineUnavailable("the container engine lists nothing: it has lost the storage of too many containers")

    async def volume_bytes(self, found: Mapping[str, Any]) -> int:
        """Of volumes that the image asks for: they are not part of the container's own size."""
        names = {mount.get("Name") for mount in found.get("Mounts") or () if mount.get("Type") == "volume"}
        if not names:
            return 0
        async with within(ENGINE_S):
            usage = await self._engine.disk_usage()
        return sum(
            max(0, int((volume.get("UsageData") or {}).get("Size") or 0))
            for volume in usage.get("Volumes") or ()
            if volume.get("Name") in names
        )

    def handle(self, name: str) -> DockerContainer:
        return self._engine.docker.containers.container(name)


def read_container(found: Mapping[str, Any]) -> LeaseContainer | None:
    """From what the engine says of it; None if it is not ours."""
    label = label_of((found.get("Config") or {}).get("Labels") or {})
    if label is None:
        return None
    status = found.get("State") or {}
    state = _STATES.get(str(status.get("Status")), ContainerState.EXITED)
    networks = list(((found.get("NetworkSettings") or {}).get("Networks") or {}).values())
    has_ended = state is ContainerState.EXITED
    return LeaseContainer(
        container_id=str(found.get("Id")),
        label=label,
        state=state,
        address=next((each["IPAddress"] for each in networks if each.get("IPAddress")), None),
        host_address=next((each["Gateway"] for each in networks if each.get("Gateway")), None),
        started_unix_s=_unix_s(status.get("StartedAt")),
        ended_unix_s=_unix_s(status.get("FinishedAt")) if has_ended else None,
        exit_code=int(status.get("ExitCode") or 0) if has_ended else None,
        is_out_of_memory=bool(status.get("OOMKilled")),
        content=str(((found.get("Config") or {}).get("Labels") or {}).get(LABEL_CONTENT, "")),
    )


def is_labelled(found: Mapping[str, Any], label: LeaseLabel) -> bool:
    seen = label_of((found.get("Config") or {}).get("Labels") or {})
    return seen is not None and (seen.lease_id, seen.term, seen.node) == (label.lease_id, label.term, label.node)


def _unix_s(text: object) -> float | None:
    """Engines write nanoseconds, some with a zone, and the year 1 for never."""
    found = MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None or found["year"] == "0001":
        return None
    zone = "+00:00" if found["zone"] == "Z" else found["zone"]
    moment = dt.datetime.fromisoformat(f"{found['seconds']}{zone}")
    return moment.timestamp() + float(f"0.{found['fraction'] or 0}")
