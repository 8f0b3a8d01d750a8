"""What two processes of one gateway know of each other, and views over both of them."""

from __future__ import annotations

from typing import Any

import pytest

from sparewatt.api.operations.pulse import PulseEndpoints
from sparewatt.cluster.peer_rpc import PeerClient, ProcessSlot
from sparewatt.cluster.peers import HUNG_S, SILENT_S, Peers
from sparewatt.cluster.questions import NEWS, NewsReply, PeerQuestion
from sparewatt.core.errors import (
    NotAuthenticated,
)
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.gateway.routes import endpoint_groups
from sparewatt.gateway.services import Services
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.node_row import NodeState
from sparewatt.link.gateway_end import NodeLink
from sparewatt.link.send_queue import SendQueue
from sparewatt.protocol.api.operations import Pulse
from sparewatt.store.database import KeyTerms
from sparewatt.testing.clocks import ManualClock
from tests.unit.cluster.pair import Pair, clock_of
from tests.unit.gateway.small_gateway import ADMIN, OTHER, USER, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job, a_table, node_id
from tests.unit.inference.scripted import RecordingSink
from tests.unit.telemetry.test_job_counter import a_record, an_attempt


def fail_job(services: Services, name: str, *, key: str = "key_user") -> None:
    job = a_dispatched_job(match=a_job(id=MatchId(name), model="nobody-has-it"), key_id=KeyId(key))
    services.dispatcher.dispatch(job, RecordingSink(), ranking=BALANCED)


# matches


async def test_a_match_is_shown_by_either_process_to_those_allowed_to_see_it(pair: Pair) -> None:
    fail_job(pair.second, "match_there")
    async with running(pair.first) as client:
        for key, status in ((USER, 200), (ADMIN, 200), (OTHER, 404)):
            reply = await client.get("/v1/matches/match_there", headers=bearer(key))
            assert reply.status == status
        assert (await client.get("/v1/matches/match_nowhere", headers=bearer(ADMIN))).status == 404


async def test_the_last_matches_are_those_of_all_processes(pair: Pair) -> None:
    fail_job(pair.first, "match_1")
    clock_of(pair.second).advance(5)
    fail_job(pair.second, "match_2")
    fail_job(pair.second, "match_other", key="key_other")
    async with running(pair.first) as client:
        mine = await (await client.get("/v1/matches", headers=bearer())).json()
        assert [each["match_id"] for each in mine["data"]] == ["match_2", "match_1"]
        one = await (await client.get("/v1/matches?limit=1", headers=bearer())).json()
        assert [each["match_id"] for each in one["data"]] == ["match_2"]


async def test_why_a_node_got_no_job_is_counted_over_all_processes(pair: Pair) -> None:
    for services in (pair.first, pair.second, pair.second):
        fail_job(services, f"match_{id(services)}_{len(list(services.dispatcher.last_records(9)))}")
    async with running(pair.first) as client:
        told = await (await client.get(f"/v1/nodes/{node_id(1)}/why", headers=bearer(ADMIN))).json()
        assert (told["matches"], told["rejected"]) == (3, {"model": 3})


# keys


async def test_a_key_that_one_process_made_or_revoked_counts_at_the_other_at_once(pair: Pair) -> None:
    for name in ("older", "new"):  # such a database numbers its rows from one, as those are that both know already
        row, secret = await pair.first.key_service.create(
            AccountId("acc_user"), terms=KeyTerms(name=name), scopes=["inference"]
        )
    unix_s = pair.second.clock.unix_s()
    assert pair.second.keys.authenticate(f"Bearer {secret}", unix_s=unix_s).id == row.id
    await pair.first.key_service.revoke(row.id, account_id=None)
    with pytest.raises(NotAuthenticated):
        pair.second.keys.authenticate(f"Bearer {secret}", unix_s=unix_s)


# what they know of each other


async def test_a_node_with_a_link_to_another_process_alone_is_online(pair: Pair) -> None:
    row = pair.first.table.get(node_id(1))
    assert row is not None
    pair.first.table.disconnect(row.id, unix_s=0.0)
    assert pair.first.states.of(row) is NodeState.OFFLINE
    pair.second.links.links[row.id] = None  # type: ignore[assignment]  # that there is one is all that counts
    pair.second.links.version += 1
    await pair.exchange()
    assert pair.first.states.of(row) is NodeState.ONLINE
    await pair.exchange()  # the list is not sent again, and still known
    assert pair.first.peers.nodes() == {row.id}
    clock_of(pair.first).advance(SILENT_S)
    assert pair.first.states.of(row) is NodeState.OFFLINE


async def test_totals_are_sums_over_all_processes(pair: Pair) -> None:
    pair.second.counter._recent.append((pair.second.clock.now_s(), 300.0))
    pair.first.counter._recent.append((pair.first.clock.now_s(), 100.0))
    await pair.exchange()
    assert pair.first.live.totals().first_token_ms == 200
    assert pair.first.live.totals().jobs == 0


async def test_one_process_counts_uptime(pair: Pair) -> None:
    await pair.exchange()
    assert (pair.first.peers.counts_uptime(), pair.second.peers.counts_uptime()) == (True, False)
    clock_of(pair.second).advance(SILENT_S)
    assert pair.second.peers.counts_uptime()
    assert make_services().peers.counts_uptime()


async def test_of_the_processes_with_a_link_to_a_node_the_first_speaks_for_all(pair: Pair) -> None:
    for services in (pair.first, pair.second):
        services.links.links[node_id(1)] = NodeLink(
            node_id(1), send_queue=SendQueue(), observer=services.links, clock=services.clock
        )
        services.links.version += 1
    await pair.exchange()
    first, second = pair.first.peers, pair.second.peers
    assert (first.is_first_with_link(node_id(1)), second.is_first_with_link(node_id(1))) == (True, False)
    assert second.is_first_with_link(node_id(2)), "the first has no link to this one"
    clock_of(pair.second).advance(SILENT_S)
    assert second.is_first_with_link(node_id(1)), "the first is gone"


async def test_a_pulse_counts_what_all_processes_did(pair: Pair) -> None:
    for services in (pair.first, pair.second):
        services.counter.on_finished(a_record(an_attempt(), model=MODEL))
        services.counter.count_error("no_capacity")
    alone = describe(await pulse_of(make_services(a_table(2))))
    pulses = [describe(await pulse_of(services)) for services in (pair.first, pair.second)]
    assert [each["requests"] for each in pulses] == [2, 2]
    assert [each["errors"] for each in pulses] == [{"no_capacity": 2}] * 2
    assert pulses[0]["tokens"] == pulses[1]["tokens"] == {node_id(1): 102, node_id(2): 0}
    assert pulses[0]["instance"] == pulses[1]["instance"] != alone["instance"]
    assert len(pulses[0]["buckets"]) == len(alone["buckets"])


async def pulse_of(services: Services) -> Pulse:
    [endpoints] = [group for group in endpoint_groups(services) if isinstance(group, PulseEndpoints)]
    return await endpoints.current_pulse()


def describe(pulse: Pulse) -> dict[str, Any]:
    (model,) = pulse.models
    return {
        "instance": pulse.instance,
        "errors": pulse.errors,
        "requests": model.requests["done"],
        "buckets": model.first_token_counts,
        "tokens": {node.id: node.tokens for node in pulse.busiest},
    }


async def test_viewers_see_the_matches_of_the_other_process(pair: Pair) -> None:
    fail_job(pair.second, "match_before")
    pair.first.live.enter()
    await pair.exchange()
    fail_job(pair.second, "match_after")
    await pair.exchange()
    await pair.first.live.make_frame()
    shown = b"".join(frame.data for frame in pair.first.live.frames.after(1) or ())
    assert b"match_before" in shown
    assert b"match_after" in shown
    assert pair.second.live._peer_cursors != {}
    pair.first.live.leave()
    await pair.exchange()
    assert pair.second.live._peer_cursors == {}


# a process that hangs


class SlowAnswers(PeerClient):
    """Another process as the network shows it: it answers, its port is closed, or it takes a question and is silent."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(ProcessSlot(0, peer_ports=(1, 2)))
        self.clock = clock
        self.mode = "answers"

    async def ask(self, number: int, question: PeerQuestion[Any, Any], request: Any) -> Any:
        if self.mode == "silent":
            self.clock.advance(question.within_s)
        if self.mode != "answers":
            return None
        return NewsReply("run", "v", [], 0, 0.0, None, 0, {}, [])


async def test_a_process_that_takes_questions_and_answers_none_hangs() -> None:
    clock = ManualClock()
    client = SlowAnswers(clock)
    peers = Peers(client, clock=clock, run="a")
    await peers.exchange(watching=False)
    assert peers.hung() == ()
    client.mode = "silent"
    await peers.exchange(watching=False)
    assert peers.hung() == ()
    clock.advance(HUNG_S - NEWS.within_s)
    assert peers.hung() == (1,)
    await peers.exchange(watching=False)
    assert peers.hung() == (1,)


@pytest.mark.parametrize("mode", ["answers", "closed"])
async def test_a_process_that_answers_or_has_ended_does_not_hang(mode: str) -> None:
    clock = ManualClock()
    client = SlowAnswers(clock)
    peers = Peers(client, clock=clock, run="a")
    client.mode = "silent"
    await peers.exchange(watching=False)
    clock.advance(HUNG_S)
    client.mode = mode
    await peers.exchange(watching=False)
    clock.advance(HUNG_S)
    assert peers.hung() == ()
