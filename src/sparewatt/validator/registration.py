"""What a validator's process does about its own entry in the stake registry: join, and register a renewed vote key.

Before it signs anything it looks whether another process answers at the registered URL with the same vote key. The lock
on the write-ahead file keeps two processes apart on one machine; this finds a copy of key and file on another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainError, ChainReverted, StartupError
from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.machine.stranger_http import NoAnswer
from sparewatt.protocol.api.validators import STATUS_PATH
from sparewatt.protocol.signing import SigningKey
from sparewatt.validator.membership import Membership

_log = Logger("sparewatt.validator")
RETRY_S = 2.0
LOOK_S = 2.0
"""For an answer of the registered URL: usually it is refused at once, since this process does not listen yet."""


class StatusTransport(Protocol):
    """Implemented by StrangerClient."""

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
        """Raises NoAnswer."""
        ...


class _Answer(msgspec.Struct):
    vote_key: str


@dataclass(frozen=True, slots=True)
class Registration:
    membership: Membership
    vote_key: SigningKey
    retired: Collection[str]
    """Vote keys that this validator had before."""
    clock: Clock

    async def require_alone(self, transport: StatusTransport) -> None:
        """Raises StartupError if another process answers with this vote key."""
        try:
            state = await self.membership.state()
        except ChainError:
            return  # the chain is waited for later
        if state.vote_key != self.vote_key.address.lower() or not state.url:
            return
        try:
            body = await transport.get(state.url, STATUS_PATH, within_s=LOOK_S, bytes_max=MIB)
            answer = msgspec.json.decode(body, type=_Answer)
        except (NoAnswer, msgspec.MsgspecError, UnicodeDecodeError):
            return
        if answer.vote_key.lower() == self.vote_key.address.lower():
            raise StartupError(
                f"A validator with this vote key answers at {state.url}, the URL in the stake registry. Two processes "
                "with one vote key would be slashed. Stop that one; if it is not yours, start with --new-vote-key."
            )

    async def join(self, *, url: str, stake_uusd: int) -> None:
        """Until the stake weighs."""

        async def do() -> None:
            await self.membership.join(self.vote_key, url=url, stake_uusd=stake_uusd)
            await self.membership.activate()

        await self._insist(do, "not_joined_yet")

    async def renew(self) -> None:
        """If a vote key that was retired here is still the registered one, register the one in use."""
        await self._insist(self._renew, "vote_key_not_changed_yet")

    async def _renew(self) -> None:
        registered = (await self.membership.state()).vote_key
        if registered in self.retired:
            try:
                await self.membership.set_vote_key(self.vote_key)
            except ChainReverted as error:  # a jailed operator, for one: it would be refused again
                _log.warning("vote_key_not_changed", registered=registered, why=error.reason)
        elif registered and registered != self.vote_key.address.lower():
            _log.warning("vote_key_not_registered", registered=registered, own=self.vote_key.address)

    async def _insist(self, do: Callable[[], Awaitable[None]], event: str) -> None:
        """Trouble of the chain is waited out."""
        while True:
            try:
                await do()
            except ChainError as error:
                _log.warning(event, why=error.message)
                await sleep_until(self.clock, self.clock.now_s() + RETRY_S)
            else:
                return
