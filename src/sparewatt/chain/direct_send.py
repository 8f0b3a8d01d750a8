"""Sends one transaction and waits for its receipt, for commands. What must survive a crash goes through the outbox."""

from __future__ import annotations

from sparewatt.chain.client import ChainClient
from sparewatt.chain.model import ContractCall, TransactionReceipt
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.protocol.signing import SigningKey

POLL_S, POLL_S_MAX = 0.02, 1.0
WAIT_S = 120.0
"""Ten blocks of a slow chain."""


async def send_directly(
    client: ChainClient, call: ContractCall, key: SigningKey, *, nonce: int, chain_id: int, clock: Clock
) -> TransactionReceipt:
    """Raises ChainReverted if the call would revert, ChainRefused if the node does not take the transaction."""
    gas_limit, fees = await client.gas_limit(call, sender=key.address), await client.fees()
    signed = TransactionSigner([key]).sign(
        call, sender=key.address, nonce=nonce, chain_id=chain_id, gas_limit=gas_limit, fees=fees
    )
    if not await client.send(signed.raw) and not await client.has_transaction(signed.tx_hash):
        raise ChainRefused("The chain's node does not take the transaction. Does its sender have gas?")
    return await wait_for_receipt(client, signed.tx_hash, clock=clock)


async def wait_for_receipt(
    client: ChainClient, tx_hash: bytes, *, clock: Clock, timeout_s: float = WAIT_S
) -> TransactionReceipt:
    """Polls with exponential back-off. Raises ChainUnavailable when the time is over."""
    deadline_s, pause_s = clock.now_s() + timeout_s, POLL_S
    while clock.now_s() < deadline_s:
        receipt = await client.receipt(tx_hash)
        if receipt is not None:
            return receipt
        await sleep_until(clock, clock.now_s() + pause_s)
        pause_s = min(POLL_S_MAX, 1.5 * pause_s)
    raise ChainUnavailable(f"The transaction was not mined within {timeout_s:.0f} s.")
