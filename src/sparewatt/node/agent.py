"""The agent: dials the gateway, joins, and dials again when a link is lost.

A gateway of several processes lists their link ports in its welcome. The agent then keeps a link to each: the one it
came by, which is its home, and one at the side for every other port. Only the host that its owner named is dialled.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import JoinRefused, LinkLost, ProtocolViolation, StartupError
from sparewatt.core.rng import Rng
from sparewatt.link.dialer import dial, explain_permanent_error
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.sockets import Socket
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.joined_link import JoinedLink
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import LINK_PATH, Welcome
from sparewatt.protocol.signing import SigningKey

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
DIAL_S = 10.0
LEAVE_S = 2.0
"""For the goodbyes to a gateway's other processes."""
OFFLINE_ERRNOS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
QUICK_RETRY_FAILURES_MAX = 3
"""While this machine itself has no network, dialling costs the gateway nothing: every few seconds will do. So it does
for one process of a gateway that others answer for: it is starting again, and waits for its nodes."""


def backoff_s(failures: int, *, rng: Rng) -> float:
    """Between a tenth of a bound that doubles and all of it: a fleet must not dial in step."""
    bound = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures, 10))
    return bound * (0.1 + 0.9 * rng.random())


def is_offline(error: Exception) -> bool:
    """Whether it is this machine that has no way out: a pulled cable, not a gateway in trouble."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, OSError) and cause.errno in OFFLINE_ERRNOS


def with_port(url: str, port: int) -> str:
    """The same address with another port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    user, is_named, _ = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user}{is_named}{host}:{port}"


def describe_link_error(error: Exception) -> str:
    """Why there is no link. Time that ran out says nothing of itself."""
    if isinstance(error, TimeoutError) and not str(error):
        return "the gateway did not answer in time; is this machine online?"
    return str(error)[:200] or type(error).__name__


class NodeAgent:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        key: SigningKey,
        inventory: Inventory,
        jobs: NodeJobRunner,
        receipts: ReceiptIssuer,
        session: aiohttp.ClientSession,
        clock: Clock,
        rng: Rng,
        tell: Callable[[str], None],
        sensing: SensorSampler | None = None,
    ) -> None:
        self._settings = settings
        self._key = key
        self._inventory = inventory
        self._jobs = jobs
        self._receipts = receipts
        self._session = session
        self._clock = clock
        self._rng = rng
        self._notify_owner = tell
        self._sensing = sensing
        self.joined_unix_s: float | None = None
        """Since when there is a link; None while there is none."""
        self.last_trouble: str | None = None
        """Why the last link was lost, or none came up."""
        self._url = settings.gateway_url.rstrip("/").removesuffix("/v1")
        self._has_joined = False
        self._links: set[JoinedLink] = set()
        self._home_port: int | None = None
        """Of the process that the home link leads to; None where a gateway is one process."""
        self._side_links: dict[int, asyncio.Task[None]] = {}
        """Those that keep a link to another process, by its port."""
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Stay joined until asked to stop. Raises JoinRefused or StartupError when dialling again cannot help."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._keep_link(lambda: self._join_home(tasks), self._home_url)
                await self._end_side_links()
        except* (JoinRefused, StartupError) as group:
            raise group.exceptions[0] from None

    async def _end_side_links(self) -> None:
        """They say goodbye as home did; one that is still dialling is not waited for."""
        if self._side_links:
            _, late = await asyncio.wait(self._side_links.values(), timeout=LEAVE_S)
            for side in late:
                side.cancel()

    async def _keep_link(
        self, join: Callable[[], Awaitable[None]], url: Callable[[], str], *, soon: Callable[[], bool] = lambda: False
    ) -> None:
        """Dial again and again until the node stops. What cannot be helped by that is raised by `join`.

        `soon`: whether it is worth looking every few seconds.
        """
        failures = 0
        while not self._stopping.is_set():
            joined_at_s = self._clock.now_s()
            dialled, why, offline = url(), "", False
            try:
                await join()
            except (LinkLost, ProtocolViolation, TimeoutError, aiohttp.ClientError, OSError) as error:
                self._raise_if_permanent(error)
                why, offline = describe_link_error(error), is_offline(error)
                self.last_trouble = why
            stayed = self._clock.now_s() - joined_at_s > BACKOFF_MAX_S
            failures = 0 if stayed else failures + 1
            failures = min(failures, QUICK_RETRY_FAILURES_MAX) if offline or soon() else failures
            wait_s = backoff_s(failures, rng=self._rng)
            if not self._stopping.is_set():
                self._notify_owner(f"no link to {dialled} ({why}); dialling again in {wait_s:.0f} s")
            await self._wait_to_redial(wait_s)

    def _raise_if_permanent(self, error: Exception) -> None:
        """Before the first join, an address that is no gateway is a mistake to be told, not a fault to wait out."""
        if not self._has_joined and (why := explain_permanent_error(self._url, error)) is not None:
            raise StartupError(why) from None

    async def drain(self) -> None:
        """Finish running jobs, take no new ones, then leave."""
        self._jobs.draining = True
        for linked in self._links:
            linked.report_load()
        if running := self._jobs.count():
            self._notify_owner(f"finishing {running} answer{'s' if running > 1 else ''}; Ctrl-C again to stop now")
        await self._jobs.wait_until_idle(self._settings.drain_s)
        self._stopping.set()

    async def _wait_to_redial(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    # one link to each process of the gateway

    def _home_url(self) -> str:
        """While other links are up, home is where it was: the public port may lead to a process that has a link."""
        if self._links and self._home_port is not None:
            return with_port(self._url, self._home_port)
        return self._url

    async def _join_home(self, tasks: asyncio.TaskGroup) -> None:
        await self._join(self._home_url(), lambda welcome: self._update_side_links(welcome, tasks))

    def _update_side_links(self, welcome: Welcome, tasks: asyncio.TaskGroup) -> str:
        """The home link is up: see to the ports beside its own. Tells the link's name."""
        self._home_port = welcome.link_port if welcome.link_port in welcome.link_ports else None
        ports = set(welcome.link_ports) - {self._home_port} if self._home_port is not None else set()
        self._jobs.is_shared = bool(ports)
        for port in [port for port in self._side_links if port not in ports]:
            self._side_links.pop(port).cancel()
        self._receipts.retain_links([str(port) for port in welcome.link_ports])
        for port in ports - set(self._side_links):
            self._side_links[port] = tasks.create_task(self._keep_side_link(port), name=f"link to port {port}")
        return str(self._home_port or "")

    async def _keep_side_link(self, port: int) -> None:
        url, was_there = with_port(self._url, port), False

        def name(_: Welcome) -> str:
            nonlocal was_there
            was_there = True
            return str(port)

        async def join() -> None:
            try:
                await self._join(url, name)
            except JoinRefused as refused:  # the home link decides whether this node may join at all
                raise LinkLost(refused.message) from None

        await self._keep_link(join, lambda: url, soon=lambda: was_there and bool(self._links))

    # one link

    async def _join(self, url: str, named: Callable[[Welcome], str]) -> None:
        async with asyncio.timeout(DIAL_S):
            socket = await dial(url + LINK_PATH, session=self._session, library=self._settings.link_library)
        try:
            welcome = await authenticate_to_gateway(
                socket,
                key=self._key,
                host=host_of(url),
                token=self._settings.token,
                specs=self._inventory.specs,
                agent_version=__version__,
                rng=self._rng,
            )
            self._has_joined = True
            self._notify_owner(f"joined {url} as {self._key.address}")
            await self._serve_link(self._new_link(named(welcome)), socket, welcome)
        finally:
            socket.close()
            await socket.wait_closed()

    def _new_link(self, name: str) -> JoinedLink:
        return JoinedLink(
            name,
            inventory=self._inventory,
            jobs=self._jobs,
            receipts=self._receipts.for_link(name),
            sensing=self._sensing,
            stopping=self._stopping,
            clock=self._clock,
        )

    async def _serve_link(self, linked: JoinedLink, socket: Socket, welcome: Welcome) -> None:
        self._links.add(linked)
        self.joined_unix_s = self.joined_unix_s or self._clock.unix_s()
        try:
            await linked.serve(socket, welcome)
        finally:
            self._links.discard(linked)
            self.joined_unix_s = self.joined_unix_s if self._links else None
