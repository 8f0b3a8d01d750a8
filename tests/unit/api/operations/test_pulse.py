"""GET /v1/pulse: counts, and a bounded number of the busiest and most troubled nodes."""

from __future__ import annotations

import asyncio
import json

import pytest

from sparewatt.api.operations.pulse import TROUBLED_MAX, PulseEndpoints
from sparewatt.core.limits import PULSE_NODES_MAX
from sparewatt.gateway.routes import endpoint_groups
from sparewatt.gateway.services import Services
from sparewatt.protocol.api.operations import Pulse
from sparewatt.protocol.link.node_report import GpuReading, NodeLoad, Sensors
from tests.unit.api.inference.test_endpoints import node_of
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_table, node_id
from tests.unit.inference.scripted import DONE, text_event
from tests.unit.telemetry.test_job_counter import a_record, an_attempt
from tests.waiting import until


async def pulse_of(services: Services) -> Pulse:
    (endpoints,) = [group for group in endpoint_groups(services) if isinstance(group, PulseEndpoints)]
    return await endpoints.current_pulse()


async def test_the_pulse_is_for_operators_only() -> None:
    async with running(make_services(a_table(1))) as client:
        statuses = {key: (await client.get("/v1/pulse", headers=bearer(key))).status for key in (ADMIN, USER, LENDER)}
        assert statuses == {ADMIN: 200, USER: 403, LENDER: 403}
        assert (await client.get("/v1/pulse")).status == 401


async def test_the_pulse_counts_finished_jobs_and_errors() -> None:
    services = make_services(a_table(2))
    services.counter.on_finished(a_record(an_attempt(), model=MODEL))
    services.counter.count_error("no_capacity")
    async with running(services) as client:
        pulse = await (await client.get("/v1/pulse", headers=bearer(ADMIN))).json()
    (model,) = pulse["models"]
    assert (model["id"], model["nodes"], model["warm"], model["requests"]["done"]) == (MODEL, 2, 2, 1)
    assert sum(model["first_token_counts"]) == 1
    assert len(model["first_token_counts"]) == len(pulse["first_token_bounds_s"]) + 1
    assert pulse["errors"] == {"no_capacity": 1}
    assert {node["id"]: node["tokens"] for node in pulse["busiest"]} == {node_id(1): 51, node_id(2): 0}


async def test_of_many_nodes_the_busiest_and_the_most_troubled_are_shown() -> None:
    services = make_services(a_table(3 * PULSE_NODES_MAX))
    services.links.on_load(node_id(7), NodeLoad(running=5, foreign=5))
    for at in range(20, 20 + 2 * TROUBLED_MAX):
        services.table.note_failure(node_id(at), model=MODEL, now_s=NOW_S)
    services.table.note_failure(node_id(25), model=MODEL, now_s=NOW_S)
    pulse = await pulse_of(services)
    assert pulse.busiest[0].id == node_id(7)
    assert pulse.troubled[0].id == node_id(25)
    assert len(pulse.busiest) + len(pulse.troubled) == PULSE_NODES_MAX


async def test_a_node_that_left_lately_is_troubled_and_one_long_offline_is_not_shown() -> None:
    services = make_services(a_table(2))
    services.table.disconnect(node_id(1), unix_s=services.clock.unix_s() - 60)
    services.table.disconnect(node_id(2), unix_s=services.clock.unix_s() - 86_400)
    assert [node.id for node in (await pulse_of(services)).troubled] == [node_id(1)]


async def test_of_several_gpus_the_hottest_counts() -> None:
    services = make_services(a_table(1))
    gpus = (GpuReading(temperature_c=60.0, utilisation=1.0), GpuReading(temperature_c=81.0, utilisation=0.5))
    services.links.on_load(node_id(1), NodeLoad(sensors=Sensors(power_watts=700.0, gpus=gpus)))
    (node,) = (await pulse_of(services)).busiest
    assert (node.temperature_c, node.power_watts) == (81.0, 700.0)
    assert node.utilisation == pytest.approx(0.75)


async def test_tokens_of_a_running_job_count_already() -> None:
    services = make_services()
    node = node_of(services)
    async with running(services) as client:
        body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hi"}]})
        pending = asyncio.create_task(client.post("/v1/chat/completions", headers=bearer(), data=body))
        await until(lambda: bool(node.opened))
        node.head()
        node.data(text_event("one"), text_event("two"))
        await pending
        pulse = await pulse_of(services)
        assert pulse.tokens_written == pulse.models[0].completion_tokens == pulse.busiest[0].tokens == 2
        assert pulse.models[0].requests["done"] == 0
        node.data(DONE)
        node.end()
