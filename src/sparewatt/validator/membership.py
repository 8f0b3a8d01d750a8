"""A validator's place in the stake registry: join, stake, activate, change key or URL, leave. Steps may be repeated.

Each function reads the contract first and does only what is missing, so a command that was interrupted is run again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainReverted, StartupError
from sparewatt.core.log import Logger
from sparewatt.evm.client import EvmClient
from sparewatt.protocol.contracts.match import NO_PROVIDER
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.validator.deployment import MarketDeployment, read_value
from sparewatt.validator.transaction_sender import TransactionSender

_log = Logger("sparewatt.validator")
URL_CHARS_MAX = 200
"""As the registry takes it."""
ACTIVATE_TRIES_MAX = 60
ACTIVATE_RETRY_S = 1.0
_NOT_YET_OR_DONE = frozenset({"TOO_EARLY", "NOTHING_PENDING"})
"""The clock is ahead of the chain's, or somebody else was first."""


@dataclass(frozen=True, slots=True)
class StakeState:
    """As `stake_registry.validator_of` and `url_of` say."""

    vote_key: str
    """Empty before it joined."""
    url: str
    stake_uusd: int
    pending_uusd: int
    pending_since: int
    activates_at: int
    """When what is pending may be given its weight; 0 if nothing is."""
    unbonding_uusd: int
    ready_at: int
    is_jailed: bool

    @property
    def has_joined(self) -> bool:
        return bool(self.vote_key)


@dataclass(frozen=True, slots=True)
class Membership:
    client: EvmClient
    deployment: MarketDeployment
    sender: TransactionSender
    clock: Clock

    async def state(self) -> StakeState:
        vote_key, stake, unbonding, ready_at, jailed, pending, since = await self._read("validator_of", self._operator)
        return StakeState(
            vote_key="" if vote_key == NO_PROVIDER else vote_key.lower(),
            url=await self._read("url_of", self._operator),
            stake_uusd=stake,
            pending_uusd=pending,
            pending_since=since,
            activates_at=since + await self._read("ACTIVATE_S") if pending else 0,
            unbonding_uusd=unbonding,
            ready_at=ready_at,
            is_jailed=jailed,
        )

    async def join(self, vote_key: SigningKey, *, url: str, stake_uusd: int) -> StakeState:
        """Until this much is staked or pending, under this key and URL. Raises StartupError, ChainReverted."""
        check_own_url(url)
        state = await self.state()
        if state.is_jailed:
            raise StartupError(
                f"The validator of {self._operator} was slashed for a proven fault and is jailed for good. "
                "Another operator key can join; 'sparewatt validator leave' takes the rest of the stake out."
            )
        missing = stake_uusd - state.stake_uusd - state.pending_uusd
        if missing > 0:
            await self._provide(missing)
        if not state.has_joined:
            arguments = (vote_key.address, self._proof(vote_key), url, stake_uusd)
            await self._send("join", *arguments)
            _log.info("validator_joined", operator=self._operator, vote_key=vote_key.address, stake_uusd=stake_uusd)
            return await self.state()
        if missing > 0:
            await self._send("deposit", missing)
        if state.vote_key != vote_key.address.lower():
            await self.set_vote_key(vote_key)
        if state.url != url:
            await self._send("set_url", url)
        return await self.state()

    async def set_vote_key(self, vote_key: SigningKey) -> None:
        """Raises ChainReverted."""
        await self._send("set_vote_key", vote_key.address, self._proof(vote_key))
        _log.info("vote_key_changed", operator=self._operator, vote_key=vote_key.address)

    async def activate(self, *, within_s: float = math.inf) -> StakeState:
        """Give pending stake its weight once it is due, which anyone may do. What is due later than that stays pending.

        Raises ChainReverted.
        """
        for _ in range(ACTIVATE_TRIES_MAX):
            state = await self.state()
            wait_s = state.activates_at - await self._chain_unix_s() if state.pending_uusd else 0
            if not state.pending_uusd or wait_s > within_s:
                return state
            await sleep_until(self.clock, self.clock.now_s() + wait_s)
            try:
                await self._send("activate", self._operator)
            except ChainReverted as error:
                if error.reason not in _NOT_YET_OR_DONE:
                    raise
                await sleep_until(self.clock, self.clock.now_s() + ACTIVATE_RETRY_S)
        return await self.state()

    async def leave(self) -> StakeState:
        """Start unbonding all stake, or once that is over, take it out. Raises StartupError, ChainReverted."""
        state = await self.state()
        if not state.has_joined:
            raise StartupError(f"{self._operator} has not joined, so there is nothing to take out. Is --data right?")
        staked = state.stake_uusd + state.pending_uusd
        if staked:
            await self._send("request_unbond", staked)
            return await self.state()
        if state.unbonding_uusd:
            if await self._chain_unix_s() < state.ready_at:
                return state
            await self._send("finish_unbond")
        if await self._read("owed", self._operator):
            await self._send("withdraw", self._operator)
        return await self.state()

    # internals

    async def _chain_unix_s(self) -> int:
        """A chain that nobody uses makes no blocks, but its next one has the time of then."""
        return max((await self.client.head()).unix_s, int(self.clock.unix_s()))

    @property
    def _operator(self) -> str:
        return self.sender.address

    async def _provide(self, amount_uusd: int) -> None:
        """See to it that the registry may take this much. On a chain of test money the faucet gives what is missing."""
        registry = self.deployment.contracts["stake_registry"].address
        balance = await self._read("balanceOf", self._operator, contract="token")
        if balance < amount_uusd:
            if not self.deployment.is_local:
                raise StartupError(
                    f"{self._operator} has {balance / 1e6:.2f} dollars of the network's token and needs "
                    f"{amount_uusd / 1e6:.2f} to stake. Send it more, or stake less."
                )
            await self._send("faucet", self._operator, amount_uusd - balance, contract="token")
        if await self._read("allowance", self._operator, registry, contract="token") < amount_uusd:
            await self._send("approve", registry, amount_uusd, contract="token")

    def _proof(self, vote_key: SigningKey) -> bytes:
        registry = self.deployment.contracts["stake_registry"].address
        domain = contract_domain(chain_id=self.deployment.identity.chain_id, contract=registry)
        return vote_key.sign(message_digest(domain, VoteKey(self._operator, vote_key.address)))

    async def _read(self, function: str, *args: object, contract: str = "stake_registry") -> Any:
        return await read_value(self.client, self.deployment.contracts, contract, function, *args)

    async def _send(self, function: str, *args: object, contract: str = "stake_registry") -> None:
        await self.sender.send(self.deployment.contracts[contract].encode_call(function, *args))


def check_own_url(url: str) -> str:
    """What others dial. Raises StartupError."""
    parts = urlsplit(url)
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or len(url) > URL_CHARS_MAX:
        raise StartupError(
            f"A validator's URL is like https://validator.example:8700, at most {URL_CHARS_MAX} characters long."
        )
    return url
