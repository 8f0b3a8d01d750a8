"""What the settlement contract's guardian does: strike a payout root in its delay, stop a pool, lift the stop."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import get_record, shipped_contracts
from sparewatt.chain.deployment import send_directly
from sparewatt.chain.money.settlement_contract import SETTLEMENT, call_view
from sparewatt.chain.signer import GUARDIAN_KEY, load_or_make_key
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainReverted, StartupError
from sparewatt.core.rng import SystemRng
from sparewatt.evm.model import hex_of

POOLS = {"credits": 0, "rewards": 1}
REASONS = {
    "NOT_GUARDIAN": "this is not the guardian's key",
    "WRONG_EPOCH": "the pool has no root",
    "ROOT_IS_RIPE": "its last root can be claimed already, so it cannot be struck any more",
    "POOL_STOPPED": "the pool is stopped already",
    "NOT_STOPPED": "the pool is not stopped",
}
"""What the contract's reasons mean for a guardian."""


class GuardAction(StrEnum):
    STRIKE = "strike"
    """The one root of the pool that is not ripe yet."""
    STOP = "stop"
    LIFT = "lift"


async def guard(
    client: ChainClient, folder: Path, *, action: GuardAction, pool: str = "credits", key_file: Path | None = None
) -> str:
    """Send it with the guardian's key. Returns the transaction.

    Raises StartupError without the key, ChainReverted with the contract's reason.
    """
    path = key_file or folder / GUARDIAN_KEY
    if not path.exists():
        raise StartupError(f"There is no guardian's key in {path}. Name the file that has it: --key FILE")
    key = load_or_make_key(path, rng=SystemRng())
    settlement, number = shipped_contracts(get_record(folder))[SETTLEMENT], POOLS[pool]
    if action is GuardAction.STRIKE:
        *_, epoch = await call_view(client, settlement, "pools", number)
        call = settlement.encode_call("strike_root", number, epoch)
    else:
        call = settlement.encode_call(action.value, number)
    nonce, chain_id = await client.next_nonce(key.address), (await client.identity()).chain_id
    try:
        receipt = await send_directly(client, call, key, nonce=nonce, chain_id=chain_id, clock=SystemClock())
    except ChainReverted as error:
        raise ChainReverted(explain(error.reason), data=error.data) from None
    if not receipt.succeeded:
        raise ChainReverted(f"the settlement contract did not {action.value}")
    return hex_of(receipt.tx_hash)


def explain(reason: str) -> str:
    """The contract's reason in words, if it is known."""
    return f"{REASONS[reason]} ({reason})" if reason in REASONS else reason
