"""The registry that lets nodes in: what it tells them, and what the table of nodes says after each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from sparewatt.accounts.join_tokens import JoinTokens
from sparewatt.core.errors import JoinRefused, LinkLost, SparewattError, StoreUnavailable
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.inference.fleet.fleet_limits import FleetBounds
from sparewatt.inference.fleet.link_registry import LinkPorts, LinkRegistry
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link import handshake
from sparewatt.link.handshake import authenticate_to_gateway
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import (
    Goodbye,
    JobReplyHead,
    Opcode,
    Reject,
    Welcome,
    decode_frames,
    decode_message,
    encode_frame,
    encode_message,
)
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from sparewatt.testing.memory_socket import MemorySocket, socket_pair
from tests.unit.link.ends import Listener, job_of
from tests.unit.protocol.reports import SPECS
from tests.waiting import CEILING_S, turns, until

HOST = "gateway.example:443"
HOME, AWAY = "192.0.2.1", "198.51.100.7"
"""Where nodes dial from."""
HEALTH = HealthRules(heartbeat_s=5.0, offline_after_missed=3)
SILENT_S = HEALTH.heartbeat_s * HEALTH.offline_after_missed + HEALTH.grace_s + 0.1


class Tokens(JoinTokens):
    """Admits every node, or says to each the same no."""

    def __init__(self) -> None:
        self.no: SparewattError | None = None
        self.seen: list[tuple[NodeId, str | None]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def admit(self, node_id: NodeId, token: str | None) -> AccountId:
        self.seen.append((node_id, token))
        await self.may_answer.wait()
        if self.no is not None:
            raise self.no
        return AccountId("acc_owner")


class Visit:
    """One connection: the node's end of the socket, and the task that serves the other."""

    def __init__(self, registry: LinkRegistry, *, key: SigningKey, address: str) -> None:
        self.key, self.address = key, address
        self.socket, far = socket_pair()
        self.served = asyncio.create_task(self._serve(registry, far))

    async def _serve(self, registry: LinkRegistry, socket: MemorySocket) -> None:
        try:
            await registry.serve(socket, address=self.address)
            await socket.wait_closed()
        finally:
            socket.abort()

    async def join(self, *, specs: NodeSpecs = SPECS) -> Welcome:
        return await authenticate_to_gateway(
            self.socket, key=self.key, host=HOST, token="t", specs=specs, agent_version="1", rng=seeded(3)
        )

    async def answer(self) -> Reject:
        """What it is told instead of a welcome."""
        (frame,) = decode_frames(await self.socket.receive())
        assert frame.op is Opcode.REJECT
        return decode_message(frame.payload, Reject)

    async def over(self) -> None:
        async with asyncio.timeout(CEILING_S):
            await asyncio.wait([self.served])


class Registry(LinkRegistry):
    """The registry, with all that it works on in reach."""

    def __init__(
        self,
        ports: LinkPorts | None = None,
        demand: UnmetDemand | None = None,
        bounds: FleetBounds | None = None,
        price_notice: Callable[[ModelReport], str | None] = lambda _: None,
    ) -> None:
        self.clock, self.table, self.tokens = ManualClock(), NodeTable(), Tokens()
        self.visits: list[Visit] = []
        self.left: list[NodeId] = []
        self.forgotten: list[NodeId] = []
        self.n_sendings = 0
        super().__init__(
            {},
            table=self.table,
            tokens=self.tokens,
            hosts={HOST},
            health=HEALTH,
            clock=self.clock,
            rng=seeded(1),
            ports=ports,
            before_sending=self._count_sending,
            on_left=self.left.append,
            demand=demand,
            bounds=bounds,
            on_forgotten=self.forgotten.append,
            price_notice=price_notice,
        )

    def _count_sending(self) -> None:
        self.n_sendings += 1

    def visit(self, *, seed: int = 1, address: str = HOME) -> Visit:
        self.visits.append(Visit(self, key=SigningKey.generate(rng=seeded(seed)), address=address))
        return self.visits[-1]

    async def joined(self, *, seed: int = 1, specs: NodeSpecs = SPECS) -> Visit:
        visit, before = self.visit(seed=seed), self.links.get(SigningKey.generate(rng=seeded(seed)).address)
        await visit.join(specs=specs)
        await until(lambda: self.links.get(visit.key.address) not in (None, before))
        return visit

    def row(self, visit: Visit) -> NodeRow:
        row = self.table.get(visit.key.address)
        assert row is not None
        return row

    def open_job(self, visit: Visit) -> Listener:
        listener = Listener()
        self.links[visit.key.address].open(job_of(b"{}"), b"{}", listener)
        return listener


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with closing(Registry()) as registry:
        yield registry


@asynccontextmanager
async def closing(registry: Registry) -> AsyncIterator[Registry]:
    try:
        yield registry
    finally:
        for visit in registry.visits:
            visit.served.cancel()
            await asyncio.wait([visit.served])


async def receive_op(socket: Socket, op: Opcode) -> bytes:
    """The next frame of that kind."""
    async with asyncio.timeout(CEILING_S):
        while True:
            for frame in decode_frames(await socket.receive()):
                if frame.op is op:
                    return frame.payload


# joining and leaving


async def test_a_node_that_joins_is_in_the_table_and_can_be_sent_jobs(registry: Registry) -> None:
    visit = await registry.joined()
    assert registry.tokens.seen == [(visit.key.address, "t")]
    assert (registry.row(visit).connected, registry.row(visit).specs) == (True, SPECS)
    assert set(registry.links) == registry.changed == {visit.key.address}
    registry.open_job(visit)
    await receive_op(visit.socket, Opcode.OPEN)


async def test_a_link_asks_whether_it_may_send_before_a_job_leaves(registry: Registry) -> None:
    visit = await registry.joined()
    await turns()
    before = registry.n_sendings
    registry.open_job(visit)
    await receive_op(visit.socket, Opcode.OPEN)
    assert registry.n_sendings == before + 1


async def test_when_a_new_node_joined_is_known_and_a_second_link_does_not_change_it(registry: Registry) -> None:
    visit = await registry.joined()
    joined = registry.joined_unix_s[visit.key.address]
    registry.clock.advance(60.0)
    await registry.joined()
    assert joined == registry.clock.unix_s() - 60.0 == registry.joined_unix_s[visit.key.address]


async def test_a_node_that_was_known_at_the_start_is_not_new(registry: Registry) -> None:
    known = registry.visit()
    registry.owners[known.key.address] = AccountId("acc_owner")
    await known.join()
    assert registry.joined_unix_s == {}


async def test_a_node_that_joins_is_told_the_heartbeat_and_pinged(registry: Registry) -> None:
    visit = registry.visit()
    assert (await visit.join()).heartbeat_s == HEALTH.heartbeat_s
    assert len(await receive_op(visit.socket, Opcode.PING)) == 8


async def test_a_node_that_joins_one_of_several_processes_is_told_where_all_of_them_are(registry: Registry) -> None:
    assert (await registry.visit().join()).link_ports == ()
    several = Registry(LinkPorts((9001, 9002), 9002))
    visit = several.visit()
    welcome = await visit.join()
    assert (welcome.link_ports, welcome.link_port) == ((9001, 9002), 9002)
    visit.socket.close()
    await visit.over()


async def test_a_node_whose_socket_closes_has_left_and_its_jobs_fail_at_once(registry: Registry) -> None:
    visit = await registry.joined()
    job = registry.open_job(visit)
    registry.changed.clear()
    visit.socket.close()
    await visit.over()
    assert [fail.code for fail in job.fails] == ["link_lost"]
    assert not registry.row(visit).connected
    assert registry.row(visit).last_seen_unix_s == registry.clock.unix_s()
    assert (registry.links, registry.changed, registry.left) == ({}, {visit.key.address}, [visit.key.address])


async def test_a_node_that_left_may_come_back(registry: Registry) -> None:
    visit = await registry.joined()
    visit.socket.close()
    await visit.over()
    again = await registry.joined()
    assert registry.row(again).connected


async def test_a_connection_that_the_server_drops_is_a_node_that_left(registry: Registry) -> None:
    visit = await registry.joined()
    job = registry.open_job(visit)
    visit.served.cancel()
    await visit.over()
    assert (len(job.fails), registry.links, registry.row(visit).connected) == (1, {}, False)


async def test_nodes_do_not_end_each_other(registry: Registry) -> None:
    one, two = await registry.joined(seed=1), await registry.joined(seed=2)
    one.socket.close()
    await one.over()
    assert set(registry.links) == {two.key.address}
    assert (registry.row(one).connected, registry.row(two).connected) == (False, True)


# takeover


async def test_a_newer_link_of_the_same_node_takes_over(registry: Registry) -> None:
    old = await registry.joined()
    job, link = registry.open_job(old), registry.links[old.key.address]
    renamed = msgspec.structs.replace(SPECS, name="cellar")
    new = await registry.joined(specs=renamed)
    await old.over()
    assert [fail.message for fail in job.fails] == ["replaced by a newer link of the same node"]
    assert registry.links[new.key.address] is not link
    assert (registry.row(new).connected, registry.row(new).specs.name) == (True, "cellar")


async def test_a_link_that_was_replaced_ends_without_harm_to_the_newer_one(registry: Registry) -> None:
    old = await registry.joined()
    new = await registry.joined()
    job = registry.open_job(new)
    await old.over()
    old.socket.send(encode_message(Opcode.LOAD, NodeLoad(draining=True)))
    await turns()
    assert not job.fails
    assert registry.row(new).connected
    assert not registry.row(new).load.draining


# silence


async def test_a_silent_link_is_dropped(registry: Registry) -> None:
    visit = await registry.joined()
    job = registry.open_job(visit)
    registry.clock.advance(SILENT_S)
    registry.drop_silent()
    assert [fail.message for fail in job.fails] == ["its heartbeats stopped"]
    assert (registry.links, registry.row(visit).connected) == ({}, False)
    await visit.over()
    assert visit.served.exception() is None


async def test_a_link_that_is_heard_of_in_time_stays(registry: Registry) -> None:
    visit = await registry.joined()
    registry.clock.advance(SILENT_S - 1)
    registry.drop_silent()
    visit.socket.send(encode_message(Opcode.LOAD, NodeLoad(running=1)))
    await until(lambda: registry.row(visit).load.running == 1)
    registry.clock.advance(SILENT_S - 1)
    registry.drop_silent()
    assert registry.row(visit).connected


# what a node reports


async def test_reports_reach_the_table(registry: Registry) -> None:
    visit = await registry.joined()
    registry.changed.clear()
    renamed = msgspec.structs.replace(SPECS, name="cellar", models=())
    visit.socket.send(encode_message(Opcode.SPECS, renamed) + encode_message(Opcode.LOAD, NodeLoad(queued=2)))
    await until(lambda: registry.row(visit).load.queued == 2)
    assert (registry.row(visit).specs, registry.row(visit).models) == (renamed, {})
    assert registry.changed == {visit.key.address}


async def test_a_pong_reaches_the_table(registry: Registry) -> None:
    visit = await registry.joined()
    stamp = await receive_op(visit.socket, Opcode.PING)
    registry.clock.advance(0.25)
    visit.socket.send(encode_frame(Opcode.PONG, 0, stamp))
    await until(lambda: registry.row(visit).rtt_s == 0.25)


async def test_a_node_that_breaks_the_protocol_is_dropped_with_the_reason(registry: Registry) -> None:
    visit = await registry.joined()
    job = registry.open_job(visit)
    visit.socket.send(encode_frame(Opcode.DATA, 1, b"before the head"))
    await visit.over()
    assert "broke the protocol" in job.fails[0].message
    assert (registry.links, registry.row(visit).connected) == ({}, False)
    assert visit.served.exception() is None


async def test_an_error_that_nobody_foresaw_ends_the_link_and_is_not_swallowed(registry: Registry) -> None:
    class Broken(Listener):
        def on_head(self, head: JobReplyHead) -> None:
            raise ZeroDivisionError

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    visit = await registry.joined()
    other = registry.open_job(visit)
    registry.links[visit.key.address].open(job_of(b"{}"), b"{}", Broken())
    visit.socket.send(encode_message(Opcode.HEAD, JobReplyHead(status=200), stream=2))
    await visit.over()
    assert [type(error["exception"]) for error in errors] == [ZeroDivisionError]
    assert (len(other.fails), registry.links, registry.row(visit).connected) == (1, {}, False)


# not let in


async def test_a_node_without_a_good_token_is_refused_for_good(registry: Registry) -> None:
    registry.tokens.no = JoinRefused("This join token has been used.", reason="token_used")
    visit = registry.visit()
    with pytest.raises(JoinRefused, match="has been used"):
        await visit.join()
    await visit.over()
    assert (len(registry.table), registry.links, registry.changed) == (0, {}, set())


async def test_a_node_is_asked_to_come_back_while_the_database_is_away(registry: Registry) -> None:
    registry.tokens.no = StoreUnavailable("away")
    with pytest.raises(LinkLost, match="database is away"):
        await registry.visit().join()
    assert len(registry.table) == 0


async def test_a_visitor_that_breaks_the_protocol_is_told_so(registry: Registry) -> None:
    visit = registry.visit()
    visit.socket.send(b"GET / HTTP/1.1")
    assert (await visit.answer()).reason == "protocol"
    assert registry.tokens.seen == []


async def test_a_visitor_that_leaves_is_forgotten(registry: Registry) -> None:
    visit = registry.visit()
    visit.socket.close()
    await visit.over()
    assert (visit.served.exception(), len(registry.admission.places)) == (None, 0)


async def test_a_visitor_that_says_nothing_is_sent_away_without_a_word(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "LINK_FIRST_MESSAGE_S", 0.01)
    visit = registry.visit()
    await visit.over()
    assert visit.served.exception() is None
    with pytest.raises(LinkLost):
        await visit.socket.receive()


async def test_where_all_places_are_taken_the_oldest_silent_visitor_goes(registry: Registry) -> None:
    registry.admission.places.size = 2
    first, second = registry.visit(seed=1, address=AWAY), registry.visit(seed=2, address=AWAY)
    await until(lambda: len(registry.admission.places) == 2)
    third = await registry.joined(seed=3)
    await first.over()
    assert not second.served.done()
    await second.join()
    await until(lambda: set(registry.links) == {second.key.address, third.key.address})


async def test_where_all_who_join_are_nearly_in_a_visitor_is_told_to_try_again(registry: Registry) -> None:
    registry.admission.places.size = 1
    registry.tokens.may_answer.clear()
    waiting = registry.visit(seed=1)
    joining = asyncio.create_task(waiting.join())
    await until(lambda: registry.tokens.seen)
    with pytest.raises(LinkLost, match="Try again"):
        await registry.visit(seed=2).join()
    registry.tokens.may_answer.set()
    await joining


async def test_a_table_that_is_full_takes_no_new_node_but_knows_the_old_ones(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.table, "_nodes_max", 1)
    one = await registry.joined(seed=1)
    two = registry.visit(seed=2)
    await two.join()
    await two.over()
    assert set(registry.links) == {one.key.address}
    await registry.joined(seed=1)
    assert registry.row(one).connected


# stopping


async def test_a_gateway_that_stops_tells_its_nodes(registry: Registry) -> None:
    visit = await registry.joined()
    registry.say_goodbye("the gateway is stopping")
    goodbye = decode_message(await receive_op(visit.socket, Opcode.GOODBYE), Goodbye)
    assert goodbye.reason == "the gateway is stopping"


async def test_a_gateway_that_closes_ends_its_links_after_its_last_words(registry: Registry) -> None:
    visit = await registry.joined()
    job = registry.open_job(visit)
    registry.say_goodbye("the gateway is stopping")
    await registry.close()
    await receive_op(visit.socket, Opcode.GOODBYE)
    await visit.over()
    assert [fail.code for fail in job.fails] == ["link_lost"]
    late = registry.visit(seed=2)
    with pytest.raises(LinkLost):
        await late.join()


async def test_a_link_that_is_up_has_no_task(registry: Registry) -> None:
    near, far = socket_pair()
    serving = asyncio.create_task(registry.serve(far, address=HOME))
    key = SigningKey.generate(rng=seeded(7))
    await authenticate_to_gateway(near, key=key, host=HOST, token="t", specs=SPECS, agent_version="1", rng=seeded(3))
    await serving
    assert key.address in registry.links
    assert asyncio.all_tasks() == {asyncio.current_task()}


# pings


async def test_every_link_is_pinged_when_it_comes_and_on_every_beat_by_one_timer(registry: Registry) -> None:
    one = await registry.joined(seed=1)
    await receive_op(one.socket, Opcode.PING)
    registry.clock.advance(2.0)
    two = await registry.joined(seed=2)
    await receive_op(two.socket, Opcode.PING)
    assert registry.clock.pending == 1
    registry.clock.advance(3.0)
    await receive_op(one.socket, Opcode.PING)
    assert not two.socket._early
    registry.clock.advance(2.0)
    await receive_op(two.socket, Opcode.PING)
    assert registry.clock.pending == 1


async def test_without_links_there_is_no_timer(registry: Registry) -> None:
    visit = await registry.joined()
    visit.socket.close()
    await visit.over()
    registry.clock.advance(HEALTH.heartbeat_s)
    assert registry.clock.pending == 0
    await registry.joined()
    assert registry.clock.pending == 1
