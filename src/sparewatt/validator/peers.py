"""Messages to the other validators: a bounded queue per peer, so that one that is slow or away delays no other.

A peer's URL stands in the stake registry, so it is a stranger's, and dialled by the rules of `stranger_http`. A message
that does not fit into a queue is dropped, the oldest first: matches and snapshots send again what matters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from sparewatt.core.limits import MIB
from sparewatt.machine.stranger_http import DialRules, NoAnswer
from sparewatt.market.chain_records import MarketState
from sparewatt.validator.body_signature import SMALL_BODY_BYTES_MAX

QUEUE_MESSAGES_MAX = 256
QUEUE_BYTES_MAX = 8 * MIB
"""Of one peer: some proposals of 128 bids with everything that they carry."""
REQUESTS_PER_PEER = 3
"""At once, so that one lost packet does not hold up the next message."""
REQUEST_S = 3.0
PEER_REPLY_BYTES_MAX = 4 * MIB
REPLIES_MAX = 64
"""Messages in one reply."""


class _PeerReply(msgspec.Struct):
    code: int = 0
    replies: list[msgspec.Raw] = []


SignBody = Callable[[bytes, str], Mapping[str, str]]
"""The headers of a large body for the validator with this vote key."""
OnReply = Callable[[str, bytes], None]
"""Gets the path that was posted to and one message of the reply."""


class PeerTransport(Protocol):
    """Implemented by StrangerClient."""

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
        """Raises NoAnswer."""
        ...


@dataclass(slots=True)
class Peer:
    operator: str
    url: str
    """Checked; empty if it cannot be dialled."""
    vote_key: str = ""
    queue: deque[tuple[str, bytes]] = field(default_factory=deque)
    queued_bytes: int = 0
    dropped: int = 0
    failures: int = 0
    """In a row."""
    sent: int = 0
    active: int = 0

    @property
    def is_reachable(self) -> bool:
        return bool(self.url) and self.sent > 0 and self.failures == 0

    def put(self, path: str, body: bytes) -> None:
        self.queue.append((path, body))
        self.queued_bytes += len(body)
        while len(self.queue) > QUEUE_MESSAGES_MAX or (self.queued_bytes > QUEUE_BYTES_MAX and len(self.queue) > 1):
            self._drop_oldest()

    def take(self) -> tuple[str, bytes] | None:
        if not self.queue:
            return None
        path, body = self.queue.popleft()
        self.queued_bytes -= len(body)
        return path, body

    def _drop_oldest(self) -> None:
        self.take()
        self.dropped += 1


class PeerNetwork:
    def __init__(
        self,
        transport: PeerTransport,
        *,
        own_operator: str,
        rules: DialRules,
        on_reply: OnReply,
        sign_body: SignBody,
    ) -> None:
        self._transport = transport
        self._own = own_operator.lower()
        self._rules = rules
        self._on_reply = on_reply
        self._sign_body = sign_body
        self._peers: dict[str, Peer] = {}
        """By operator; at most as many as the registry has ever had with weight or pending stake."""
        self._operators: dict[str, str] = {}
        """By vote key."""
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, state: MarketState) -> None:
        """Take over who votes and where it is reached."""
        self._operators = {vote_key: history.operator for vote_key, history in state.histories.items()}
        for operator, validator in state.validators.items():
            self._operators.setdefault(validator.vote_key, operator)
            if operator == self._own:
                continue
            url = "" if self._rules.refusal_of(validator.url) else validator.url.rstrip("/")
            peer = self._peers.get(operator)
            if peer is None:
                self._peers[operator] = Peer(operator, url, validator.vote_key)
                continue
            peer.vote_key = validator.vote_key
            if peer.url != url:
                peer.url, peer.failures = url, 0
        for operator in self._peers.keys() - state.validators.keys():
            del self._peers[operator]

    def peers(self) -> Sequence[Peer]:
        return tuple(self._peers.values())

    def peer_of(self, vote_key: str) -> Peer | None:
        return self._peers.get(self._operators.get(vote_key, ""))

    def send(self, vote_keys: Iterable[str], path: str, body: bytes) -> None:
        """Queue a message to the validators with these keys, but oneself. Never waits."""
        for vote_key in vote_keys:
            peer = self.peer_of(vote_key)
            if peer is None or not peer.url:
                continue
            peer.put(path, body)
            if peer.active < REQUESTS_PER_PEER:
                peer.active += 1
                self._start(peer)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # internals

    def _start(self, peer: Peer) -> None:
        task = asyncio.get_running_loop().create_task(self._drain(peer), name=f"send to {peer.operator}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self, peer: Peer) -> None:
        try:
            while (message := peer.take()) is not None:
                await self._post(peer, *message)
        finally:
            peer.active -= 1

    async def _post(self, peer: Peer, path: str, body: bytes) -> None:
        try:
            headers = self._sign_body(body, peer.vote_key) if len(body) > SMALL_BODY_BYTES_MAX else None
            reply = await self._transport.post(
                peer.url, path, body, within_s=REQUEST_S, bytes_max=PEER_REPLY_BYTES_MAX, headers=headers
            )
            messages = _messages_of(reply)
        except NoAnswer:
            peer.failures += 1
            return
        peer.sent, peer.failures = peer.sent + 1, 0
        for message in messages:
            self._on_reply(path, message)


def _messages_of(reply: bytes) -> list[bytes]:
    """Raises NoAnswer for what is no reply."""
    try:
        replies = msgspec.json.decode(reply, type=_PeerReply).replies
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NoAnswer("its answer is not one of a validator") from None
    return [bytes(message) for message in replies[:REPLIES_MAX]]
