"""GET /v1/market/tables: the ids of countries, zones, GPUs, tiers and attested standards.

The tables change with a release only, so the reply is made once and has an ETag.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from aiohttp import web

from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.edge.middleware import context_of
from sparewatt.policy.market_ids import (
    COMPLIANCE_ID,
    COUNTRY_ID,
    GPU_CLASS_ID,
    GPU_MODEL_ID,
    TIER_ID,
    gpu_class_id_of,
)
from sparewatt.policy.zones import DISTANCE_MS, ZONE_ID, ZONES
from sparewatt.protocol.api.market import CompliancePair, GpuModelEntry, MarketTables, TableEntry, ZoneEntry

CACHE_CONTROL = "public, max-age=3600"


@dataclass(slots=True, kw_only=True)
class MarketTableEndpoints:
    public_limiter: PublicRateLimiter
    """By address, for endpoints without a login."""

    @endpoint("GET /v1/market/tables", access="public")
    async def show_tables(self, request: web.Request) -> Reply[MarketTables] | web.Response:
        """Show the ids that orders and providers on chain use, and the distances between zones."""
        self.public_limiter.admit(address=context_of(request).address)
        tables, etag = published_tables()
        headers = {"etag": etag, "cache-control": CACHE_CONTROL}
        if request.headers.get("if-none-match") == etag:
            return web.Response(status=304, headers=headers)
        return Reply(tables, headers=headers)


@lru_cache(maxsize=1)
def published_tables() -> tuple[MarketTables, str]:
    """The tables, and their ETag."""
    tables = MarketTables(
        countries=_entries(COUNTRY_ID),
        zones=[
            ZoneEntry(id=number, name=name, distances_ms=list(DISTANCE_MS[number][: len(ZONES) + 1]))
            for name, number in ZONE_ID.items()
        ],
        gpu_models=[
            GpuModelEntry(id=number, name=name, gpu_class=gpu_class_id_of(name))
            for name, number in GPU_MODEL_ID.items()
        ],
        gpu_classes=_entries(GPU_CLASS_ID),
        tiers=_entries(TIER_ID),
        compliance=[
            CompliancePair(id=number, standard=standard, auditor=auditor)
            for (standard, auditor), number in COMPLIANCE_ID.items()
        ],
    )
    return tables, f'"{hashlib.sha256(msgspec.json.encode(tables)).hexdigest()[:32]}"'


def _entries(ids: dict[str, int]) -> list[TableEntry]:
    return [TableEntry(id=number, name=name) for name, number in ids.items()]
