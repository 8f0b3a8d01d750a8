"""Tickets for sockets that a browser opens, which cannot send a key: one use, half a minute, one lease of one account.

They are in the memory of the process that made them. Its number is part of the ticket, so that another process of the
gateway knows whom to ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.core.rng import Rng

TICKET_LIFE_S = 30.0
TICKETS_MAX = 4_096
TICKETS_PER_ACCOUNT_MAX = 32
TICKET_CHARS_MAX = 80
_TICKET_BYTES = 24


@dataclass(frozen=True, slots=True)
class TicketUse:
    account: AccountId
    lease_id: str
    expires_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class AccessTickets:
    process: int
    clock: Clock
    rng: Rng
    _open: dict[str, TicketUse] = field(default_factory=dict, init=False)
    """The oldest first."""

    def issue(self, account: AccountId, lease_id: str) -> str:
        """Raises RateLimited."""
        now_s = self.clock.now_s()
        self._drop_expired(now_s)
        own = sum(each.account == account for each in self._open.values())
        if own >= TICKETS_PER_ACCOUNT_MAX or len(self._open) >= TICKETS_MAX:
            raise RateLimited("Too many tickets are open. Use one, or try again in 30 s.", retry_after_s=TICKET_LIFE_S)
        ticket = f"{self.process}.{self.rng.randbytes(_TICKET_BYTES).hex()}"
        self._open[ticket] = TicketUse(account, lease_id, now_s + TICKET_LIFE_S)
        return ticket

    def redeem(self, ticket: str) -> TicketUse | None:
        """What it is good for; None if it is unknown, used or too old. Any try uses it up."""
        use = self._open.pop(ticket, None)
        return None if use is None or use.expires_s <= self.clock.now_s() else use

    def _drop_expired(self, now_s: float) -> None:
        for ticket in [ticket for ticket, use in self._open.items() if use.expires_s <= now_s]:
            del self._open[ticket]


def process_of(ticket: str) -> int | None:
    """The process that made it; None if it is no ticket."""
    number, dot, secret = ticket.partition(".")
    is_ticket = dot == "." and number.isascii() and number.isdigit() and len(number) <= 3 and secret.isalnum()
    return int(number) if is_ticket and len(ticket) <= TICKET_CHARS_MAX else None
