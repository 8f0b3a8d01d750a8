"""A gateway whose nodes are simulated: ten thousand, three hundred of which change every second, all over the world.

Run as a process: `python -m tests.soak.crowd PORT`. The routes, the table and the feed are the real ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import socket
import sys

import msgspec

from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import KeyId, MatchId
from sparewatt.gateway.feeds.live import LOOK_S
from sparewatt.gateway.feeds.places import REGIONS
from sparewatt.gateway.front import listening
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import HealthRules, NodeRow
from sparewatt.inference.matcher.policies import BALANCED
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.node import NodeLoad
from tests.unit.gateway.small_gateway import make_services
from tests.unit.inference.nodes import GIB, a_job, node_id, situation, some_specs

NODES = int(os.environ.get("CROWD_NODES", "10000"))
CHANGES_PER_S = int(os.environ.get("CROWD_CHANGES", "300"))
MATCHES_PER_S = 20
TOKENS = 40
TURNS_PER_S = 20
GPUS = (("RTX 4090", 24), ("RTX 3060", 12), ("A100", 80), ("H100", 80), ("RTX 4060", 8), ("B200", 192))


def make_crowd(clock: SystemClock, chance: random.Random) -> NodeTable:
    table, regions, plain = NodeTable(), sorted(REGIONS), some_specs()
    for number in range(NODES):
        gpu, gigabytes = chance.choice(GPUS)
        region = chance.choice(regions)
        specs = msgspec.structs.replace(plain, region=region, gpu=gpu, vram_bytes=gigabytes * GIB, name=f"n{number}")
        table.connect(node_id(number), specs, now_s=clock.now_s())
    return table


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
    decision = match(a_job(), table, situation(now_s=clock.now_s(), rules=services.health), policy=BALANCED, seed=1)
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
            services.history.count([record])
            services.live.show([record])
            services.dispatcher._tokens_done += TOKENS  # nothing runs here that would count them
        await asyncio.sleep(1 / TURNS_PER_S)


async def look(services: Services) -> None:
    while True:
        await services.live.look()
        await asyncio.sleep(LOOK_S)


async def main(port: int) -> None:
    clock, chance = SystemClock(), random.Random(1)
    patient = HealthRules(heartbeat_s=1e6)
    services = dataclasses.replace(make_services(make_crowd(clock, chance)), clock=clock, health=patient)
    listener = socket.create_server(("127.0.0.1", port))
    listener.setblocking(False)
    async with listening(make_app(services), listener), asyncio.TaskGroup() as tasks:
        tasks.create_task(change(services, chance))
        tasks.create_task(look(services))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
