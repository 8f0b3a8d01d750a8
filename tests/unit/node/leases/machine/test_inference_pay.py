"""What inference earned per hour of serving, and leases that cost no less."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.inference_pay import FILE, KNOWN_AFTER_S, TICK_S, InferencePay
from sparewatt.node.leases.offer_rules import LeaseRules, MachineFacts, standing_offer
from sparewatt.protocol.link.lease_offer import LeaseDiscount, LeasePrice
from sparewatt.testing.clocks import ManualClock

PRICES = (1_000_000_000, 2_000_000_000)
"""$1 and $2 per million tokens."""
CARDS = LeaseCapacity(gpus=4, cpu_milli=16_000, memory_mib=1, disk_mib=1)
PROCESSORS = CARDS._replace(gpus=0)


def pay(folder: Path, clock: ManualClock, *, serves: bool = True) -> InferencePay:
    def prices_of(model: str) -> tuple[int, int] | None:
        return PRICES if model == "here" else None

    return InferencePay(data_dir=folder, clock=clock, prices_of=prices_of, is_serving=lambda: serves)


async def pass_time(counted: InferencePay, clock: ManualClock, seconds: float) -> None:
    work = asyncio.create_task(counted.run())
    for _ in range(int(seconds / TICK_S)):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.advance(TICK_S)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_it_is_what_was_delivered_over_the_time_of_serving(tmp_path: Path) -> None:
    clock = ManualClock(unix_s=1_700_000_000 // 3_600 * 3_600)
    counted = pay(tmp_path, clock)
    counted.note_delivered("here", 100_000, 50_000)
    counted.note_delivered("gone", 100_000, 50_000)
    assert counted.hourly_uusd() is None, "too little time"
    await pass_time(counted, clock, 1_800)
    assert counted.hourly_uusd() == 400_000
    assert counted.status()["served_s"] == 1_800
    again = pay(tmp_path, clock)
    assert again.hourly_uusd() == 400_000, "it was saved"
    clock.advance(25 * 3_600)
    assert again.hourly_uusd() is None, "of the last day only"


async def test_time_of_a_lease_or_a_pause_does_not_count(tmp_path: Path) -> None:
    clock = ManualClock()
    counted = pay(tmp_path, clock, serves=False)
    await pass_time(counted, clock, KNOWN_AFTER_S)
    assert counted.status() == {"hourly_uusd": None, "served_s": 0}


@pytest.mark.parametrize("body", [b"", b"{", b'{"a": 1}', b"\xff"])
def test_a_file_that_cannot_be_read_is_forgotten(tmp_path: Path, body: bytes) -> None:
    (tmp_path / FILE).write_bytes(body)
    assert pay(tmp_path, ManualClock()).hourly_uusd() is None


@pytest.mark.parametrize(("follows", "price", "eight"), [(True, 250_000, 1_000_000), (False, 100_000, 900_000)])
def test_leases_follow_pay_only_if_the_owner_says_so(follows: bool, price: int, eight: int) -> None:  # noqa: FBT001
    rules = LeaseRules(
        prices=(LeasePrice(1, 100_000), LeasePrice(4, 900_000)),
        discounts=(LeaseDiscount(3_600, 100_000), LeaseDiscount(7_200, 10)),
        follow_pay=follows,
    )
    machine = MachineFacts(measured=CARDS, hourly_uusd=1, earned_uusd=1_000_000)
    offer = standing_offer(rules, machine, reserved=LeaseCapacity())
    assert [each.hourly_uusd for each in offer.prices] == [price, eight]
    assert len(offer.discounts) == (0 if follows else 2)


def test_processors_follow_pay_where_there_is_no_gpu() -> None:
    rules = LeaseRules(follow_pay=True, discounts=(LeaseDiscount(3_600, 500_000),))
    dear = MachineFacts(measured=PROCESSORS, hourly_uusd=16, earned_uusd=32_000)
    assert standing_offer(rules, dear, reserved=LeaseCapacity()).cpu_hourly_uusd == 2_000
    cheap = MachineFacts(measured=PROCESSORS, hourly_uusd=160_000, earned_uusd=16_000)
    offer = standing_offer(rules, cheap, reserved=LeaseCapacity())
    assert (offer.cpu_hourly_uusd, len(offer.discounts)) == (10_000, 1), "half of it is still more than inference"
    beside = MachineFacts(measured=CARDS, hourly_uusd=4, earned_uusd=10**9)
    priced = LeaseRules(follow_pay=True, cpu_hourly_uusd=5)
    assert standing_offer(priced, beside, reserved=LeaseCapacity()).cpu_hourly_uusd == 5
