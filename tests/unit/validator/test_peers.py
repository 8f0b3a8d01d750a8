"""Messages to other validators: bounded queues, nobody delayed by another, and no dialling where a stranger says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from sparewatt.machine.stranger_http import PRIVATE_TOO, PUBLIC_ONLY, NoAnswer
from sparewatt.market.chain_records import MarketState, ValidatorRecord, WeightChange, WeightHistory
from sparewatt.validator import peers
from sparewatt.validator.body_signature import SMALL_BODY_BYTES_MAX
from sparewatt.validator.peers import (
    QUEUE_MESSAGES_MAX,
    REPLIES_MAX,
    REQUESTS_PER_PEER,
    Peer,
    PeerNetwork,
)

ME, FAST, SLOW = (f"0x{letter * 40}" for letter in "abc")
KEYS = {ME: "0x" + "1" * 40, FAST: "0x" + "2" * 40, SLOW: "0x" + "3" * 40}
URLS = {ME: "http://127.0.0.1:1", FAST: "http://127.0.0.1:2/", SLOW: "http://127.0.0.1:3"}


def a_state(**urls: str) -> MarketState:
    state = MarketState()
    for operator, vote_key in KEYS.items():
        url = urls.get(operator, URLS[operator])
        state.validators[operator] = ValidatorRecord(operator=operator, vote_key=vote_key, url=url)
        state.histories[vote_key] = WeightHistory(operator, (WeightChange(1, 10),))
    return state


@dataclass
class MemoryTransport:
    """Answers at once; what is posted to a held URL waits."""

    posted: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    at_once: int = 0
    at_once_max: int = 0
    reply: bytes = b'{"code":0}'
    error: Exception | None = None

    async def post(
        self,
        url: str,
        path: str,
        body: bytes,
        *,
        within_s: float,
        bytes_max: int,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        assert within_s == peers.REQUEST_S
        assert bytes_max == peers.PEER_REPLY_BYTES_MAX
        self.posted.append((url + path, body))
        self.headers.append(dict(headers or {}))
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            for start, event in self.held.items():
                if url.startswith(start):
                    await event.wait()
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error
        return self.reply


def a_network(transport: MemoryTransport) -> tuple[PeerNetwork, list[tuple[str, bytes]]]:
    replies: list[tuple[str, bytes]] = []
    network = PeerNetwork(
        transport,
        own_operator=ME,
        rules=PRIVATE_TOO,
        on_reply=lambda path, body: replies.append((path, body)),
        sign_body=lambda body, receiver: {"Signed-For": f"{receiver} {len(body)}"},
    )
    network.follow(a_state())
    return network, replies


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to it")


async def test_a_message_goes_to_all_others_and_not_to_oneself() -> None:
    transport = MemoryTransport()
    network, _ = a_network(transport)
    network.send(list(KEYS.values()), "/v1/x", b"{}")
    await until(lambda: len(transport.posted) == 2)
    assert sorted(transport.posted) == [("http://127.0.0.1:2/v1/x", b"{}"), ("http://127.0.0.1:3/v1/x", b"{}")]
    await until(lambda: all(peer.is_reachable for peer in network.peers()))


async def test_a_large_message_is_signed_for_each_receiver_and_a_small_one_is_not() -> None:
    transport = MemoryTransport()
    network, _ = a_network(transport)
    network.send(list(KEYS.values()), "/x", bytes(SMALL_BODY_BYTES_MAX))
    await until(lambda: len(transport.posted) == 2)
    assert transport.headers == [{}, {}]
    network.send(list(KEYS.values()), "/x", bytes(SMALL_BODY_BYTES_MAX + 1))
    await until(lambda: len(transport.posted) == 4)
    signed = {headers["Signed-For"] for headers in transport.headers[2:]}
    assert signed == {f"{KEYS[each]} {SMALL_BODY_BYTES_MAX + 1}" for each in (FAST, SLOW)}


async def test_a_slow_peer_delays_no_other() -> None:
    transport = MemoryTransport(held={"http://127.0.0.1:3": asyncio.Event()})
    network, _ = a_network(transport)
    for number in range(50):
        network.send(list(KEYS.values()), "/x", b"%d" % number)
    await until(lambda: sum(url.startswith("http://127.0.0.1:2") for url, _ in transport.posted) == 50)
    slow = [body for url, body in transport.posted if url.startswith("http://127.0.0.1:3")]
    assert len(slow) == REQUESTS_PER_PEER
    await network.close()


async def test_a_full_queue_drops_its_oldest_messages() -> None:
    held = asyncio.Event()
    transport = MemoryTransport(held={"http://127.0.0.1:3": held})
    network, _ = a_network(transport)
    count = QUEUE_MESSAGES_MAX + 20
    for number in range(count):
        network.send([KEYS[SLOW]], "/x", b"%d" % number)
    peer = network.peer_of(KEYS[SLOW])
    assert peer is not None
    assert (len(peer.queue), peer.dropped) == (QUEUE_MESSAGES_MAX, 20)
    held.set()
    await until(lambda: not peer.queue)
    await until(lambda: transport.at_once == 0)
    assert transport.posted[-1][1] == b"%d" % (count - 1)
    assert b"0" not in [body for _, body in transport.posted]


def test_a_queue_is_bounded_in_bytes_but_takes_one_message_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "QUEUE_BYTES_MAX", 100)
    peer = Peer("0x", "http://x")
    for number in range(5):
        peer.put("/x", bytes(30) + bytes([number]))
    assert (len(peer.queue), peer.dropped, peer.queued_bytes) == (3, 2, 93)
    peer.put("/x", bytes(500))
    assert [len(body) for _, body in peer.queue] == [500]
    peer.take()
    assert (peer.queued_bytes, peer.take()) == (0, None)


async def test_messages_in_a_reply_are_handed_on_and_bounded() -> None:
    many = [{"type": "vote", "n": number} for number in range(REPLIES_MAX + 5)]
    transport = MemoryTransport(reply=msgspec.json.encode({"code": 0, "replies": many}))
    network, replies = a_network(transport)
    network.send([KEYS[FAST]], "/x", b"{}")
    await until(lambda: bool(replies))
    assert len(replies) == REPLIES_MAX
    assert replies[3] == ("/x", b'{"type":"vote","n":3}')


@pytest.mark.parametrize("reply", [b"", b"[]", b'{"replies":7}', b"\xff", b'{"code":"0"}'])
async def test_a_reply_that_is_none_counts_as_a_failure(reply: bytes) -> None:
    transport = MemoryTransport(reply=reply)
    network, replies = a_network(transport)
    network.send([KEYS[FAST]], "/x", b"{}")
    peer = network.peer_of(KEYS[FAST])
    assert peer is not None
    await until(lambda: peer.failures == 1)
    assert (replies, peer.is_reachable) == ([], False)


async def test_a_peer_that_fails_is_tried_with_the_next_message() -> None:
    transport = MemoryTransport(error=NoAnswer("refused"))
    network, _ = a_network(transport)
    network.send([KEYS[FAST]], "/x", b"1")
    peer = network.peer_of(KEYS[FAST])
    assert peer is not None
    await until(lambda: peer.failures == 1)
    transport.error = None
    network.send([KEYS[FAST]], "/x", b"2")
    await until(lambda: peer.is_reachable)


async def test_the_set_of_peers_follows_the_registry() -> None:
    network, _ = a_network(MemoryTransport())
    state = a_state()
    del state.validators[SLOW]
    state.validators[FAST] = ValidatorRecord(operator=FAST, vote_key="0x" + "9" * 40, url="http://127.0.0.1:7")
    network.follow(state)
    assert [peer.url for peer in network.peers()] == ["http://127.0.0.1:7"]
    assert network.peer_of(KEYS[FAST]) is network.peer_of("0x" + "9" * 40), "an old key leads to the same operator"
    network.send([KEYS[SLOW], "0x" + "f" * 40], "/x", b"{}")


def test_a_peer_whose_url_is_not_dialled_has_none() -> None:
    transport = MemoryTransport()
    network = PeerNetwork(
        transport, own_operator=ME, rules=PUBLIC_ONLY, on_reply=lambda *_: None, sign_body=lambda *_: {}
    )
    network.follow(a_state(**{FAST: "https://v.example/", SLOW: "https://10.0.0.1"}))
    assert {peer.operator: peer.url for peer in network.peers()} == {FAST: "https://v.example", SLOW: ""}
    network.send([KEYS[SLOW]], "/x", b"{}")
    assert transport.posted == []
