from __future__ import annotations

import msgspec

from sparewatt.api.market.tables import published_tables
from sparewatt.policy.zones import ZONES
from sparewatt.protocol.api.market import MarketTables
from tests.unit.gateway.small_gateway import make_services, running


async def test_the_tables_are_public_and_cacheable() -> None:
    async with running(make_services()) as client:
        reply = await client.get("/v1/market/tables")
        assert reply.status == 200
        assert msgspec.json.decode(await reply.read(), type=MarketTables) == published_tables()[0]
        assert "max-age" in reply.headers["cache-control"]
        again = await client.get("/v1/market/tables", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status, await again.read()) == (304, b"")
        other = await client.get("/v1/market/tables", headers={"if-none-match": '"something else"'})
        assert other.status == 200


async def test_they_are_in_the_openapi_document() -> None:
    async with running(make_services()) as client:
        document = await (await client.get("/openapi.json")).json()
        reply = document["paths"]["/v1/market/tables"]["get"]["responses"]["200"]
        assert "MarketTables" in str(reply)


def test_every_table_is_published() -> None:
    tables, _ = published_tables()
    assert [zone.name for zone in tables.zones] == list(ZONES)
    assert all(len(zone.distances_ms) == len(ZONES) + 1 for zone in tables.zones)
    by_name = {gpu.name: gpu for gpu in tables.gpu_models}
    classes = {entry.id: entry.name for entry in tables.gpu_classes}
    assert classes[by_name["h100"].gpu_class] == "h100"
    assert by_name["apple-m1"].gpu_class == 0
    assert len(tables.countries) == 250
    assert {pair.auditor for pair in tables.compliance} == {"operator"}
