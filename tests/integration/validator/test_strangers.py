"""Strangers at the validators' ports gain nothing: memory stays bounded, and an honest order is matched meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from sparewatt.market.chain_records import OrderState
from sparewatt.protocol.api.validators import HEARTBEATS_PATH, MESSAGES_PATH, SNAPSHOT_MESSAGES_PATH, MatchProgress
from sparewatt.protocol.contracts.match import BidCommit
from sparewatt.protocol.contracts.match_messages import SignedCommit, encode_message, read_object
from sparewatt.protocol.contracts.match_messages import SignedCommitList as SignedList
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.validator.body_signature import SMALL_BODY_BYTES_MAX, sign_body
from sparewatt.validator.vote_key import VOTE_KEY_FILE, read_key
from tests.integration.chain.market_scene import ALICE
from tests.integration.validator.test_matches import bid, matched
from tests.integration.validator.validator_network import ValidatorNetwork, until
from tests.order_terms import order_terms

pytestmark = pytest.mark.asyncio(loop_scope="session")
ADDRESSES = [f"127.0.9.{number}" for number in range(1, 9)]
"""Of the strangers: each has its own share of a validator's limits."""
CONNECTIONS = 800
"""More than a validator has places for."""
MEMORY_BYTES_MAX = 90_000_000
FORGED = bytes(range(1, 65)) + b"\x1b"


def memory_bytes(pid: int) -> int:
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * 4_096


@pytest.fixture(autouse=True, scope="module")
def many_files() -> Iterator[None]:
    """The strangers are all in this process."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


class Strangers:
    """Clients with addresses of their own, until `close`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: Counter[str] = Counter()
        self._open: list[asyncio.StreamWriter] = []

    async def dial(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        local = (ADDRESSES[number % len(ADDRESSES)], 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=local)
        self._open.append(writer)
        return reader, writer

    async def post(self, number: int, path: str, body: bytes, *, announced: int | None = None) -> None:
        """Counts the status of the answer. `announced`: the body is said to be so long, and never ends."""
        try:
            reader, writer = await self.dial(number)
            length = len(body) if announced is None else announced
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode() + body)
            answer = await reader.readline()
            self.answers[answer[9:12].decode() or "closed"] += 1
        except OSError:
            self.answers["closed"] += 1

    def close(self) -> None:
        for writer in self._open:
            writer.close()


@asynccontextmanager
async def strangers_at(network: ValidatorNetwork, number: int) -> AsyncIterator[Strangers]:
    strangers = Strangers(urlsplit(network.validators[number].url).port or 0)
    try:
        yield strangers
    finally:
        strangers.close()


def pid_of(network: ValidatorNetwork, number: int) -> int:
    process = network.validators[number].process
    assert process is not None
    return process.pid


async def test_an_order_is_matched_while_strangers_hold_all_connections(network: ValidatorNetwork) -> None:
    """A third send nothing, a third half a request, a third a whole one, and all stay."""
    async with strangers_at(network, 0) as first, strangers_at(network, 1) as second:
        for strangers in (first, second):
            for number in range(CONNECTIONS):
                with contextlib.suppress(OSError):
                    _, writer = await strangers.dial(number)
                    writer.write((b"", b"GET /eig", b"GET /eigen/node HTTP/1.1\r\nHost: x\r\n\r\n")[number % 3])
        async with aiohttp.ClientSession() as newcomer:
            for number in (0, 1):
                async with newcomer.get(f"{network.validators[number].url}/eigen/node") as reply:
                    assert reply.status == 200
        order_id = await matched(network)
    assert network.market.view.latest.orders[order_id].state is OrderState.MATCHED
    assert memory_bytes(pid_of(network, 0)) < MEMORY_BYTES_MAX


async def test_bodies_that_never_end_fill_no_memory(network: ValidatorNetwork) -> None:
    async with strangers_at(network, 0) as strangers:
        pieces = bytes(3_000_000)
        posts = (strangers.post(number, MESSAGES_PATH, pieces, announced=4 << 20) for number in range(100))
        async with asyncio.timeout(30):
            await asyncio.gather(*posts)
        slow = [strangers.post(number, MESSAGES_PATH, b"{", announced=SMALL_BODY_BYTES_MAX) for number in range(100)]
        tasks = [asyncio.ensure_future(each) for each in slow]
        assert memory_bytes(pid_of(network, 0)) < MEMORY_BYTES_MAX
        assert (await network.status(0)).block_number > 0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(strangers.answers) <= {"413", "429", "closed"}


async def test_a_validators_signature_does_not_carry_waste_into_another(network: ValidatorNetwork) -> None:
    """The list and its signature are public; around it are megabytes of forged commits, seconds of work to read."""
    order_id, _ = await network.order(terms=order_terms(latency_value=0, commit_ms=10_000, reveal_ms=10_000))
    bidding = asyncio.ensure_future(bid(network, order_id))
    lists: list[SignedList] = []

    async def has_list() -> bool:
        url = f"{network.validators[1].url}/v1/match/{order_id}/0"
        async with network.session.get(url) as reply:
            if reply.status == 200:
                progress = MatchProgress(**await reply.json())
                lists[:] = [read_object(SignedList, each) for each in progress.commit_lists]
        return bool(lists)

    await until(has_list, "a validator has signed a commit list")
    true, rng = lists[0], random.Random(7)  # noqa: S311 (no secret)
    forged = [
        SignedCommit(BidCommit(true.list.order_id, 0, ALICE.address, rng.randbytes(32)), FORGED) for _ in range(1_000)
    ]
    body = encode_message(SignedList(true.list, true.signature, tuple(forged)))
    assert len(body) > SMALL_BODY_BYTES_MAX
    async with strangers_at(network, 0) as strangers:
        await asyncio.gather(*(strangers.post(number, MESSAGES_PATH, body) for number in range(40)))
        assert set(strangers.answers) <= {"413", "429", "closed"}
    await bidding
    await network.settled(order_id)
    assert network.market.view.latest.orders[order_id].state is OrderState.MATCHED


async def test_nonsense_is_refused_and_leaves_a_validator_working(network: ValidatorNetwork) -> None:
    nonsense = [b"", b"[" * 10_000, b'{"type":' * 1_000, b'{"type":"commit"}', b"\xff\xfe", b'{"a":1e999}', b"null"]
    async with strangers_at(network, 0) as strangers:
        for path in (MESSAGES_PATH, HEARTBEATS_PATH, SNAPSHOT_MESSAGES_PATH):
            for number, body in enumerate(nonsense):
                await strangers.post(number, path, body)
        assert set(strangers.answers) == {"400"}
    await matched(network)


async def test_a_large_body_is_read_of_a_validator_with_stake_for_its_receiver_only(network: ValidatorNetwork) -> None:
    market, body = network.market, b'{"type":"none","waste":"' + bytes([97]) * SMALL_BODY_BYTES_MAX + b'"}'
    domain = contract_domain(chain_id=market.chain_id, contract=market.contracts["task_manager"].address)
    keys = [read_key(each.folder / "data" / VOTE_KEY_FILE) for each in network.validators]
    receiver = (await network.status(0)).vote_key

    async def status_of(headers: dict[str, str]) -> int:
        url = network.validators[0].url + MESSAGES_PATH
        async with network.session.post(url, data=body, headers=headers) as reply:
            return reply.status

    assert await status_of(sign_body(body, key=keys[1], receiver=receiver, domain=domain)) == 400, (
        "read, and no message"
    )
    assert await status_of(sign_body(body, key=keys[1], receiver=keys[2].address, domain=domain)) == 403
    assert await status_of(sign_body(body, key=ALICE, receiver=receiver, domain=domain)) == 403
    assert await status_of(sign_body(b"another", key=keys[1], receiver=receiver, domain=domain)) == 403
