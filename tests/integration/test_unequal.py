"""Four nodes that differ fifty-fold behind the real gateway: nothing is lost, and the slow ones are left alone.

`make bench-unequal` times the same nodes, also behind other routers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from tests.integration.cascade import nodes
from tests.integration.networks import Network
from tests.integration.streaming import poisson_arrivals_s, stream_all
from tests.integration.unequal import (
    ANSWER_TOKENS,
    NODES,
    endpoint_of,
    jobs_started,
    prompts,
    running_engines,
    unequal_network,
)

REQUESTS = 120
RATE = 60.0
SLOW_SHARE_MAX = 0.1
"""An even spread would give the two slow nodes half; by capacity they would get 3 %."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_engines(tmp_path_factory.mktemp("engines")) as engines:
        yield engines


@pytest.fixture(scope="module")
def network(
    tmp_path_factory: pytest.TempPathFactory, engines: dict[str, str], server: EmbeddedPostgres
) -> Iterator[Network]:
    with unequal_network(tmp_path_factory.mktemp("unequal"), engines, server=server) as network:
        yield network


async def test_nothing_is_lost_and_slow_nodes_get_few_jobs(network: Network, engines: dict[str, str]) -> None:
    before = jobs_started(engines)
    arrivals_s = poisson_arrivals_s(REQUESTS, rate=RATE, seed=1)
    answers = await stream_all(
        endpoint_of(network), prompts(REQUESTS), arrivals_s, max_tokens=ANSWER_TOKENS, timeout_s=60.0
    )
    assert Counter(answer.lost for answer in answers) == {None: REQUESTS}
    jobs = {name: count - before[name] for name, count in jobs_started(engines).items()}
    assert sum(jobs.values()) >= REQUESTS
    assert jobs["fast"] > jobs["mid"]
    assert jobs["slow-1"] + jobs["slow-2"] <= SLOW_SHARE_MAX * REQUESTS


def test_measured_speeds_are_in_the_order_of_the_real_ones(network: Network) -> None:
    measured = {name: node["models"][0]["measured"] for name, node in nodes(network).items()}
    for quicker, slower in (("fast", "mid"), ("mid", "slow-1"), ("mid", "slow-2")):
        assert measured[quicker]["prefill_tps"] > measured[slower]["prefill_tps"]
        assert measured[quicker]["decode_tps"] > measured[slower]["decode_tps"]


def test_a_node_has_as_many_places_as_its_engine_has_slots(network: Network) -> None:
    assert {name: node["slots"] for name, node in nodes(network).items()} == {node.name: node.slots for node in NODES}
