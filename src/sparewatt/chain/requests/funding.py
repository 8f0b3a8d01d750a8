"""Credits that were held for a request become tokens at the account's address, for a lease's deposit or a bond.

With test money the faucet mints what is missing. Elsewhere the amount goes into the next payout root, as earned and
spent at once, and is claimed when that root is ripe: the request waits until then.
"""

from __future__ import annotations

from sparewatt.chain.money.settlement_contract import SETTLEMENT, claim_call
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.handler import CallBatch, NamedCall
from sparewatt.core.errors import InvalidField
from sparewatt.core.money import Nano, format_usd
from sparewatt.evm.contract_abi import Contract
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutService
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.credit_holds import CreditHoldRow

FUNDS_POLL_S = 5.0
"""Between two looks at a root that is not ripe; it takes a day on a public network."""


async def held_payment(
    context: ChainRequestContext, row: ChainRequestRow, key: SigningKey, *, spender: Contract, micro: int
) -> CallBatch:
    """The calls that let `spender` take `micro` from the key's address, or a wait. Raises InvalidField."""
    token = await context.token()
    missing = micro - int(await context.view(token, "balanceOf", key.address))
    if missing > 0:
        bringing = await _bring(context, row, token, key.address, missing)
        if bringing is None:
            return CallBatch(wait_s=FUNDS_POLL_S)
    else:
        bringing = []
    return CallBatch((*bringing, ("permit", await context.permit(token, key, spender, micro))))


async def _bring(
    context: ChainRequestContext, row: ChainRequestRow, token: Contract, address: str, missing: int
) -> list[NamedCall] | None:
    """None while a payout root is under way."""
    hold = await context.database.credit_holds.find(row.id)
    if hold is None or hold.nano < missing * NANO_PER_MICRO:
        short = format_usd(Nano(missing * NANO_PER_MICRO - (hold.nano if hold else 0)))
        raise InvalidField(
            f"${short} of it is neither held of your credits nor at your address {address}. What you earned is there "
            "once it was claimed: 'sparewatt payouts'."
        )
    if hold.by_root:
        return await _claim(context, hold, address)
    if not context.test_money:
        raise InvalidField("This chain's money is no test money, as the gateway said. Check its settings, ask again.")
    return [("faucet", context.faucet(token, address, missing))]


async def _claim(context: ChainRequestContext, hold: CreditHoldRow, address: str) -> list[NamedCall] | None:
    ripe = await context.database.payouts.last_ripe_epoch()
    if hold.epoch is None or ripe is None or ripe < hold.epoch:
        return None
    payouts = PayoutService(context.database.payouts, clock=context.clock)
    proof = await payouts.proof(ripe, address)
    if proof is None:
        raise InvalidField(f"{address} is not in batch {ripe}, which should pay this request.")
    return [("claim", claim_call(context.contracts[SETTLEMENT], proof))]
