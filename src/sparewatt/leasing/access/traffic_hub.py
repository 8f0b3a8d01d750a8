"""The traffic sockets of nodes at one gateway process: asked for over the node's link when a stream needs one.

A node proves its key as for a link. A socket that was not asked for is rejected at its first message, so strangers
cannot hold any. It is closed when it was without streams for a while, and when the node's link is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from sparewatt import __version__
from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import JoinRefused, LinkError, LinkFlooded, NodeUnreachable, ProtocolViolation
from sparewatt.core.ids import NodeId
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.link.handshake import authenticate_node
from sparewatt.link.sockets import Socket
from sparewatt.link.traffic import TrafficLink, TrafficStream
from sparewatt.protocol.link.frames import Opcode, Reject, Welcome, encode_message
from sparewatt.protocol.link.traffic import StreamOpen

_log = Logger("sparewatt.leasing")
HANDSHAKES_MAX = 64
"""Sockets at once that have not proved their key: a handshake takes a few round trips."""
CONNECT_S = 12.0
"""For the node's socket to come up: its agent may just be starting again."""
ASK_EVERY_S = 6.0
"""A node that is asked again gives up a dial that is under way: it must have had the time for it."""
LEARN_S = 3.0
"""So long a node may say that it does not know a lease which the chain has with it."""
POLL_S = 0.02
UNUSED_S = 60.0
"""A socket without a stream is closed after so long."""


@dataclass(slots=True, kw_only=True, eq=False)
class TrafficHub:
    ask: Callable[[NodeId], bool]
    """Ask a node over its link to dial; False if it has no link to this process."""
    hosts: Collection[str]
    clock: Clock
    rng: Rng
    _links: dict[NodeId, TrafficLink] = field(default_factory=dict, init=False)
    _wanted: dict[NodeId, int] = field(default_factory=dict, init=False)
    """Nodes whose socket is waited for, and by how many."""
    _ask_at_s: dict[NodeId, float] = field(default_factory=dict, init=False)
    """Before this time a node is not asked again, however many wait for it."""
    _handshakes: int = field(default=0, init=False)

    async def open(self, node_id: NodeId, wanted: StreamOpen) -> TrafficStream:
        """A stream that the node has answered, by opening or by ending it. Raises NodeUnreachable."""
        deadline_s = self.clock.now_s() + CONNECT_S
        while True:
            link = await self._link_to(node_id, deadline_s)
            if not link.has_room:
                raise NodeUnreachable("Too many streams are open to this machine. Close one, and try again.")
            stream = link.open(wanted)
            if await self._is_answered(stream, deadline_s):
                return stream
            await sleep_until(self.clock, self.clock.now_s() + POLL_S)

    async def _is_answered(self, stream: TrafficStream, deadline_s: float) -> bool:
        """False if the socket was lost, or no answer came in time; or if an agent that starts anew does not know its
        leases yet."""
        is_answered, now_s = False, self.clock.now_s()
        try:
            async with asyncio.timeout(max(0.0, deadline_s - now_s)):
                await stream.wait_opened()
        except TimeoutError:
            return False
        else:
            code = stream.end.code if stream.end is not None else "ended"
            is_new = code == "unknown_lease" and now_s < deadline_s - CONNECT_S + LEARN_S
            is_answered = code != "lost" and not is_new
            return is_answered
        finally:
            if not is_answered:
                stream.cancel()

    async def _link_to(self, node_id: NodeId, deadline_s: float) -> TrafficLink:
        self._wanted[node_id] = self._wanted.get(node_id, 0) + 1
        try:
            while (link := self._links.get(node_id)) is None:
                now_s = self.clock.now_s()
                if now_s >= deadline_s:
                    raise _no_answer()
                if now_s >= self._ask_at_s.get(node_id, now_s) and self.ask(node_id):
                    self._ask_at_s[node_id] = now_s + ASK_EVERY_S
                await sleep_until(self.clock, now_s + POLL_S)
            return link
        finally:
            self._wanted[node_id] -= 1
            if not self._wanted[node_id]:
                del self._wanted[node_id]
                self._ask_at_s.pop(node_id, None)

    # sockets that nodes dial

    async def serve(self, socket: Socket) -> None:
        """One connection until it carries streams or is sent away. It then lives by what its socket calls."""
        if self._handshakes >= HANDSHAKES_MAX:
            socket.abort()
            return
        self._handshakes += 1
        try:
            node = await authenticate_node(
                socket,
                hosts=self.hosts,
                gateway_version=__version__,
                rng=self.rng,
                on_hello=self._require_wanted,
            )
        except JoinRefused as refused:
            self._reject(socket, refused.reason, refused.message)
        except LinkFlooded:
            socket.abort()
        except ProtocolViolation as error:
            self._reject(socket, "protocol", error.message)
        except LinkError:
            socket.close()
        else:
            self._hold(node.node_id, socket)
        finally:
            self._handshakes -= 1

    def drop(self, node_id: NodeId) -> None:
        """The node has left this process."""
        self._ask_at_s.pop(node_id, None)
        if (link := self._links.get(node_id)) is not None:
            self._end(node_id, link)

    def _require_wanted(self, node_id: NodeId) -> None:
        if node_id not in self._wanted:
            raise JoinRefused("This process did not ask for lease traffic.", reason="not_asked")

    def _hold(self, node_id: NodeId, socket: Socket) -> None:
        self.drop(node_id)
        socket.send(encode_message(Opcode.WELCOME, Welcome(heartbeat_s=UNUSED_S, gateway_version=__version__)))
        link = TrafficLink()
        link.lost.add_done_callback(partial(self._on_lost, node_id, link))
        self._links[node_id] = link
        link.start(socket)
        self._tend(node_id, link, opened_before=-1)

    def _tend(self, node_id: NodeId, link: TrafficLink, *, opened_before: int) -> None:
        """Close a socket that had no stream since the last look."""
        if link.lost.done():
            return
        if not link.count and link.opened_count == opened_before:
            self._end(node_id, link)
        else:
            self.clock.call_later(UNUSED_S, partial(self._tend, node_id, link, opened_before=link.opened_count))

    def _on_lost(self, node_id: NodeId, link: TrafficLink, lost: asyncio.Future[LinkError]) -> None:
        if isinstance(lost.result(), ProtocolViolation):
            _log.warning("lease_traffic_violated", node=node_id, what=str(lost.result()))
        if self._links.get(node_id) is link:
            del self._links[node_id]

    def _end(self, node_id: NodeId, link: TrafficLink) -> None:
        if self._links.get(node_id) is link:
            del self._links[node_id]
        link.close()

    def _reject(self, socket: Socket, reason: str, message: str) -> None:
        socket.send(encode_message(Opcode.REJECT, Reject(reason=reason, message=message[:500], final=False)))
        socket.close()


def _no_answer() -> NodeUnreachable:
    return NodeUnreachable(
        "The machine of this lease cannot be reached right now; the lease itself may well run. Try again in a moment.",
        retry_after_s=5.0,
    )
