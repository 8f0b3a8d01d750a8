"""/v1/credits/withdraw and /v1/credits/collect: credits out of the network, and what contracts owe back into credits.

/v1/me/address: the account's address on the chain, which may be replaced by one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.money.credits import amount_of, reference_of
from sparewatt.api.money.statements import AccountFinder, amounts
from sparewatt.api.query import address_of
from sparewatt.core.errors import NoChain
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.ledger.chain_credits import ChainCreditService
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.ledger.request_holds import FreeIdleSlices
from sparewatt.protocol.api.credits import (
    AmountBody,
    CollectBody,
    Collected,
    OwnAddress,
    OwnAddressBody,
    Withdrawal,
    WithdrawBody,
)
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.request_params import ExitParams


@dataclass(slots=True, kw_only=True)
class ChainMoneyEndpoints:
    accounts: AccountFinder
    chain: ChainCreditService | None
    """None if the network has no chain."""
    free_idle_slices: FreeIdleSlices | None
    """None on a network that charges nothing."""
    rng: Rng
    """Makes ids for requests without one."""

    @endpoint("POST /v1/credits/withdraw", access="admin", body=WithdrawBody, status=202)
    async def withdraw_credits(self, request: web.Request, principal: Principal) -> Withdrawal:
        """Withdraw paid credits that were deposited on the chain. The contract pays them after its delay."""
        body, chain = await read_json(request, WithdrawBody), self._require_chain()
        nano, reference = amount_of(body), reference_of(body, rng=self.rng)
        if self.free_idle_slices is not None:
            await self.free_idle_slices(principal.account_id)
        to = None if body.to is None else body.to.lower()
        row = await chain.withdraw(principal.account_id, nano, receiver=to, reference=reference)
        paid, ready_at = int(row.result["micro"]) * NANO_PER_MICRO, float(row.result["ready_at"])
        usd = amounts(paid=paid)["paid_usd"]
        return Withdrawal(id=reference, usd=usd, nano=paid, ready_at=ready_at, to=_receiver_of(row))

    @endpoint("POST /v1/credits/collect", access="admin", body=CollectBody, status=200)
    async def collect_credits(self, request: web.Request, principal: Principal) -> Collected:
        """Bring what contracts owe your account, and the tokens at its address, back to your credits."""
        body, chain = await read_json(request, CollectBody), self._require_chain()
        reference = reference_of(AmountBody(id=body.id), rng=self.rng)
        row = await chain.collect(principal.account_id, reference=reference)
        return Collected(id=reference, tx=row.tx)

    @endpoint("GET /v1/me/address", access="identified", query=("address",))
    async def show_address(self, request: web.Request, principal: Principal) -> OwnAddress:
        """Show the chain address of your account, and the text that another has to sign to replace it."""
        chain, wanted = self._require_chain(), address_of(request, "address")
        holdings = await chain.holdings(principal.account_id)
        text = None if wanted is None else await chain.text_to_sign(principal.account_id, wanted)
        return OwnAddress(address=holdings.address, is_held=holdings.is_held, to_sign=text)

    @endpoint("POST /v1/me/address", access="admin", body=OwnAddressBody)
    async def set_address(self, request: web.Request, principal: Principal) -> OwnAddress:
        """Replace the address whose key the network holds by one of your own, which has signed for it."""
        body, chain = await read_json(request, OwnAddressBody), self._require_chain()
        signature = bytes.fromhex(body.signature.removeprefix("0x"))
        row = await chain.set_own_address(principal.account_id, body.address.lower(), signature)
        return OwnAddress(address=row.chain_address, is_held=False)

    def _require_chain(self) -> ChainCreditService:
        if self.chain is None:
            raise NoChain("Money on a chain")
        return self.chain


def _receiver_of(row: ChainRequestRow) -> str:
    chosen = row.params.receiver if isinstance(row.params, ExitParams) else None
    return chosen or row.address
