"""Which cards of the machine may be leased, and which of them something sits on. Pure.

A card counts as used if more of its memory is taken than a driver or a plain desktop keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparewatt.core.limits import MIB
from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.protocol.link.node_report import GpuReading

IDLE_BYTES_MAX = 512 * MIB
"""A program that has only opened an H200, by CUDA 12, takes 530 to 620 MiB."""


def used_cards(gpus: Sequence[DetectedGpu], readings: Sequence[GpuReading]) -> frozenset[str]:
    """By number. A card whose driver does not tell counts as used."""
    return frozenset(
        str(number)
        for number, gpu in enumerate(gpus)
        if number >= len(readings) or _is_used(gpu.vram_bytes, readings[number].vram_free_bytes)
    )


def _is_used(whole_bytes: int, free_bytes: int | None) -> bool:
    return free_bytes is None or whole_bytes - free_bytes > IDLE_BYTES_MAX


def leasable_cards(
    count: int, *, used: Collection[str], leased: Collection[str], served_by_others: Collection[str], can_free: bool
) -> list[str]:
    """Cards that a lease may have or has, the free ones first.

    `used`: something sits on them. `leased`: this agent's leases have them. `can_free`: this agent can stop what sits
    there.
    """
    cards = [str(number) for number in range(count)]
    allowed = [
        card for card in cards if card in leased or (card not in served_by_others and (can_free or card not in used))
    ]
    return sorted(allowed, key=lambda card: (card in used, int(card)))
