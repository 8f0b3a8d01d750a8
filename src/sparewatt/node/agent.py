"""The agent: dials the gateway, joins, and dials again with exponential back-off when a link is lost.

A gateway of several processes lists their link ports in its welcome. The agent then keeps a link to each: the home
link, by which it joined, and a side link for every other port. It dials only the host that its owner named.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import aiohttp

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import JoinRefused, LinkLost, ProtocolViolation, StartupError
from sparewatt.core.rng import Rng
from sparewatt.link.dialer import dial, explain_permanent_error
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.node_end import MarketListener
from sparewatt.link.sockets import Socket
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.joined_link import JoinedLink
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.node.network_models import NameNotices
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.frames import LINK_PATH, NodeKeyRequest, SignedNodeKey, Welcome
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.signing import SigningKey

BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
DIAL_S = 10.0
LEAVE_S = 2.0
"""For the goodbyes on side links."""
OFFLINE_ERRNOS = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
QUICK_RETRY_FAILURES_MAX = 3
"""The back-off stops growing here while this machine has no network, since dialling costs the gateway nothing; also
for one process of a gateway whose others answer: it is restarting, and needs its nodes."""


def backoff_s(failures: int, *, rng: Rng) -> float:
    """Exponential back-off with jitter, from a tenth of its bound on: a fleet must not dial in step."""
    bound = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures, 10))
    return bound * (0.1 + 0.9 * rng.random())


def is_offline(error: Exception) -> bool:
    """Whether this machine has no network (a pulled cable), as opposed to a gateway that is down."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, OSError) and cause.errno in OFFLINE_ERRNOS


def with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    user, at, _ = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user}{at}{host}:{port}"


def link_address(url: str, *, via: str | None) -> str:
    """Of the link at a gateway's process; of a node in a lease, at its machine's agent, which passes it on to there."""
    if via is None:
        return url + LINK_PATH
    parts = urlsplit(url)
    return f"{via.rstrip('/')}{LINK_PATH}?port={parts.port or (443 if parts.scheme == 'https' else 80)}"


def process_url(url: str, welcome: Welcome) -> str:
    """Where the very process is that a link was opened to: the public address may lead to another one."""
    port = welcome.link_port
    return url if port is None or port not in welcome.link_ports else with_port(url, port)


def describe_link_error(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "the gateway did not answer in time; is this machine online?"
    return str(error)[:200] or type(error).__name__


@dataclass(slots=True, kw_only=True, eq=False)
class NodeAgent:
    settings: NodeSettings
    key: SigningKey
    inventory: Inventory
    jobs: NodeJobRunner
    receipts: ReceiptIssuer
    session: aiohttp.ClientSession
    clock: Clock
    rng: Rng
    notify: Callable[[str], None]
    """Shows one line to the owner."""
    sampler: SensorSampler | None = None
    market: MarketListener | None = None
    """Takes what gateways say about leases."""
    serve_traffic: Callable[[str], Awaitable[None]] | None = None
    """Dials a process's traffic socket by its address, and serves it until it is gone."""
    joined_unix_s: float | None = field(init=False, default=None)
    """Since when there is a link; None while there is none."""
    last_trouble: str | None = field(init=False, default=None)
    """Why the last link was lost, or none came up."""
    _url: str = field(init=False)
    _has_joined: bool = field(init=False, default=False)
    _links: set[JoinedLink] = field(init=False, default_factory=set)
    link_ports: tuple[int, ...] = field(init=False, default=())
    """Of the gateway's processes, as its last welcome listed them."""
    _home_port: int | None = field(init=False, default=None)
    """The port of the home link's process; None if the gateway has one process."""
    _side_links: dict[int, asyncio.Task[None]] = field(init=False, default_factory=dict)
    """By port."""
    _stopping: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    name_notices: NameNotices = field(init=False)

    def __post_init__(self) -> None:
        self.name_notices = NameNotices(self.notify, clock=self.clock)
        self._url = self.settings.gateway_url.rstrip("/").removesuffix("/v1")

    async def run(self) -> None:
        """Stay joined until `drain`. Raises JoinRefused or StartupError when dialling again cannot help."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._keep_link(lambda: self._join_home(tasks), self._home_url)
                await self._end_side_links()
        except* (JoinRefused, StartupError) as group:
            raise group.exceptions[0] from None

    async def drain(self) -> None:
        """Finish running jobs, accept no new ones, then leave."""
        self.jobs.draining = True
        for link in self._links:
            link.report_load()
        if running := self.jobs.count():
            self.notify(f"finishing {running} answer{'s' if running > 1 else ''}; Ctrl-C again to stop now")
        await self.jobs.wait_until_idle(self.settings.drain_s)
        self._stopping.set()

    async def _end_side_links(self) -> None:
        """They say goodbye by themselves; one that is still dialling is cancelled."""
        if self._side_links:
            _, late = await asyncio.wait(self._side_links.values(), timeout=LEAVE_S)
            for task in late:
                task.cancel()

    async def _keep_link(
        self,
        join: Callable[[], Awaitable[None]],
        url: Callable[[], str],
        *,
        retry_quickly: Callable[[], bool] = lambda: False,
    ) -> None:
        """Dial again and again until the node stops. `join` raises what dialling again cannot get over."""
        failures = 0
        while not self._stopping.is_set():
            joined_at_s = self.clock.now_s()
            dialled, why, offline = url(), "", False
            try:
                await join()
            except (LinkLost, ProtocolViolation, TimeoutError, aiohttp.ClientError, OSError) as error:
                self._raise_if_permanent(error)
                why, offline = describe_link_error(error), is_offline(error)
                self.last_trouble = why
            has_lasted = self.clock.now_s() - joined_at_s > BACKOFF_MAX_S
            failures = 0 if has_lasted else failures + 1
            failures = min(failures, QUICK_RETRY_FAILURES_MAX) if offline or retry_quickly() else failures
            wait_s = backoff_s(failures, rng=self.rng)
            if not self._stopping.is_set():
                self.notify(f"no link to {dialled} ({why}); dialling again in {wait_s:.0f} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    def _raise_if_permanent(self, error: Exception) -> None:
        """Before the first join, an address that is no gateway is a mistake of the owner, not a fault to wait out."""
        if not self._has_joined and (why := explain_permanent_error(self._url, error)) is not None:
            raise StartupError(why) from None

    # one link to each process of the gateway

    def _home_url(self) -> str:
        """While side links are up, its own port: the public port may lead to a process that has a side link."""
        if self._links and self._home_port is not None:
            return with_port(self._url, self._home_port)
        return self._url

    async def _join_home(self, tasks: asyncio.TaskGroup) -> None:
        await self._join(self._home_url(), lambda welcome: self._update_side_links(welcome, tasks))

    def _update_side_links(self, welcome: Welcome, tasks: asyncio.TaskGroup) -> str:
        """The home link is up: start and end side links as its welcome lists ports. Returns the home link's name."""
        self.link_ports = tuple(welcome.link_ports)
        self._home_port = welcome.link_port if welcome.link_port in welcome.link_ports else None
        ports = set(welcome.link_ports) - {self._home_port} if self._home_port is not None else set()
        self.jobs.is_shared = bool(ports)
        for port in [port for port in self._side_links if port not in ports]:
            self._side_links.pop(port).cancel()
        self.receipts.retain_links([str(port) for port in welcome.link_ports])
        for port in ports - set(self._side_links):
            self._side_links[port] = tasks.create_task(self._keep_side_link(port), name=f"link to port {port}")
        return str(self._home_port or "")

    async def _keep_side_link(self, port: int) -> None:
        url, was_up = with_port(self._url, port), False

        def name(_: Welcome) -> str:
            nonlocal was_up
            was_up = True
            return str(port)

        async def join() -> None:
            try:
                await self._join(url, name)
            except JoinRefused as refused:  # only the home link decides whether this node may join at all
                raise LinkLost(refused.message) from None

        await self._keep_link(join, lambda: url, retry_quickly=lambda: was_up and bool(self._links))

    # one link

    async def _join(self, url: str, link_name: Callable[[Welcome], str]) -> None:
        async with asyncio.timeout(DIAL_S):
            dialled = link_address(url, via=self.settings.link_via)
            socket = await dial(dialled, session=self.session, library=self.settings.link_library)
        try:
            welcome = await authenticate_to_gateway(
                socket,
                key=self.key,
                host=host_of(url),
                token=self.settings.token,
                specs=self.inventory.specs,
                agent_version=__version__,
                rng=self.rng,
            )
            self._has_joined = True
            self.notify(f"joined {url} as {self.key.address}")
            await self._serve_link(link_name(welcome), socket, welcome, process_url=process_url(url, welcome))
        finally:
            socket.close()
            await socket.wait_closed()

    async def _serve_link(self, name: str, socket: Socket, welcome: Welcome, *, process_url: str) -> None:
        link = JoinedLink(
            name=name,
            inventory=self.inventory,
            jobs=self.jobs,
            receipts=self.receipts.for_link(name),
            sampler=self.sampler,
            stopping=self._stopping,
            clock=self.clock,
            on_names=self.name_notices.on_names,
            sign_node_key=self._sign_node_key,
            market=self.market,
            serve_traffic=partial(self.serve_traffic, process_url) if self.serve_traffic is not None else None,
        )
        self._links.add(link)
        self.joined_unix_s = self.joined_unix_s or self.clock.unix_s()
        try:
            await link.serve(socket, welcome)
        finally:
            self._links.discard(link)
            self.joined_unix_s = self.joined_unix_s if self._links else None

    def say_lease(self, said: LeaseAct | LeaseReport) -> None:
        """To every process of the gateway that this node has a link to."""
        for link in list(self._links):
            link.say_lease(said)

    def _sign_node_key(self, request: NodeKeyRequest) -> SignedNodeKey:
        settings = self.inventory.settings
        signed = sign_node_key(request, key=self.key, offers_leases=settings.leases, wallet=settings.lease_wallet)
        if signed.signature is not None:
            self.notify(f"serves leases as the provider {request.provider}")
        return signed
