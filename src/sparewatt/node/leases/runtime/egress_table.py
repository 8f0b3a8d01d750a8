"""One nft table, ours by name, that keeps leases from the host, from private networks and from each other.

It drops what comes from lease bridges to the host itself and to addresses that are not public, and whatever anybody
else sends to a lease. The agent's own connections into a lease work, since their replies belong to them. Bridges are
known by their names (`naming`), so the table is the same whatever leases there are, and any agent may install it.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import Protocol

from sparewatt.core.address_rules import NOT_PUBLIC_V4
from sparewatt.core.log import Logger
from sparewatt.node.leases.runtime.naming import AGENT_EGRESS, BRIDGE_PREFIX, NO_EGRESS

_log = Logger("sparewatt.node")
TABLE = "sparewatt_leases"
AGENT_PORT = 47_821
"""Where an agent may listen on the bridge of a lease that has `agent_port`: the one hole."""
NFT_S = 10.0
NFT_PLACES = "/usr/sbin:/sbin:/usr/local/sbin"
"""Where it is, also if the PATH of a service leaves these out."""


class TableRefused(Exception):
    """The table cannot be installed. The message says why."""


class EgressTable(Protocol):
    async def hold(self) -> None:
        """Install the table, unless it stands as it was installed. Raises TableRefused."""

    async def remove(self) -> None: ...


def table_text(table: str = TABLE) -> str:
    """For `nft -f`: replaces what is there in one step, so that there is no moment without rules.

    IPv6 is dropped whole: a lease's bridge has no address of it but link-local ones.
    """
    not_public = ", ".join(map(str, NOT_PUBLIC_V4))
    return f"""\
table inet {table}
delete table inet {table}
table inet {table} {{
  chain to_host {{
    type filter hook input priority -150; policy accept;
    iifname != "{BRIDGE_PREFIX}*" accept
    ct state established,related accept
    iifname "{AGENT_EGRESS}*" fib daddr . iif type local tcp dport {AGENT_PORT} accept
    counter drop
  }}
  chain through_host {{
    type filter hook forward priority -150; policy accept;
    oifname "{BRIDGE_PREFIX}*" ct state established,related accept
    oifname "{BRIDGE_PREFIX}*" counter drop
    iifname != "{BRIDGE_PREFIX}*" accept
    iifname "{NO_EGRESS}*" counter drop
    meta nfproto ipv6 counter drop
    ip daddr {{ {not_public} }} counter drop
  }}
}}
"""


class NftEgressTable:
    def __init__(self, nft: str | None = None, *, table: str = TABLE) -> None:
        self._table = table
        self._nft = nft or shutil.which("nft") or shutil.which("nft", path=NFT_PLACES)
        self._installed: str | None = None
        """What nft lists of it, without counts."""
        self._lock = asyncio.Lock()

    async def hold(self) -> None:
        async with self._lock:
            if self._installed is not None and await self._listed() == self._installed:
                return
            if self._installed is not None:
                _log.warning("egress_table_replaced")
            await self._call("-f", "-", data=table_text(self._table))
            self._installed = await self._listed()
            if not self._installed:
                raise TableRefused("nft accepts the table and does not list it")

    async def remove(self) -> None:
        """For tests and those who uninstall: leases that run are then unprotected."""
        self._installed = None
        with suppress(TableRefused):
            await self._call("delete", "table", "inet", self._table)

    async def _listed(self) -> str:
        try:
            return await self._call("--stateless", "list", "table", "inet", self._table)
        except TableRefused:
            return ""

    async def _call(self, *words: str, data: str = "") -> str:
        if self._nft is None:
            raise TableRefused("nft is not installed")
        try:
            async with asyncio.timeout(NFT_S):
                process = await asyncio.create_subprocess_exec(
                    self._nft,
                    *words,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                out, err = await process.communicate(data.encode())
        except (OSError, TimeoutError) as error:
            raise TableRefused(f"nft cannot be run ({str(error) or 'no answer in time'})") from None
        if process.returncode != 0:
            lines = err.decode(errors="replace").strip().splitlines()
            raise TableRefused(lines[0] if lines else f"nft ended with status {process.returncode}")
        return out.decode(errors="replace")
