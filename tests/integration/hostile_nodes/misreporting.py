"""Lies in reports, and storms of them: specs, prices, load, heartbeats, opcodes."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import get_args

import msgspec

from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.protocol.link.frames import Opcode, encode_frame, encode_message
from sparewatt.protocol.link.node_report import (
    COUNT_MAX,
    PRICE_NANO_MAX,
    Capability,
    NodeLoad,
    NodeSpecs,
    ServerMetrics,
)
from tests.integration.hostile_nodes.behaviour import (
    Attack,
    Behaviour,
    at_usual_price,
    for_nothing,
    join,
    model_report,
    node_specs,
)
from tests.integration.hostile_nodes.liar import HostileNode
from tests.integration.hostile_nodes.trapping import nonsense, rejoining, status

STORM_PAUSE_S = 0.005
STORM_BURST = 5
"""A thousand messages a second."""


async def _linked(attack: Attack) -> AsyncIterator[HostileNode]:
    """Again and again each node that has a link; one that was sent away dials again."""
    while True:
        for node in list(attack.nodes):
            if not node.is_linked:
                await join(node)
            if not node.is_paused:
                yield node
        await asyncio.sleep(STORM_PAUSE_S)


async def storm(attack: Attack, *, message: Callable[[HostileNode, int], bytes]) -> None:
    """As fast as the gateway takes them, at most a thousand a second."""
    counter = itertools.count()
    async for node in _linked(attack):
        for _ in range(STORM_BURST):
            node.send(message(node, next(counter)))


def other_specs(node: HostileNode, count: int) -> bytes:
    """Different ones each time, so that none is skipped as unchanged."""
    return encode_message(Opcode.SPECS, msgspec.structs.replace(node.specs, name=f"liar-{count}"))


def other_models(node: HostileNode, count: int) -> bytes:
    first = node.specs.models[0]
    invented = (msgspec.structs.replace(first, id=f"invented-{count}-{at}") for at in range(20))
    return encode_message(Opcode.SPECS, msgspec.structs.replace(node.specs, models=(first, *invented)))


def other_load(_: HostileNode, count: int) -> bytes:
    server = ServerMetrics(running=count % 1000, requests=float(count))
    return encode_message(Opcode.LOAD, NodeLoad(foreign=count % 2, server=server))


def pong(_: HostileNode, count: int) -> bytes:
    """Pings that nobody sent, from times that never were."""
    return encode_frame(Opcode.PONG, 0, struct.pack(">d", (float(count), -1.0, float("nan"), float("inf"))[count % 4]))


def names(_: HostileNode, __: int) -> bytes:
    """What only a gateway says."""
    return encode_frame(Opcode.NAMES, 0, b'{"models": [], "wanted_models": []}')


def unknown_opcode(_: HostileNode, count: int) -> bytes:
    return encode_frame(Opcode.PONG, 0, bytes(8)).replace(bytes([Opcode.PONG]), bytes([36 + count % 200]), 1)


def broken_specs(node: HostileNode, count: int) -> bytes:
    """Figures that no report may have."""
    told = msgspec.to_builtins(node.specs)
    wrong: tuple[dict[str, object], ...] = (
        {"slots": 10**6},
        {"vram_bytes": -1},
        {"tflops": 1e300},
        {"region": "\x1b[31m"},
        {"models": [{}]},
    )
    return encode_frame(Opcode.SPECS, 0, json.dumps(told | wrong[count % len(wrong)]).encode())


def empty_frames(_: HostileNode, __: int) -> bytes:
    return b""


async def flapping_price(attack: Attack) -> None:
    """From nothing to a thousand times the price of others and back."""
    for count in itertools.count():
        for node in attack.nodes:
            price = 0 if count % 2 else 1000 * 10**9
            node.report(node_specs(model_report(attack.model, prompt_nano=price, completion_nano=price)))
        await asyncio.sleep(0.5)


def dearest(attack: Attack) -> NodeSpecs:
    """A million dollars per million tokens."""
    return node_specs(model_report(attack.model, prompt_nano=PRICE_NANO_MAX, completion_nano=PRICE_NANO_MAX))


def everything(attack: Attack) -> NodeSpecs:
    """Every capability, the attacked model, and 199 others that are well known somewhere."""
    able: tuple[Capability, ...] = get_args(Capability)
    others = (f"famous-{at}-70b-instruct" for at in range(MODELS_PER_NODE_MAX - 1))
    ids = (attack.model, *others)
    return node_specs(*(model_report(each, prompt_nano=0, completion_nano=0, capabilities=able) for each in ids))


def always_idle(attack: Attack) -> NodeSpecs:
    return node_specs(model_report(attack.model, prompt_nano=0, completion_nano=0), slots=4096)


def all_cached(attack: Attack) -> NodeSpecs:
    report = model_report(attack.model, prompt_nano=0, completion_nano=0, prefix_cache_tokens=1 << 40)
    return node_specs(report)


def namesake(attack: Attack) -> NodeSpecs:
    """The display name of an honest node, and its model under names that look the same."""
    ids = (
        attack.model,
        f"{attack.model}:latest",
        f"models/{attack.model}",
        attack.model.upper(),
        f"{attack.model}-q4_0",
    )
    reports = (model_report(each, prompt_nano=0, completion_nano=0) for each in ids)
    return node_specs(*reports, name=attack.honest_names[0])


async def loads_of_foreign_work(attack: Attack) -> None:
    """By turns all busy and all idle, so that no prediction holds."""
    for count in itertools.count():
        busy = COUNT_MAX if count % 2 else 0
        for node in attack.nodes:
            node.load = NodeLoad(running=busy, queued=busy, foreign=busy, foreign_backlog_s=float(busy))
            node.send(encode_message(Opcode.LOAD, node.load))
        await asyncio.sleep(0.1)


def _storm(name: str, lie: str, message: Callable[[HostileNode, int], bytes]) -> Behaviour:
    return Behaviour(name=name, lie=lie, specs=at_usual_price, beside=partial(storm, message=message), is_alone=True)


REFUSING = partial(status, code=400)

MISREPORTS = (
    Behaviour(
        name="price-1e6-usd", lie="asks $1,000,000 per Mtok, with five nodes", specs=dearest, nodes=5, settle_s=1.5
    ),
    Behaviour(name="flapping-price", lie="changes its price twice a second", specs=for_nothing, beside=flapping_price),
    Behaviour(
        name="claims-everything",
        lie="claims 200 models and every capability, and refuses",
        specs=everything,
        answer=REFUSING,
        beside=rejoining,
    ),
    Behaviour(
        name="always-idle",
        lie="claims 4,096 idle slots and refuses",
        specs=always_idle,
        answer=REFUSING,
        beside=rejoining,
    ),
    Behaviour(
        name="all-cached",
        lie="claims that every prompt is in its prefix cache, and refuses",
        specs=all_cached,
        answer=REFUSING,
        beside=rejoining,
    ),
    Behaviour(
        name="namesake",
        lie="takes the names of an honest node and its model, and refuses",
        specs=namesake,
        answer=REFUSING,
        beside=rejoining,
    ),
    Behaviour(name="flapping-load", lie="is full and idle by turns", answer=nonsense, beside=loads_of_foreign_work),
    _storm("spec-storm", "sends a thousand different specs a second", other_specs),
    _storm("model-storm", "invents twenty models a thousand times a second", other_models),
    _storm("heartbeat-storm", "sends a thousand load reports a second", other_load),
    _storm("pong-storm", "answers pings that nobody sent", pong),
    _storm("names-storm", "sends what only a gateway sends", names),
    _storm("unknown-opcodes", "sends unknown opcodes and dials again", unknown_opcode),
    _storm("broken-specs", "sends specs out of range and dials again", broken_specs),
    _storm("empty-messages", "sends a thousand empty messages a second", empty_frames),
)
