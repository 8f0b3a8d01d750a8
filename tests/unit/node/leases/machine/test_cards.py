from __future__ import annotations

import pytest

from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.node.leases.machine.cards import leasable_cards, used_cards
from sparewatt.protocol.link.node_report import GpuReading

CARD = DetectedGpu("nvidia", "RTX 4090", 24 * 10**9)


def test_a_card_with_something_in_its_memory_is_used() -> None:
    readings = [GpuReading(vram_free_bytes=free) for free in (24 * 10**9, 23_500_000_000, 10 * 10**9)]
    assert used_cards([CARD] * 3, readings) == {"2"}


def test_a_card_of_which_nothing_is_known_counts_as_used() -> None:
    assert used_cards([CARD] * 2, [GpuReading()]) == {"0", "1"}
    assert used_cards([CARD], []) == {"0"}


@pytest.mark.parametrize(
    ("used", "leased", "served_by_others", "can_free", "found"),
    [
        ("", "", "", False, ["0", "1", "2"]),
        ("0", "", "", False, ["1", "2"]),
        ("0", "", "", True, ["1", "2", "0"]),
        ("0", "0", "", False, ["1", "2", "0"]),
        ("02", "", "2", True, ["1", "0"]),
    ],
)
def test_cards_that_a_lease_may_have(
    used: str,
    leased: str,
    served_by_others: str,
    can_free: bool,  # noqa: FBT001
    found: list[str],
) -> None:
    given = leasable_cards(3, used=used, leased=leased, served_by_others=served_by_others, can_free=can_free)
    assert given == found
