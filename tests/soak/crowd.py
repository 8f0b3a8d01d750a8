"""A gateway whose nodes are simulated: ten thousand, three hundred of which change every second, all over the world.

Run as a process: `python -m tests.soak.crowd PORT`. The routes, the table and the feed are the real ones.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys

import msgspec

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.custody import Custody
from sparewatt.cluster.peer_rpc import ALONE, PeerClient
from sparewatt.cluster.peers import Peers
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import KeyId, MatchId, new_id
from sparewatt.core.rng import seeded
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import NodeLoad
from sparewatt.telemetry.feed.live_feed import FRAME_S
from sparewatt.telemetry.feed.places import REGIONS
from tests.unit.edge.served import serving_on
from tests.unit.gateway.small_gateway import CHEAP, ListDatabase
from tests.unit.inference.nodes import GIB, a_job, node_id, situation, some_specs

NODES = int(os.environ.get("CROWD_NODES", "10000"))
CHANGES_PER_S = int(os.environ.get("CROWD_CHANGES", "300"))
MATCHES_PER_S = 20
TOKENS = 40
TURNS_PER_S = 20
HEARTBEAT_S = 1e6
"""Nodes that are simulated send none, and are not missed."""
GPUS = (("RTX 4090", 24), ("RTX 3060", 12), ("A100", 80), ("H100", 80), ("RTX 4060", 8), ("B200", 192))


def make_crowd(clock: SystemClock, chance: random.Random) -> NodeTable:
    table, regions, plain = NodeTable(), sorted(REGIONS), some_specs()
    for number in range(NODES):
        gpu, gigabytes = chance.choice(GPUS)
        region = chance.choice(regions)
        specs = msgspec.structs.replace(plain, region=region, gpu=gpu, vram_bytes=gigabytes * GIB, name=f"n{number}")
        table.connect(node_id(number), specs, now_s=clock.now_s())
    return table


def make_services(clock: SystemClock, chance: random.Random) -> Services:
    """The parts of a gateway without Postgres, by a clock that goes."""
    database, client, rng = ListDatabase(), PeerClient(ALONE), seeded(1)
    return Services(
        settings=GatewaySettings(database_url="postgresql://nowhere", heartbeat_s=HEARTBEAT_S),
        database=database,
        table=make_crowd(clock, chance),
        accounting=None,
        people=AccountService(database.accounts, passwords=CHEAP, custody=Custody(bytes(32), rng=rng), rng=rng),
        custody=Custody(bytes(32), rng=rng),
        secret=bytes(32),
        node_links={},
        port=1,
        peer_client=client,
        peers=Peers(client, clock=clock, run=new_id("run", rng=rng, n_bytes=5)),
        clock=clock,
        rng=rng,
    )


def after(row: NodeRow) -> NodeLoad:
    """Idle, busy, paused, and round again."""
    if row.load.draining:
        return NodeLoad()
    if row.load.foreign:
        return NodeLoad(draining=True, paused="by hand")
    return NodeLoad(foreign=row.specs.slots)


async def change(services: Services, chance: random.Random) -> None:
    """Nodes pause, go on, leave and come back; a few jobs are matched."""
    table, clock = services.table, services.clock
    health = HealthRules(heartbeat_s=HEARTBEAT_S)
    decision = match(a_job(), table, situation(now_s=clock.now_s(), rules=health), ranking=BALANCED, seed=1)
    turn = 0
    while True:
        for _ in range(CHANGES_PER_S // TURNS_PER_S):
            row = table.get(node_id(chance.randrange(NODES)))
            assert row is not None
            if chance.random() < 0.5:
                row.connected = not row.connected
                row.last_seen_unix_s = clock.unix_s()
            else:
                row.load = after(row)
        for _ in range(MATCHES_PER_S // TURNS_PER_S):
            turn += 1
            record = MatchRecord(MatchId(f"match_{turn}"), KeyId("key_a"), clock.unix_s(), decision, Outcome.DONE)
            record.attempts.append(
                AttemptRecord(node_id(chance.randrange(NODES)), 0.0, Outcome.DONE, None, 50.0, 900.0, TOKENS)
            )
            services.counter.on_finished(record)
            services.dispatcher._ring.add(record)  # nothing runs here that would
            services.dispatcher._tokens_done += TOKENS
        await asyncio.sleep(1 / TURNS_PER_S)


async def look(services: Services) -> None:
    while True:
        await services.live.make_frame()
        await asyncio.sleep(FRAME_S)


async def main(port: int) -> None:
    clock, chance = SystemClock(), random.Random(1)
    services = make_services(clock, chance)
    listener = socket.create_server(("127.0.0.1", port))
    listener.setblocking(False)
    async with serving_on(listener, services), asyncio.TaskGroup() as tasks:
        tasks.create_task(change(services, chance))
        tasks.create_task(look(services))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
