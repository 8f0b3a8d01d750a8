"""Waiting for one transaction, for commands that send directly. What must survive a crash goes through the outbox."""

from __future__ import annotations

from sparewatt.chain.client import ChainClient
from sparewatt.chain.model import TransactionReceipt
from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.protocol.contracts.chain_events import SignedTransaction

POLL_S = 0.02
POLL_S_MAX = 1.0
WAIT_S = 120.0
"""Ten blocks of a slow chain."""


async def send_and_wait(client: ChainClient, signed: SignedTransaction, *, clock: Clock) -> TransactionReceipt:
    """Raises ChainRefused when the node neither takes the transaction nor has it already."""
    if not await client.send(signed.raw) and not await client.has_transaction(signed.tx_hash):
        raise ChainRefused("The chain's node does not take the transaction. Does its sender have gas?")
    return await wait_for_receipt(client, signed.tx_hash, clock=clock)


async def wait_for_receipt(
    client: ChainClient, tx_hash: bytes, *, clock: Clock, depth: int = 1, timeout_s: float = WAIT_S
) -> TransactionReceipt:
    """The receipt, once its block has `depth` blocks, its own included. Raises ChainUnavailable after a while."""
    deadline_s, pause_s = clock.now_s() + timeout_s, POLL_S
    while clock.now_s() < deadline_s:
        receipt = await client.receipt(tx_hash)
        if receipt and (depth <= 1 or (await client.head()).number - receipt.block_number + 1 >= depth):
            return receipt
        await sleep_until(clock, clock.now_s() + pause_s)
        pause_s = min(POLL_S_MAX, 1.5 * pause_s)
    raise ChainUnavailable(f"The transaction was not mined within {timeout_s:.0f} s.")
