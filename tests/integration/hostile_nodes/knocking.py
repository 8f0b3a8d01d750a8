"""What happens at the gateway's door: sockets that say nothing, handshakes that never end, nodes that come and go."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

from sparewatt import __version__
from sparewatt.core.errors import LinkError
from sparewatt.core.limits import KIB, MODELS_PER_NODE_MAX
from sparewatt.core.rng import SystemRng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import host_of
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import LINK_PATH, Hello, LinkProof, Opcode, encode_frame, encode_message
from sparewatt.protocol.link.node_report import NodeSpecs
from tests.integration.hostile_nodes.behaviour import (
    JOINING_AT_ONCE,
    Attack,
    Behaviour,
    Bounds,
    at_usual_price,
    join,
    model_report,
    node_specs,
)
from tests.integration.hostile_nodes.liar import JOIN_S

REJOIN_S_MAX = 10.0
LISTED_NODES, LISTED_OWNERS, LIST_READERS = 20, 4, 4
"""Five nodes of 200 models for each account: as many as it may have."""
KNOCK_PAUSE_S = 0.05
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def hold_sockets(attack: Attack, *, hold: Callable[[Attack], Awaitable[None]]) -> None:
    """So many at once, each opened again whenever it is closed."""

    async def keep() -> None:
        while True:
            with suppress(OSError, TimeoutError, LinkError):
                await hold(attack)
            await asyncio.sleep(KNOCK_PAUSE_S)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(attack.scale.sockets):
            tasks.create_task(keep())


async def silent_upgrade(attack: Attack) -> None:
    """A WebSocket without an account, on which nothing is ever said."""
    parts = urlsplit(attack.root_url)
    async with asyncio.timeout(JOIN_S):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(UPGRADE.format(path=LINK_PATH, host=parts.netloc).encode())
        while await reader.read(KIB):
            pass
    finally:
        writer.close()


async def _dialled(attack: Attack) -> Socket:
    async with asyncio.timeout(JOIN_S):
        return await dial(attack.root_url + LINK_PATH, session=attack.session)


def _hello(attack: Attack) -> Hello:
    node_id = "0x" + SystemRng().randbytes(20).hex()
    return Hello(node_id=node_id, nonce="00" * 32, host=host_of(attack.root_url), agent_version=__version__)


async def hello_and_silence(attack: Attack) -> None:
    """A first message as it should be, and no proof."""
    socket = await _dialled(attack)
    try:
        socket.send(encode_message(Opcode.HELLO, _hello(attack)))
        while True:
            await socket.receive()
    finally:
        socket.abort()


async def forged_proof(attack: Attack) -> None:
    """A signature of nobody, over the longest specs that there are."""
    socket = await _dialled(attack)
    try:
        socket.send(encode_message(Opcode.HELLO, _hello(attack)))
        await socket.receive()
        socket.send(encode_message(Opcode.PROOF, LinkProof("11" * 65, crowded(0))))
        while True:
            await socket.receive()
    finally:
        socket.abort()


async def long_hello(attack: Attack) -> None:
    """A first message of a megabyte."""
    socket = await _dialled(attack)
    try:
        for _ in range(4):
            socket.send(encode_frame(Opcode.HELLO, 0, b"x" * (256 * KIB)))
        while True:
            await socket.receive()
    finally:
        socket.abort()


def crowded(number: int) -> NodeSpecs:
    """As many models as a node may have, each under a name of its own."""
    ids = (f"model-{number}-{at}-of-nobody" for at in range(MODELS_PER_NODE_MAX))
    return node_specs(*(model_report(each) for each in ids), name=f"crowd-{number}")


async def churn(attack: Attack) -> None:
    """New nodes, each with 200 models of its own, that join and leave again."""
    numbers = itertools.count()
    turn = asyncio.Semaphore(JOINING_AT_ONCE)

    async def come_and_go(number: int) -> None:
        async with turn:
            node = await attack.node(specs=crowded(number))
            attack.nodes.remove(node)
            await join(node)
            await node.leave()

    async with asyncio.TaskGroup() as tasks:
        for number in itertools.islice(numbers, attack.scale.churn):
            tasks.create_task(come_and_go(number))


async def crowd(attack: Attack) -> None:
    """The same, but all of them stay."""
    for number in range(attack.scale.churn):
        node = await attack.node(specs=crowded(number))
        await join(node)
    await asyncio.Event().wait()


async def read_lists(attack: Attack) -> None:
    """Some at once, to the last page; meanwhile the gateway says that it is well."""
    reading = asyncio.gather(*(_read_all_pages(attack) for _ in range(LIST_READERS)))
    answered = 0
    while not reading.done():
        answered += await _is_health_told(attack)
    models = await reading
    if min(models) < LISTED_NODES * MODELS_PER_NODE_MAX:
        attack.notes.append(f"a list had {min(models)} models of {attack.let_in} nodes")
    if not answered:
        attack.notes.append("/healthz was not told while lists were read")


async def _read_all_pages(attack: Attack) -> int:
    """How many models of this crowd are on them."""
    after, models = "", 0
    headers = {"authorization": f"Bearer {attack.client_key}"}
    while True:
        async with attack.session.get(f"{attack.root_url}/v1/nodes{after}", headers=headers) as reply:
            told = await reply.json()
        assert reply.status == 200, told
        models += sum(len(node["models"]) for node in told["data"] if node["name"].startswith("crowd-"))
        if told["next"] is None:
            return models
        after = f"?after={told['next']}"


async def _is_health_told(attack: Attack) -> bool:
    wait_s = attack.behaviour.bounds.extra_wait_s_max
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s), attack.session.get(f"{attack.root_url}/healthz") as reply:
            return reply.status == 200
    attack.notes.append(f"/healthz took more than {wait_s:g} s")
    return False


async def same_key_twice(attack: Attack) -> None:
    """One node that joins again and again without leaving: each link replaces the last."""
    for node in itertools.cycle(attack.nodes):
        await join(node)
        await asyncio.sleep(KNOCK_PAUSE_S)


async def reconnecting(attack: Attack) -> None:
    """Joins, reports, hangs up, as fast as it is let in."""
    while True:
        for node in attack.nodes:
            node.hang_up()
            await join(node)
        await asyncio.sleep(KNOCK_PAUSE_S)


def _sockets(name: str, lie: str, hold: Callable[[Attack], Awaitable[None]], *, rejoin: bool = False) -> Behaviour:
    return Behaviour(
        name=name,
        lie=lie,
        beside=partial(hold_sockets, hold=hold),
        nodes=0,
        is_alone=True,
        bounds=Bounds(rejoin_s_max=REJOIN_S_MAX if rejoin else None),
    )


KNOCKING = (
    _sockets("hello-and-silence", "400 handshakes that stop after the first message", hello_and_silence),
    _sockets("forged-proofs", "400 forged proofs with 200 models each, again and again", forged_proof),
    _sockets("long-hellos", "400 first messages of a megabyte", long_hello),
    Behaviour(name="churn", lie="nodes of 200 models each join and leave", beside=churn, nodes=0, is_alone=True),
    Behaviour(name="crowd", lie="nodes of 200 models each join and stay", beside=crowd, nodes=0, is_alone=True),
    Behaviour(
        name="long-lists",
        lie="20 nodes of 200 models each, and four clients that read all pages of the list",
        beside=read_lists,
        ends_by_itself=True,
        specs=lambda attack: crowded(len(attack.nodes)),
        nodes=LISTED_NODES,
        owners=LISTED_OWNERS,
        is_alone=True,
    ),
    Behaviour(name="same-key", lie="joins with one key again and again", specs=at_usual_price, beside=same_key_twice),
    Behaviour(name="reconnecting", lie="hangs up and joins all the time", specs=at_usual_price, beside=reconnecting),
    _sockets("silent-sockets", "400 WebSockets that say nothing", silent_upgrade, rejoin=True),
)
