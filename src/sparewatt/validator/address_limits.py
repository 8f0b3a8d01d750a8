"""Limits per client address: requests and bytes per second, requests at once, and open connections. Pure but for time.

Everything a validator's API takes is signed, so these only bound what strangers cost. An IPv6 client is its /64.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from sparewatt.core.limits import MIB

REQUESTS_PER_S = 300.0
REQUESTS_BURST = 1_000.0
"""All nodes and validators of a network on one machine share one address."""
BYTES_PER_S = 8.0 * MIB
BYTES_BURST = 64.0 * MIB
AT_ONCE_MAX = 256
"""Of one address, long polls included."""
CONNECTIONS_MAX = 768
"""Below the 1,024 files that a process may usually open: beyond that nobody could be let in at all."""
CONNECTIONS_PER_ADDRESS = 256
ADDRESSES_MAX = 4_096
"""Whose use is remembered; the one that was quiet for longest is forgotten first."""
FORGETS_AT_ONCE = 8
_V6_HOST_BITS = 64


@dataclass(slots=True)
class _Use:
    requests: float = REQUESTS_BURST
    """Left in the bucket."""
    bytes: float = BYTES_BURST
    at_s: float = 0.0
    at_once: int = 0
    connections: int = 0


@dataclass(slots=True)
class AddressLimits:
    _uses: OrderedDict[str, _Use] = field(default_factory=OrderedDict, init=False)
    _connections: int = field(default=0, init=False)

    def begin(self, address: str, *, now_s: float) -> float | None:
        """Count a request that begins. None if it may; else after how many seconds to try again."""
        use = self._use(address, now_s)
        if use.at_once >= AT_ONCE_MAX:
            return 1.0
        if use.requests < 1.0:
            return (1.0 - use.requests) / REQUESTS_PER_S
        if use.bytes < 0.0:
            return -use.bytes / BYTES_PER_S
        use.requests -= 1.0
        use.at_once += 1
        return None

    def count_bytes(self, address: str, n_bytes: int, *, now_s: float) -> None:
        """Of a body or a reply. The bucket may go below zero: the next request pays for it."""
        self._use(address, now_s).bytes -= n_bytes

    def end(self, address: str) -> None:
        use = self._uses.get(address)
        if use is not None:
            use.at_once = max(0, use.at_once - 1)

    def crowded_out_by(self, address: str) -> str | None:
        """Whose connection has to make room for one of this address: the address with most, if all places are taken.

        None if there is room, or nobody has more than this address would have.
        """
        if self._connections < CONNECTIONS_MAX:
            return None
        own = self._uses.get(address)
        most = max(self._uses, key=lambda each: self._uses[each].connections)
        return most if self._uses[most].connections > (own.connections if own is not None else 0) else None

    def connect(self, address: str, *, now_s: float) -> bool:
        """Count a connection; False if there are too many."""
        use = self._use(address, now_s)
        if self._connections >= CONNECTIONS_MAX or use.connections >= CONNECTIONS_PER_ADDRESS:
            return False
        use.connections += 1
        self._connections += 1
        return True

    def disconnect(self, address: str) -> None:
        use = self._uses.get(address)
        if use is not None and use.connections:
            use.connections -= 1
        self._connections = max(0, self._connections - 1)

    def _use(self, address: str, now_s: float) -> _Use:
        use = self._uses.get(address)
        if use is None:
            self._forget_quiet()
            use = self._uses[address] = _Use(at_s=now_s)
        self._uses.move_to_end(address)
        passed_s = max(0.0, now_s - use.at_s)
        use.requests = min(REQUESTS_BURST, use.requests + passed_s * REQUESTS_PER_S)
        use.bytes = min(BYTES_BURST, use.bytes + passed_s * BYTES_PER_S)
        use.at_s = now_s
        return use

    def _forget_quiet(self) -> None:
        """An address with a connection stays, so that its count is right; connections are bounded themselves."""
        if len(self._uses) < ADDRESSES_MAX:
            return
        quiet = (address for address, use in self._uses.items() if not use.connections and not use.at_once)
        for address in [address for _, address in zip(range(FORGETS_AT_ONCE), quiet, strict=False)]:
            del self._uses[address]


def client_of(peer_address: str) -> str:
    """What is limited: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ip_address(peer_address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> _V6_HOST_BITS << _V6_HOST_BITS))
    return str(parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else parsed)
