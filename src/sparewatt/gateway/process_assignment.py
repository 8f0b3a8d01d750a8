"""What the parent of several gateway processes hands each child by a pipe: its settings and its slot.

A pipe and no file or environment variable: it holds secrets.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.cluster.process_slot import ProcessSlot
from sparewatt.core.settings import build_settings
from sparewatt.gateway.settings import GatewaySettings


class ProcessAssignment(msgspec.Struct, frozen=True):
    settings: dict[str, Any]
    slot: ProcessSlot


def write_assignment(settings: GatewaySettings, slot: ProcessSlot) -> bytes:
    return msgspec.json.encode(ProcessAssignment(dataclasses.asdict(settings), slot), enc_hook=_write_path)


def read_assignment(data: bytes) -> tuple[GatewaySettings, ProcessSlot]:
    """Raises StartupError or msgspec.DecodeError."""
    assignment = msgspec.json.decode(data, type=ProcessAssignment)
    return build_settings(GatewaySettings, assignment.settings, section="gateway"), assignment.slot


def _write_path(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be handed to a process")
