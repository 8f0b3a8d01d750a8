"""What clouds publish for the same cards, to set beside a quote. A small table, with its date and its source.

It is a comparison, not an offer: other machines, other terms, and a price as of its day. Cards that no source names are
absent; nothing is interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from sparewatt.policy.gpus import gpu_name

RUNPOD = ("RunPod", "undated page, read 2026-11-16", "https://docs.runpod.io/serverless/pricing")
"""The vendor's own price per second of a serverless worker ("flex"), times 3,600. A machine that is rented by the hour
costs less there; no page of the vendor's with those prices was at hand."""
AWS = ("AWS", "2026-06-17", "https://www.factualminds.com/blog/amazon-ec2-on-demand-pricing-instance-families-2026/")
"""A third party's report of EC2's on-demand price in us-east-1."""
SECONDS_PER_HOUR = 3_600


@dataclass(frozen=True, slots=True)
class PublishedPrice:
    gpu: str
    """As the market's table of GPU models has it."""
    instance: str
    hourly_usd: Decimal
    """Of one GPU."""
    cloud: str
    as_of: str
    """The day of the page; of one without a date, the day on which it was read."""
    source: str


def _runpod(gpu: str, memory_gb: int, usd_per_s: str) -> PublishedPrice:
    instance = f"serverless worker with {memory_gb} GB, billed per second"
    return PublishedPrice(gpu, instance, Decimal(usd_per_s) * SECONDS_PER_HOUR, *RUNPOD)


PUBLISHED = (
    _runpod("rtx-a4000", 16, "0.00016"),
    _runpod("l4", 24, "0.00019"),
    _runpod("rtx-a5000", 24, "0.00019"),
    _runpod("rtx-3090", 24, "0.00019"),
    _runpod("rtx-4090", 24, "0.00031"),
    _runpod("rtx-a6000", 48, "0.00034"),
    _runpod("a40", 48, "0.00034"),
    _runpod("l40", 48, "0.00053"),
    _runpod("l40s", 48, "0.00053"),
    _runpod("rtx-6000-ada", 48, "0.00053"),
    _runpod("a100", 80, "0.00076"),
    _runpod("h100", 80, "0.00116"),
    _runpod("h200", 141, "0.00155"),
    _runpod("b200", 180, "0.00240"),
    PublishedPrice("a10g", "g5.xlarge, on demand, us-east-1", Decimal("1.006"), *AWS),
)


def published_prices(gpu: str) -> list[PublishedPrice]:
    """Of a card by any spelling of its name; none if no source of the table names it."""
    name = gpu_name(gpu)
    return [price for price in PUBLISHED if price.gpu == name]
