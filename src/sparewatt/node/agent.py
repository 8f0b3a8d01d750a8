"""The agent: dials the gateway, reports, runs jobs, dials again. What it reports is what its model server says."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import aiohttp
import msgspec

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import LinkError, LinkLost, ProtocolViolation, StartupError
from sparewatt.core.limits import NEWS_APART_S
from sparewatt.core.rng import Rng
from sparewatt.link.dialling import dial, why_hopeless
from sparewatt.link.handshake import host_of, introduce
from sparewatt.link.node_end import GatewayLink
from sparewatt.link.outbox import Outbox
from sparewatt.link.sockets import Socket
from sparewatt.node.hardware.sensing import Sensing
from sparewatt.node.inventory import Inventory
from sparewatt.node.jobs import Jobs
from sparewatt.node.receipts import ReceiptBook
from sparewatt.node.settings import NodeSettings
from sparewatt.protocol.link import LINK_PATH, Welcome
from sparewatt.protocol.node import NodeLoad
from sparewatt.protocol.signing import SigningKey

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
SILENCE_BEATS = 3
DIAL_S = 10.0
OFFLINE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
OFFLINE_FAILURES_MAX = 3
"""While this machine itself has no network, dialling costs the gateway nothing: every few seconds will do."""


def backoff_s(failures: int, *, rng: Rng) -> float:
    """Between a tenth of a bound that doubles and all of it: a fleet must not dial in step."""
    bound = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures, 10))
    return bound * (0.1 + 0.9 * rng.random())


def is_offline(error: Exception) -> bool:
    """Whether it is this machine that has no way out: a pulled cable, not a gateway in trouble."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, OSError) and cause.errno in OFFLINE


def in_words(error: Exception) -> str:
    """Why there is no link. Time that ran out says nothing of itself."""
    if isinstance(error, TimeoutError) and not str(error):
        return "the gateway did not answer in time; is this machine online?"
    return str(error)[:200] or type(error).__name__


class Carried:
    """A link on its socket, to be waited for. Implements SocketUser."""

    def __init__(self, link: GatewayLink, outbox: Outbox) -> None:
        self._outbox = outbox
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.receive = link.receive
        self.resume = outbox.resume

    async def carry(self, socket: Socket) -> None:
        """Until its end. Raises LinkLost or ProtocolViolation, unless it was ours."""
        self._outbox.attach(socket, on_stuck=self.lost)
        socket.attach(self)
        await self._over

    def end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def lost(self, error: LinkError) -> None:
        if not self._over.done():
            self._over.set_exception(error)


class Agent:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        key: SigningKey,
        inventory: Inventory,
        jobs: Jobs,
        receipts: ReceiptBook,
        session: aiohttp.ClientSession,
        clock: Clock,
        rng: Rng,
        tell: Callable[[str], None],
        sensing: Sensing | None = None,
    ) -> None:
        self._settings = settings
        self._key = key
        self._inventory = inventory
        self._jobs = jobs
        self._receipts = receipts
        self._session = session
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._sensing = sensing
        self.joined_unix_s: float | None = None
        """Since when the link is up; None while it is not."""
        self.last_trouble: str | None = None
        """Why the last link was lost, or none came up."""
        self._url = settings.gateway_url.rstrip("/").removesuffix("/v1")
        self._has_joined = False
        self._link: GatewayLink | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Stay joined until asked to stop. Raises JoinRefused or StartupError when dialling again cannot help."""
        failures = 0
        while not self._stopping.is_set():
            joined_at_s = self._clock.now_s()
            why, offline = "", False
            try:
                await self._join_once()
            except (LinkLost, ProtocolViolation, TimeoutError, aiohttp.ClientError, OSError) as error:
                self._refuse_hopeless(error)
                why, offline = in_words(error), is_offline(error)
                self.last_trouble = why
            stayed = self._clock.now_s() - joined_at_s > BACKOFF_MAX_S
            failures = 0 if stayed else failures + 1
            failures = min(failures, OFFLINE_FAILURES_MAX) if offline else failures
            wait_s = backoff_s(failures, rng=self._rng)
            if not self._stopping.is_set():
                self._tell(f"no link to {self._url} ({why}); dialling again in {wait_s:.0f} s")
            await self._pause(wait_s)

    def _refuse_hopeless(self, error: Exception) -> None:
        """Before the first join, an address that is no gateway is a mistake to be told, not a fault to wait out."""
        if not self._has_joined and (why := why_hopeless(self._url, error)) is not None:
            raise StartupError(why) from None

    async def drain(self) -> None:
        """Finish running jobs, take no new ones, then leave."""
        self._jobs.draining = True
        self._report_load()
        if running := self._jobs.count():
            self._tell(f"finishing {running} answer{'s' if running > 1 else ''}; Ctrl-C again to stop now")
        await self._jobs.wait_until_idle(self._settings.drain_s)
        self._stopping.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _join_once(self) -> None:
        url = self._url
        async with asyncio.timeout(DIAL_S):
            socket = await dial(url + LINK_PATH, session=self._session, library=self._settings.link_library)
        try:
            welcome = await introduce(
                socket,
                key=self._key,
                host=host_of(url),
                token=self._settings.token,
                specs=self._inventory.specs,
                agent_version=__version__,
                rng=self._rng,
            )
            self._has_joined = True
            self.joined_unix_s = self._clock.unix_s()
            self._tell(f"joined {url} as {self._key.address}")
            await self._serve(socket, welcome)
        finally:
            self.joined_unix_s = None
            socket.close()
            await socket.wait_closed()

    async def _serve(self, socket: Socket, welcome: Welcome) -> None:
        outbox = Outbox()
        link = self._link = GatewayLink(
            outbox=outbox, runner=self._jobs, clock=self._clock, on_countersigned=self._receipts.on_countersigned
        )
        self._receipts.on_link(link.send_receipt, in_sheets=welcome.takes_sheets)
        carried = Carried(link, outbox)
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._beat(link, welcome.heartbeat_s)),
                    tasks.create_task(self._report_news(link)),
                    tasks.create_task(self._report_changes(link)),
                    tasks.create_task(self._leave(link, carried)),
                ]
                await carried.carry(socket)  # returns once goodbye is said
                for task in background:
                    task.cancel()
        except* (LinkLost, ProtocolViolation) as group:
            raise LinkLost(link.farewell or str(group.exceptions[0])) from None
        finally:
            self._link = None
            outbox.drop()
            self._receipts.on_link(None)
            link.lost()

    async def _beat(self, link: GatewayLink, heartbeat_s: float) -> None:
        """Report on every beat, and give up on a gateway that has gone silent."""
        while True:
            if self._clock.now_s() - link.last_heard_s > SILENCE_BEATS * heartbeat_s + 1:
                raise LinkLost("the gateway has gone silent")
            link.send_load(self._load_in_full())
            await asyncio.sleep(heartbeat_s)

    def _load_in_full(self) -> NodeLoad:
        """What the sensors saw and the server counts goes with heartbeats only: other reports are a third as long."""
        sensors = self._sensing.report() if self._sensing is not None else None
        return msgspec.structs.replace(self._jobs.load(), sensors=sensors, server=self._inventory.server_figures)

    async def _report_news(self, link: GatewayLink) -> None:
        """Between heartbeats: work that did not come from the gateway, as soon as it is seen."""
        told = self._jobs.load()
        while True:
            await self._inventory.load_changed()
            load = self._jobs.load()
            if load.is_news_after(told):
                link.send_load(load)
                told = load
            await asyncio.sleep(NEWS_APART_S)

    async def _report_changes(self, link: GatewayLink) -> None:
        """Models come, go and get measured while the link is up. The first report may be newer than the handshake's."""
        while True:
            link.send_specs(self._inventory.specs)
            await self._inventory.changed()

    async def _leave(self, link: GatewayLink, carried: Carried) -> None:
        """Also a link that came up while the node was already stopping."""
        await self._stopping.wait()
        self._receipts.sign()
        link.say_goodbye("the node is stopping", then=carried.end)

    def _report_load(self) -> None:
        if self._link is not None:
            self._link.send_load(self._jobs.load())
