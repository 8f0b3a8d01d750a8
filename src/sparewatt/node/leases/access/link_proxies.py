"""Keeps a link proxy on the bridge of each lease here that may reach the gateway, and none on any other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.node.leases.access.link_proxy import GatewayAddress, LinkProxy
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT
from sparewatt.node.leases.runtime.model import LeaseContainer

_log = Logger("sparewatt.node")


@dataclass(slots=True, kw_only=True, eq=False)
class LinkProxies:
    gateway: GatewayAddress
    ports: Callable[[], Collection[int]]
    """Of the gateway's processes."""
    clock: Clock
    port: int = AGENT_PORT
    _open: dict[str, tuple[LeaseContainer, LinkProxy]] = field(default_factory=dict, init=False)
    """By order."""
    _refused: set[str] = field(default_factory=set, init=False)

    async def keep(self, container: LeaseContainer) -> None:
        """Open one for a container that runs, unless it is open.

        A bridge comes and goes with its program; the socket stays, and serves again when the address is back.
        """
        order_id, host, tenant = container.label.lease_id, container.host_address, container.address
        if host is None or tenant is None:
            return
        if (found := self._open.get(order_id)) is not None:
            if (found[0].label, found[0].host_address, found[0].address) == (container.label, host, tenant):
                return
            await self.drop(order_id)
        proxy = LinkProxy(gateway=self.gateway, ports=self.ports, tenant=tenant, clock=self.clock)
        try:
            await proxy.open(host, self.port)
        except OSError as error:  # the bridge is just going, or another program listens everywhere
            self._tell_refused(order_id, error)
        else:
            self._refused.discard(order_id)
            self._open[order_id] = (container, proxy)

    async def drop(self, order_id: str) -> None:
        """Idempotent."""
        self._refused.discard(order_id)
        found = self._open.pop(order_id, None)
        if found is not None:
            await found[1].close()

    async def close(self) -> None:
        for order_id in list(self._open):
            await self.drop(order_id)

    def _tell_refused(self, order_id: str, error: OSError) -> None:
        if order_id not in self._refused:  # said once, however long it lasts
            self._refused.add(order_id)
            _log.warning("lease_link_not_opened", order=order_id, why=error.strerror or type(error).__name__)
