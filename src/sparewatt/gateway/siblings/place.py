"""Which of a gateway's processes this is. The parent hands each child its sheet by a pipe: no file, no environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.rng import Rng
from sparewatt.core.settings import build_settings
from sparewatt.gateway.settings import GatewaySettings

_SECRET_BYTES = 32


class Place(msgspec.Struct, frozen=True):
    """The same in every process of one start, but for `number`."""

    number: int = 0
    link_ports: tuple[int, ...] = ()
    """Where each process takes links; they stay the same when a process starts again."""
    sibling_ports: tuple[int, ...] = ()
    """Where each answers the others, on loopback."""
    metrics_ports: tuple[int, ...] = ()
    """Where each shows its figures; none where they are off."""
    secret: str = ""
    """What siblings show each other."""
    prompt_secret: str = ""
    """What keys the digests of requests, so that two processes know the same request by the same digest."""

    @property
    def count(self) -> int:
        return max(1, len(self.sibling_ports))

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(number for number in range(len(self.sibling_ports)) if number != self.number)

    @property
    def link_port(self) -> int | None:
        return self.link_ports[self.number] if self.link_ports else None


ALONE = Place()
"""A gateway that is one process."""


def new_places(
    *, link_ports: tuple[int, ...], sibling_ports: tuple[int, ...], metrics_ports: tuple[int, ...] = (), rng: Rng
) -> list[Place]:
    secret, prompt_secret = rng.randbytes(_SECRET_BYTES).hex(), rng.randbytes(_SECRET_BYTES).hex()
    return [
        Place(number, link_ports, sibling_ports, metrics_ports, secret=secret, prompt_secret=prompt_secret)
        for number in range(len(sibling_ports))
    ]


class Sheet(msgspec.Struct, frozen=True):
    settings: dict[str, Any]
    place: Place


def write_sheet(settings: GatewaySettings, place: Place) -> bytes:
    return msgspec.json.encode(Sheet(dataclasses.asdict(settings), place), enc_hook=_write_path)


def read_sheet(data: bytes) -> tuple[GatewaySettings, Place]:
    """Raises StartupError or msgspec.DecodeError."""
    sheet = msgspec.json.decode(data, type=Sheet)
    return build_settings(GatewaySettings, sheet.settings, section="gateway"), sheet.place


def _write_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} has no place on a sheet")
