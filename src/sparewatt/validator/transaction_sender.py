"""Sends the operator's transactions: one nonce after the other, each watched until it is in a block.

A call that would revert is not sent: the estimate of its gas raises the contract's reason. A transaction that is not
mined in time is sent again with a higher fee under the same nonce. Nothing is stored: what was under way when the
process ended is either mined or not, and whoever wanted it asks the chain first.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.core.log import Logger
from sparewatt.evm.client import EvmClient
from sparewatt.evm.model import ContractCall, GasFees, TransactionReceipt
from sparewatt.evm.transactions import sign_transaction
from sparewatt.protocol.signing import SigningKey

_log = Logger("sparewatt.validator")
RECEIPT_POLL_S = 0.1
RECEIPT_POLL_S_MAX = 2.0
STUCK_S = 60.0
"""Without a block for this long, the fee was too low."""
REPLACEMENTS_MAX = 5
BUMP_NUM, BUMP_DEN = 5, 4
"""Nodes take a replacement that pays at least a tenth more."""
UNDER_WAY_MAX = 16
"""More than that are not worth queueing behind a chain that does not mine."""


@dataclass(slots=True)
class TransactionSender:
    client: EvmClient
    key: SigningKey
    chain_id: int
    clock: Clock
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _under_way: set[int] = field(default_factory=set, init=False)
    """Nonces that were sent and are in no block that we have seen."""

    @property
    def address(self) -> str:
        return self.key.address

    async def send(self, call: ContractCall) -> TransactionReceipt:
        """Send and wait until it is in a block.

        Raises ChainReverted before anything is sent, or if it reverted in its block; ChainRefused; ChainUnavailable.
        """
        if len(self._under_way) >= UNDER_WAY_MAX:
            raise ChainUnavailable("Too many transactions of this validator wait for a block.")
        gas_limit = await self.client.gas_limit(call, sender=self.address)
        async with self._lock:
            nonce = await self._next_nonce()
            fees = await self.client.fees()
            tx_hash = await self._submit(call, nonce=nonce, gas_limit=gas_limit, fees=fees)
            self._under_way.add(nonce)
        try:
            receipt = await self._wait(call, [tx_hash], nonce=nonce, gas_limit=gas_limit, fees=fees)
        finally:
            self._under_way.discard(nonce)
        if not receipt.succeeded:
            raise ChainReverted(await self._why(call))
        return receipt

    # internals

    async def _next_nonce(self) -> int:
        """The first that is neither in a block nor under way."""
        nonce = await self.client.next_nonce(self.address)
        while nonce in self._under_way:
            nonce += 1
        return nonce

    async def _submit(self, call: ContractCall, *, nonce: int, gas_limit: int, fees: GasFees) -> bytes:
        signed = sign_transaction(call, self.key, nonce=nonce, chain_id=self.chain_id, gas_limit=gas_limit, fees=fees)
        if not await self.client.send(signed.raw) and not await self.client.has_transaction(signed.tx_hash):
            raise ChainRefused(
                f"The chain's node did not take a transaction of {self.address}. Has the operator's key enough for gas?"
            )
        return signed.tx_hash

    async def _wait(
        self, call: ContractCall, hashes: list[bytes], *, nonce: int, gas_limit: int, fees: GasFees
    ) -> TransactionReceipt:
        for _ in range(REPLACEMENTS_MAX):
            receipt = await self._receipt_in_time(hashes)
            if receipt is not None:
                return receipt
            fees = GasFees(_bumped(fees.max_wei), _bumped(fees.tip_wei))
            _log.warning("transaction_replaced", nonce=nonce, max_fee_wei=fees.max_wei)
            try:
                hashes.append(await self._submit(call, nonce=nonce, gas_limit=gas_limit, fees=fees))
            except ChainRefused:  # an earlier one was mined meanwhile, or the fee is still too low
                continue
        raise ChainUnavailable("A transaction of this validator is in no block after several tries.")

    async def _receipt_in_time(self, hashes: list[bytes]) -> TransactionReceipt | None:
        until_s, pause_s = self.clock.now_s() + STUCK_S, RECEIPT_POLL_S
        while self.clock.now_s() < until_s:
            for tx_hash in hashes:
                receipt = await self.client.receipt(tx_hash)
                if receipt is not None:
                    return receipt
            await sleep_until(self.clock, self.clock.now_s() + pause_s)
            pause_s = min(2 * pause_s, RECEIPT_POLL_S_MAX)
        return None

    async def _why(self, call: ContractCall) -> str:
        """The reason as of now: the call is tried again without sending it."""
        try:
            await self.client.call(call, sender=self.address)
        except ChainReverted as error:
            return error.reason
        return "no reason given"


def _bumped(wei: int) -> int:
    return wei * BUMP_NUM // BUMP_DEN + 1
