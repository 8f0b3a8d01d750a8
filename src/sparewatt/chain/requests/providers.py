"""Requests of providers: REGISTER, BOND, UNBOND, STATUS.

A provider is a node with an address of its own, whose key the network holds for the owner's account. That key signs as
the provider; the account's own key pays bonds. What is unbonded comes back to the account's address, then to credits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.funding import held_payment
from sparewatt.chain.requests.handler import CallBatch, NamedCall, RequestHandler
from sparewatt.core.errors import InvalidField
from sparewatt.evm.contract_abi import Contract
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.meta_transactions import DepositBond, Register, SetStatus, UnbondBond, Withdraw
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestRow, NewChainRequest
from sparewatt.store.providers import ProviderStatus
from sparewatt.store.request_params import ChainRequestKind, RegisterParams

PROVIDERS = "provider_registry"
STAKES = "stake_registry"
BOND_POLL_S = 60.0
"""Between two looks at an unbonding that is not over yet: the time may move on, if the owner unbonds more."""
READY_MARGIN_S = 2.0
"""Chain time may be behind the clock by a block or two."""


class _Bond(NamedTuple):
    """As `stake_registry.bond_of` returns it, in micro-USD."""

    free: int
    locked: int
    unbonding: int
    ready_at: int


async def provider_key(context: ChainRequestContext, row: ChainRequestRow) -> SigningKey:
    """The held key of the provider at the request's address. Raises InvalidField if it is not the account's."""
    held, custody = await context.database.providers.find_key(row.address), context.custody()
    if held is None or held.account_id != row.account_id or custody is None:
        raise InvalidField("The chain's process does not have the key of this provider.")
    try:
        return custody.open(held.account_id, held.sealed, held.node_id)
    except ValueError:
        raise InvalidField("The chain's process has another secret than the network's gateways.") from None


@dataclass(frozen=True, slots=True)
class RegisterHandler(RequestHandler):
    """Registers, and activates: so far as the chain does not have it already."""

    context: ChainRequestContext

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        context, registry = self.context, self.context.contracts[PROVIDERS]
        key, params = await provider_key(context, row), row.params
        status = ProviderStatus(await context.view(registry, "status_of", row.address))
        nonce, calls = await context.next_nonce(registry, row.address), list[NamedCall]()
        if status in {ProviderStatus.UNREGISTERED, ProviderStatus.LEFT}:
            calls.append(("register", await self._register(registry, key, params, nonce)))
            nonce, status = nonce + 1, ProviderStatus.REGISTERED
        if status is ProviderStatus.REGISTERED:
            calls.append(("activate", await _status_call(context, key, ProviderStatus.ACTIVE, nonce)))
        return CallBatch(tuple(calls))

    async def _register(self, registry: Contract, key: SigningKey, params: RegisterParams, nonce: int) -> Any:
        deadline = await self.context.deadline()
        claims = (
            *(params.country, params.zone, params.tier),
            *(params.gpu_model, params.vram_gb, params.gpu_units, params.price_hint_uusd),
            bytes.fromhex(params.metadata_hash[2:]),
        )
        message = Register(key.address, *claims, params.node_key, nonce, deadline)
        node_signature = bytes.fromhex(params.node_key_signature[2:])
        signature = self.context.sign(key, registry, message)
        args = (key.address, claims, params.node_key, node_signature, deadline, signature)
        return registry.encode_call("register_with_signature", *args)


@dataclass(frozen=True, slots=True)
class StatusHandler(RequestHandler):
    context: ChainRequestContext

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        context = self.context
        key = await provider_key(context, row)
        nonce = await context.next_nonce(context.contracts[PROVIDERS], row.address)
        return CallBatch((("status", await _status_call(context, key, ProviderStatus(row.params.status), nonce)),))


async def _status_call(context: ChainRequestContext, key: SigningKey, status: ProviderStatus, nonce: int) -> Any:
    registry, deadline = context.contracts[PROVIDERS], await context.deadline()
    signature = context.sign(key, registry, SetStatus(key.address, status.value, nonce, deadline))
    return registry.encode_call("set_status_with_signature", key.address, status.value, deadline, signature)


@dataclass(frozen=True, slots=True)
class BondHandler(RequestHandler):
    """Out of the account's address. Credits that are held for the request become tokens there first."""

    context: ChainRequestContext

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        context, stakes, provider = self.context, self.context.contracts[STAKES], row.params.provider
        key = await context.account_key(row)
        payment = await held_payment(context, row, key, spender=stakes, micro=row.micro)
        if payment.wait_s > 0:
            return payment
        nonce, deadline = await context.next_nonce(stakes, row.address), await context.deadline()
        signature = context.sign(key, stakes, DepositBond(row.address, provider, row.micro, nonce, deadline))
        args = (row.address, provider, row.micro, deadline, signature)
        return CallBatch((*payment.calls, ("bond", stakes.encode_call("deposit_bond_with_signature", *args))))


@dataclass(frozen=True, slots=True)
class UnbondHandler(RequestHandler):
    """Step 0 begins the unbonding, step 1 waits for its end and withdraws, step 2 deposits that into credits."""

    context: ChainRequestContext
    result_events: ClassVar[Sequence[str]] = (f"{STAKES}.Withdrawn",)

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        match row.step:
            case 0:
                return await self._begin(row)
            case 1:
                return await self._withdraw(row)
            case _:
                await self._deposit(row)
                return CallBatch()

    async def _begin(self, row: ChainRequestRow) -> CallBatch:
        context, stakes = self.context, self.context.contracts[STAKES]
        key, deadline = await provider_key(context, row), await context.deadline()
        nonce = await context.next_nonce(stakes, row.address)
        signature = context.sign(key, stakes, UnbondBond(row.address, row.micro, nonce, deadline))
        call = stakes.encode_call("unbond_bond_with_signature", row.address, row.micro, deadline, signature)
        return CallBatch((("unbond", call),), more_steps=True)

    async def _withdraw(self, row: ChainRequestRow) -> CallBatch:
        """All that is unbonding, and what the contract owes already: another request may have withdrawn it before."""
        context, stakes = self.context, self.context.contracts[STAKES]
        bond = _Bond(*await context.view(stakes, "bond_of", row.address))
        now = max(context.clock.unix_s(), (await context.client.head()).unix_s)
        wait_s = bond.ready_at + READY_MARGIN_S - now
        if bond.unbonding and wait_s > 0:
            return CallBatch(wait_s=min(wait_s, BOND_POLL_S), result={"ready_at": bond.ready_at})
        calls = list[NamedCall]()
        if bond.unbonding:
            calls.append(("finish", stakes.encode_call("finish_unbond_bond", row.address)))
        if bond.unbonding or await context.view(stakes, "owed", row.address):
            calls.append(("withdraw", await self._withdraw_call(row)))
        return CallBatch(tuple(calls), more_steps=True)

    async def _withdraw_call(self, row: ChainRequestRow) -> Any:
        context, stakes = self.context, self.context.contracts[STAKES]
        key, deadline = await provider_key(context, row), await context.deadline()
        nonce, receiver = await context.next_nonce(stakes, row.address), await self._account_address(row)
        signature = context.sign(key, stakes, Withdraw(row.address, receiver, nonce, deadline))
        return stakes.encode_call("withdraw_with_signature", row.address, receiver, deadline, signature)

    async def _deposit(self, row: ChainRequestRow) -> None:
        """A request of its own: the account's address signs it, and may have others under way.

        Money that came to an address of the owner's own stays there.
        """
        database, address = self.context.database, await self._account_address(row)
        owner = (await database.pockets.owners([address])).get(address)
        if owner is None or not owner.is_held:
            return
        sent = [each.tx_hash for each in await database.chain_requests.list_sent(row.id) if each.tx_hash is not None]
        micro = withdrawn(await database.chain.events_of(sent, names=self.result_events), row.address)
        if micro:
            request_id, kind = f"deposit:{row.id}", ChainRequestKind.DEPOSIT
            await database.chain_requests.insert(NewChainRequest(request_id, kind, row.account_id, address, micro))

    async def _account_address(self, row: ChainRequestRow) -> str:
        account = await self.context.database.accounts.find_account(row.account_id)
        if account is None or account.chain_address is None:
            raise InvalidField("This account has no address on the chain.")
        return account.chain_address

    def read_result(self, row: ChainRequestRow, events: Sequence[ChainEvent]) -> Mapping[str, Any]:
        return {"withdrawn_micro": withdrawn(events, row.address)}


def withdrawn(events: Sequence[ChainEvent], provider: str) -> int:
    return sum(int(event.args["amount"]) for event in events if event.args["account"] == provider)


def provider_handlers(context: ChainRequestContext) -> dict[ChainRequestKind, RequestHandler]:
    return {
        ChainRequestKind.REGISTER: RegisterHandler(context),
        ChainRequestKind.BOND: BondHandler(context),
        ChainRequestKind.UNBOND: UnbondHandler(context),
        ChainRequestKind.STATUS: StatusHandler(context),
    }
