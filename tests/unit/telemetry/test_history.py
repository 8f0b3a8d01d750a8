"""What happened, counted: percentiles by buckets, whose failure it was, and nothing lost while Postgres is away."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.cluster.peer_rpc import PeerClient, ProcessSlot
from sparewatt.cluster.peers import Peers, PeerState
from sparewatt.cluster.questions import NewsReply
from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import KeyId, MatchId
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.store.history import HistoryCounts, HistoryKind, HistoryRow, HistoryStore
from sparewatt.telemetry.history.interval import (
    HISTORY_NAMES_MAX,
    IntervalFigures,
    bucket_of,
    empty,
    percentile,
)
from sparewatt.telemetry.history.points import JOBS_FOR_A_SUM_MIN, describe_figures
from sparewatt.telemetry.history.writer import HistoryWriter
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import ListDatabase, NoPool, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, a_job, a_table, node_id, situation, some_specs
from tests.unit.telemetry.remembering import Remembering


def a_record(outcome: Outcome = Outcome.DONE, **changes: object) -> MatchRecord:
    decision = match(a_job(), a_table(2), situation(), ranking=BALANCED, seed=1)
    record = MatchRecord(MatchId("match_a"), KeyId("key_a"), 0.0, decision, outcome)
    attempt = AttemptRecord(
        node_id(1), started_ms=0.0, outcome=outcome, first_token_ms=100.0, ended_ms=1100.0, tokens=51
    )
    record.attempts.append(attempt)
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def a_counter(*finished: MatchRecord, clock: ManualClock | None = None) -> JobCounter:
    """One that has counted these jobs."""
    counter = JobCounter(lambda _: True, clock=clock or ManualClock())
    for record in finished:
        counter.on_finished(record)
    return counter


@given(st.lists(st.floats(1.0, 90_000.0), min_size=1, max_size=200), st.sampled_from([0.05, 0.5, 0.95]))
def test_a_percentile_lies_within_a_bucket_of_the_true_one(values: list[float], share: float) -> None:
    counts = empty()
    for value in values:
        counts[bucket_of(value)] += 1
    found = percentile(counts, share)
    ordered = sorted(values)
    true = ordered[max(0, -(-int(share * len(values) * 1000) // 1000) - 1)]
    after = ordered[min(len(ordered) - 1, int(share * len(values)))]
    assert found is not None
    assert true / 1.34 <= found <= after * 1.34


def test_nothing_has_no_percentile() -> None:
    assert percentile(empty(), 0.5) is None
    assert percentile([], 0.5) is None


def test_a_job_counts_for_the_network_its_model_and_its_node() -> None:
    interval = a_counter(a_record()).interval
    taken = interval.take(["network", "model", "node"])
    assert set(taken) == {("network", ""), ("model", MODEL), ("node", node_id(1))}
    shown = describe_figures(taken["network", ""], step_s=60)
    assert (shown.jobs, taken["network", ""].tokens, shown.success_rate) == (1, 51, 1.0)
    assert shown.first_token_p50_ms == pytest.approx(100, rel=0.3)
    assert shown.speed_p50_tps == pytest.approx(50, rel=0.3)
    assert interval.take(["network"]) == {}


@given(jobs=st.integers(1, JOBS_FOR_A_SUM_MIN - 1), tokens=st.integers(0, 10**6))
def test_tokens_of_few_jobs_are_not_published(jobs: int, tokens: int) -> None:
    shown = describe_figures(HistoryCounts(jobs=jobs, tokens=tokens), step_s=60)
    assert (shown.jobs, shown.tokens, shown.tokens_per_s) == (jobs, None, None)


@pytest.mark.parametrize(
    ("jobs", "tokens", "shown", "per_s"),
    [
        (0, 0, 0, 0.0),
        (5, 12_345, 12_000, 200.0),
        (900, 96_123_456, 96_000_000, 1_600_000.0),
        (5, 37, 50, 0.83),
        (5, 237, 250, 4.2),
    ],
)
def test_tokens_of_many_jobs_are_published_roughly(jobs: int, tokens: int, shown: int, per_s: float) -> None:
    told = describe_figures(HistoryCounts(jobs=jobs, tokens=tokens), step_s=60)
    assert (told.tokens, told.tokens_per_s) == (shown, per_s)


def test_an_answer_in_one_piece_has_neither_a_first_token_nor_a_speed() -> None:
    """All of it comes at once: its first token would be as late as its last, and its speed without end."""
    record = a_record(streamed=False)
    record.attempts[0].first_token_ms = 1099.0
    counter = a_counter(record)
    figures = counter.interval.take(["network"])["network", ""]
    assert (figures.jobs, figures.tokens, figures.first_token, figures.speed) == (1, 51, [], [])
    assert counter.first_tokens() == (None, 0)


def test_an_answer_that_moved_has_the_first_token_that_its_client_saw() -> None:
    record = a_record()
    record.attempts.append(
        AttemptRecord(node_id(2), started_ms=1200.0, first_token_ms=9000.0, ended_ms=10_100.0, tokens=50)
    )
    shown = describe_figures(a_counter(record).interval.take(["network"])["network", ""], step_s=60)
    assert shown.first_token_p50_ms == pytest.approx(100, rel=0.3)
    assert shown.speed_p50_tps == pytest.approx(10, rel=0.3)


@pytest.mark.parametrize(
    ("record", "failed"),
    [
        (a_record(Outcome.FAILED), 1),
        (a_record(Outcome.TIMED_OUT), 1),
        (a_record(Outcome.FAILED, error_status=503), 1),
        (a_record(Outcome.FAILED, error_status=400), 0),
        (a_record(Outcome.CANCELLED), 0),
    ],
)
def test_what_the_client_did_wrong_is_no_failure_of_the_network(record: MatchRecord, failed: int) -> None:
    assert a_counter(record).interval.take(["network"])["network", ""].failed == failed


@pytest.mark.parametrize(
    ("code", "barred", "failed"),
    [
        ("no_eligible_node", {"region": 2}, 0),
        ("no_eligible_node", {"region": 0}, 1),
        ("no_eligible_node", {}, 1),
        ("no_capacity", {"region": 1}, 1),
    ],
)
def test_what_one_s_own_policy_rules_out_is_no_failure_of_the_network(
    code: str, barred: dict[str, int], failed: int
) -> None:
    decision = msgspec.structs.replace(a_record().decision, ranked_count=0, ranked_rows=b"", rejected_by_policy=barred)
    record = a_record(Outcome.FAILED, error_status=503, error_code=code, decision=decision, attempts=[])
    figures = a_counter(record).interval.take(["network"])["network", ""]
    assert (figures.jobs, figures.failed) == (1, failed)


async def test_a_policy_that_bars_every_node_does_not_lower_the_success_rate() -> None:
    services = make_services(a_table(2))
    async with running(services) as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "provider": {"region": ["JP"]}}
        reply = await client.post("/v1/chat/completions", json=body, headers=bearer())
        assert (reply.status, (await reply.json())["error"]["code"]) == (503, "no_eligible_node")
    shown = describe_figures(services.counter.interval.take(["network"])["network", ""], step_s=60)
    assert (shown.jobs, shown.success_rate) == (1, 1.0)


def test_a_reply_that_broke_off_is_an_error_of_its_code() -> None:
    counter = a_counter(a_record(Outcome.FAILED, stream_error_code="job_failed"))
    assert counter.interval.take(["error"])["error", "job_failed"].jobs == 1


def test_made_up_names_do_not_fill_the_memory() -> None:
    counter = a_counter()
    for number in range(2 * HISTORY_NAMES_MAX):
        counter.count_error(f"code_{number}")
    assert len(counter.interval.take(["error"])) == HISTORY_NAMES_MAX


def test_a_node_that_is_away_counts_as_known_and_not_as_up() -> None:
    table, interval = a_table(2), IntervalFigures()
    table.disconnect(node_id(2), unix_s=1_000.0)
    interval.add_uptime(table, passed_s=10.0, unix_s=1_010.0)
    taken = interval.take(["node", "network", "model"])
    assert (taken["node", node_id(1)].up_s, taken["node", node_id(1)].known_s) == (10.0, 10.0)
    assert (taken["node", node_id(2)].up_s, taken["node", node_id(2)].known_s) == (0.0, 10.0)
    assert (taken["network", ""].nodes, taken["model", MODEL].up_s) == (1, 10.0)


def test_the_history_shows_no_more_of_a_machine_s_memory_than_the_feed() -> None:
    table = a_table(1, some_specs(gpu="cpu", gpu_count=0, vram_bytes=23_456_789_012))
    interval = IntervalFigures()
    interval.add_uptime(table, passed_s=10.0, unix_s=0.0)
    shown = describe_figures(interval.take(["network"])["network", ""], step_s=60)
    assert shown.vram_gb == make_services(table).live.totals().vram_gb == 16


def test_a_node_that_left_long_ago_is_not_counted_as_down_for_ever() -> None:
    table, interval = a_table(1), IntervalFigures()
    table.disconnect(node_id(1), unix_s=0.0)
    interval.add_uptime(table, passed_s=10.0, unix_s=30 * 86_400.0)
    assert interval.take(["node"]) == {}


class Stubborn(HistoryStore):
    """Away until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__(NoPool())
        self.is_away = True
        self.added: list[Mapping[tuple[HistoryKind, str], HistoryCounts]] = []

    async def add(self, counted: Mapping[tuple[HistoryKind, str], HistoryCounts], *, unix_s: float) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        self.added.append(dict(counted))

    async def points(
        self, kind: HistoryKind, *, step_s: int, since_unix_s: float, name: str | None, limit: int
    ) -> list[HistoryRow]:
        return []


async def test_what_cannot_be_stored_is_stored_later_and_once() -> None:
    store, clock = Stubborn(), ManualClock()
    counter = a_counter(a_record(), clock=clock)
    writer = HistoryWriter(counter, a_table(1), store, Remembering(), clock=clock)
    clock.advance(10)
    with pytest.raises(StoreUnavailable):
        await writer.store()
    counter.on_finished(a_record())
    store.is_away = False
    clock.advance(10)
    await writer.close()
    [added] = store.added
    network = added["network", ""]
    assert (network.jobs, network.tokens, network.known_s) == (2, 102, 20.0)
    assert sum(network.first_token) == 2
    assert counter.first_tokens() == (100.0, 2)


async def test_errors_of_requests_for_an_answer_are_counted_by_code() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        await client.post("/v1/chat/completions", json={"model": "m", "messages": []})
        await client.post("/v1/chat/completions", json={"model": "m", "messages": 3}, headers=bearer())
        await client.get("/v1/nodes")
        counted = services.counter.interval.take(["error"])
    assert {name: figures.jobs for (_, name), figures in counted.items()} == {
        "invalid_api_key": 1,
        "invalid_value": 1,
    }


async def test_the_history_is_public_in_json_and_csv() -> None:
    database = ListDatabase()
    database.history = Stubborn()
    services = make_services(a_table(1), database=database)
    async with running(services) as client:
        reply = await client.get("/v1/history?kind=network&span=24h")
        told = await reply.json()
        assert (reply.status, told["step_s"], told["data"]) == (200, 60, [])
        csv = await client.get("/v1/history?kind=model&span=30d&format=csv")
        assert (csv.status, csv.content_type) == (200, "text/csv")
        assert (await client.get("/v1/history?kind=node")).status == 400


SOME_NEWS = NewsReply(
    "run", "1", [], jobs=0, tokens_per_s=0.0, first_token_ms=None, first_tokens=0, held={}, matches=[]
)


async def test_time_is_counted_by_one_process_and_jobs_by_each() -> None:
    store, clock = Stubborn(), ManualClock()
    store.is_away = False
    slot = ProcessSlot(1, link_ports=(1, 2), peer_ports=(3, 4))
    peers = Peers(PeerClient(slot), clock=clock, run="run")
    peers._states[0] = PeerState(SOME_NEWS, clock.now_s(), frozenset())
    counter, uptime = a_counter(a_record(), clock=clock), peers.counts_uptime
    writer = HistoryWriter(counter, a_table(1), store, Remembering(), clock=clock, counts_uptime=uptime)
    clock.advance(2)
    await writer.close()  # the first process is there, and counts
    clock.advance(8)
    await writer.close()  # it has been silent for too long: this one does
    assert [(added["network", ""].jobs, added["network", ""].known_s) for added in store.added] == [(1, 0.0), (0, 8.0)]


async def test_a_node_with_a_link_to_another_process_is_up() -> None:
    interval, table = IntervalFigures(), a_table(1)
    table.disconnect(node_id(1), unix_s=0.0)
    interval.add_uptime(table, passed_s=10.0, unix_s=1.0, has_peer_link=lambda node: node == node_id(1))
    assert interval.take(["node"])["node", node_id(1)].up_s == 10.0
