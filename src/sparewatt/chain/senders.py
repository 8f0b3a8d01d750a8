"""Which key sends the calls of a request, and whose waiting calls another key takes over.

Each key has nonces of its own: a transaction that is not mined holds up the later ones of its key, never those of
another. Calls that have no nonce yet leave a key that is stuck or cannot pay its gas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparewatt.chain.client import ChainClient
from sparewatt.core.log import Logger
from sparewatt.store.chain import ChainStore

_log = Logger("sparewatt.chain")
STUCK_S = 45.0
"""A key whose transaction has waited this long for a block gets no new ones; less than the wait for a higher fee."""
GAS_PER_REQUEST = 3_000_000
"""The calls of one request together, with room; a key that could not pay that much is not chosen."""
MOVED_PER_STEP = 16


@dataclass(frozen=True, slots=True)
class SenderLoad:
    address: str
    open_calls: int
    """Calls of this key that are not mined, with and without a nonce."""
    waiting_s: float
    """How long its oldest signed transaction has waited for a block."""
    can_pay: bool = True


def is_fit(load: SenderLoad, *, stuck_s: float) -> bool:
    return load.can_pay and load.waiting_s <= stuck_s


def choose_sender(loads: Sequence[SenderLoad], *, stuck_s: float = STUCK_S) -> str:
    """The fit key with the fewest open calls; the first of equals. If none is fit, the least unfit."""
    best = min(
        enumerate(loads),
        key=lambda each: (not each[1].can_pay, each[1].waiting_s > stuck_s, each[1].open_calls, each[0]),
    )
    return best[1].address


def with_calls(loads: Sequence[SenderLoad], address: str, calls: int) -> list[SenderLoad]:
    """The loads after `calls` more were given to a key."""
    return [replace(load, open_calls=load.open_calls + calls) if load.address == address else load for load in loads]


def senders_to_relieve(loads: Sequence[SenderLoad], *, stuck_s: float = STUCK_S) -> list[str]:
    """Keys whose calls without a nonce are better sent by another; none if there is no better one."""
    if not any(is_fit(load, stuck_s=stuck_s) for load in loads):
        return []
    return [load.address for load in loads if not is_fit(load, stuck_s=stuck_s)]


@dataclass(frozen=True, slots=True)
class SenderPool:
    """The keys that relay requests."""

    client: ChainClient
    store: ChainStore
    addresses: Sequence[str]
    """The operator's last: of equals the first is chosen, and the operator's key has calls that only it can send."""
    stuck_s: float = STUCK_S

    async def loads(self) -> list[SenderLoad]:
        rows = await self.store.sender_loads(self.addresses)
        max_wei = (await self.client.fees()).max_wei if len(self.addresses) > 1 else 0
        return [
            SenderLoad(address, *rows.get(address, (0, 0.0)), can_pay=await self._can_pay(address, max_wei))
            for address in self.addresses
        ]

    async def _can_pay(self, address: str, max_wei: int) -> bool:
        """Where gas costs nothing, everyone can."""
        return max_wei == 0 or await self.client.balance(address) >= GAS_PER_REQUEST * max_wei

    async def relieve(self) -> None:
        """Move requests without a nonce away from keys that are stuck, cannot pay, or are not ours any more."""
        if not await self.store.has_waiting_requests():
            return
        loads = await self.loads()
        relieved = set(senders_to_relieve(loads, stuck_s=self.stuck_s))
        staying = [address for address in self.addresses if address not in relieved]
        for request_id, calls in await self.store.list_movable_requests(staying, limit=MOVED_PER_STEP):
            to = choose_sender(loads, stuck_s=self.stuck_s)
            if await self.store.move_request(request_id, to=to):
                _log.info("request_moved_to_another_sender", request=request_id, sender=to)
                loads = with_calls(loads, to, calls)
