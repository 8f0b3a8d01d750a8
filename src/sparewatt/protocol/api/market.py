"""`/v1/market`: what orders on chain are made of. Public: it is the same for everybody and every network."""

from __future__ import annotations

import msgspec


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str


class ZoneEntry(TableEntry, frozen=True, kw_only=True):
    distances_ms: list[int]
    """To each zone in the order of their ids: a typical round trip in milliseconds. The first is to an unknown zone."""


class GpuModelEntry(TableEntry, frozen=True, kw_only=True):
    gpu_class: int = msgspec.field(name="class")
    """The id of its class; 0 if it has none."""


class CompliancePair(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    standard: str
    auditor: str


class MarketTables(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that masks and claims on chain consist of. An id never changes its meaning; 0 is none or unknown."""

    countries: list[TableEntry]
    zones: list[ZoneEntry]
    gpu_models: list[GpuModelEntry]
    gpu_classes: list[TableEntry]
    """Weakest first: a class is at least another if its id is."""
    tiers: list[TableEntry]
    compliance: list[CompliancePair]
