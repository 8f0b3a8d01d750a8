"""What a gateway shows: every family known, nothing per node unless asked for, nobody's account or address."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.protocol.link.node_report import GpuReading, NodeLoad, Sensors, ServerMetrics
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.collector import MetricsCollector
from sparewatt.telemetry.metrics.node_metrics import METRICS_NODES_MAX, largest, shown_nodes
from sparewatt.telemetry.metrics.prometheus import Metric
from tests.unit.gateway.small_gateway import make_services
from tests.unit.inference.nodes import MODEL, a_table, node_id, some_specs
from tests.unit.telemetry.metrics.scraped import Scraped, read
from tests.unit.telemetry.test_job_counter import a_record, an_attempt

PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"
SERVER = ServerMetrics(running=2, waiting=1, prompt_tokens=1e6, first_token_s=12.5, first_tokens=50)


def services_of(nodes: int = 2, *, by_node: bool = False) -> Services:
    return make_services(a_table(nodes), metrics_by_node=by_node)


def collector_of(services: Services) -> MetricsCollector:
    return services.metrics.collector


async def scrape(services: Services) -> Scraped:
    return read(await collector_of(services).page())


async def test_every_family_is_one_of_the_table_and_is_explained() -> None:
    metrics = [value for value in vars(names).values() if isinstance(value, Metric)]
    known: dict[str, str] = {metric.name: metric.kind for metric in metrics}
    assert len(known) == len(metrics)
    documented = PAGE.read_text()
    assert [name for name in known if f"`{name}" not in documented] == []
    services = services_of(by_node=True)
    services.counter.on_finished(a_record(an_attempt()))
    assert (await scrape(services)).kinds.items() <= known.items()


async def test_a_quiet_gateway_shows_zeros_where_it_knows_and_nothing_where_it_does_not() -> None:
    found = await scrape(services_of())
    assert found.value("sparewatt_jobs_running") == 0
    assert found.value("sparewatt_nodes", state="online") == 2
    assert found.value("sparewatt_nodes", state="offline") == 0
    assert found.value("sparewatt_model_nodes", model=MODEL, state="warm") == 2
    assert found.value("sparewatt_ready") == 1
    assert found.value("process_resident_memory_bytes") > 1e6
    assert not {"sparewatt_requests_total", "sparewatt_credits_spent_micro_total"} & set(found.kinds)


async def test_a_finished_job_and_an_error_are_seen() -> None:
    services = services_of()
    services.counter.on_finished(a_record(an_attempt(), model=MODEL))
    services.counter.count_error("rate_limit_exceeded")
    services.admission._on_waited(2.0)
    found = await scrape(services)
    assert found.value("sparewatt_requests_total", model=MODEL, outcome="done") == 1
    assert found.value("sparewatt_tokens_total", model=MODEL, direction="completion") == 51
    assert found.value("sparewatt_time_to_first_token_seconds_count", model=MODEL) == 1
    assert found.value("sparewatt_request_errors_total", code="rate_limit_exceeded") == 1
    assert found.value("sparewatt_queue_wait_seconds_sum") == 2


async def test_counts_outlive_what_is_stored_of_them() -> None:
    services = services_of()
    services.counter.on_finished(a_record(an_attempt(), model=MODEL))
    services.counter.count_error("no_capacity")
    services.counter.interval.take(["network", "model", "error"])
    found = await scrape(services)
    assert found.sum("sparewatt_requests_total") == 1
    assert found.value("sparewatt_request_errors_total", code="no_capacity") == 1


async def test_nodes_have_metrics_of_their_own_only_where_that_is_set() -> None:
    assert not [name for name in (await scrape(services_of())).kinds if name.startswith("sparewatt_node_")]
    assert (await scrape(services_of(by_node=True))).labels("sparewatt_node_up", "node") == {node_id(1), node_id(2)}


async def test_a_node_s_metrics_include_its_sensors_and_its_server() -> None:
    services = services_of(by_node=True)
    gpus = (GpuReading(power_watts=300.0, temperature_c=70.0, utilisation=0.9), GpuReading())
    load = NodeLoad(running=3, queued=1, kv_used=0.5, sensors=Sensors(power_watts=350.0, gpus=gpus), server=SERVER)
    services.links.on_load(node_id(1), load)
    services.links.on_load(node_id(1), NodeLoad(running=4, kv_used=0.5))
    found = await scrape(services)
    which = {"node": str(node_id(1))}
    assert found.value("sparewatt_node_jobs_running", **which) == 4
    assert found.value("sparewatt_node_power_watts", **which) == 350
    assert found.value("sparewatt_power_watts") == 350
    assert found.value("sparewatt_node_gpu_temperature_celsius", gpu="0", **which) == 70
    assert found.labels("sparewatt_node_gpu_utilization_ratio", "gpu") == {"0"}
    assert found.value("sparewatt_node_server_requests_running", model=MODEL, **which) == 2
    assert found.value("sparewatt_node_server_kv_cache_usage_ratio", model=MODEL, **which) == 0.5
    assert found.value("sparewatt_node_server_prompt_tokens_total", model=MODEL, **which) == 1e6
    assert found.value("sparewatt_node_server_time_to_first_token_seconds_sum", model=MODEL, **which) == 12.5
    assert "sparewatt_node_server_generation_tokens_total" not in found.kinds


async def test_a_node_that_left_is_down_and_says_nothing_more() -> None:
    services = services_of(by_node=True)
    services.links.on_load(node_id(1), NodeLoad(server=SERVER))
    services.table.disconnect(node_id(1), unix_s=1.0)
    found = await scrape(services)
    assert found.value("sparewatt_node_up", node=str(node_id(1))) == 0
    assert ("sparewatt_node_jobs_running", frozenset({("node", str(node_id(1)))})) not in found.samples


async def test_no_label_names_an_account_a_key_or_a_client() -> None:
    services = services_of(by_node=True)
    services.counter.on_finished(a_record(an_attempt(), model=MODEL))
    page = (await collector_of(services).page()).decode()
    assert "acc_" not in page
    assert "key_" not in page
    assert "match_a" not in page


def test_of_very_many_models_the_rest_is_one() -> None:
    found = largest({f"m{at}": at for at in range(METRICS_MODELS_MAX + 5)})
    assert len(found) == METRICS_MODELS_MAX + 1
    assert found["other"] == sum(range(5))
    assert largest({"other": 1, "m": 2}) == {"other": 1, "m": 2}


def test_of_very_many_nodes_connected_ones_have_metrics() -> None:
    away = [NodeRow(NodeId(f"0x{at}"), some_specs(), index=at) for at in range(METRICS_NODES_MAX)]
    here = [NodeRow(NodeId(f"here{at}"), some_specs(), index=10_000 + at, connected=True) for at in range(3)]
    found = shown_nodes([*away, *here])
    assert len(found) == METRICS_NODES_MAX
    assert list(found[:3]) == here


@pytest.mark.parametrize("stopping", [False, True])
async def test_a_gateway_that_stops_is_not_ready(stopping: bool) -> None:  # noqa: FBT001 (a parameter)
    services = services_of()
    services.drain.is_draining = stopping
    assert (await scrape(services)).value("sparewatt_ready") == (not stopping)
