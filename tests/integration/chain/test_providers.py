"""A provider is a node: registered, bonded and unbonded on the real contracts, by its owner and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparewatt.chain.requests.providers import PROVIDERS
from sparewatt.core.errors import (
    IdReused,
    InsufficientCredits,
    NotOwner,
    ProviderNotFound,
    SparewattError,
    UnprocessableContent,
)
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.evm.model import ContractCall
from sparewatt.leasing.provider_service import ProviderChange
from sparewatt.localnet.anvil import Anvil
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState, NewChainRequest
from sparewatt.store.providers import BondAmounts, ProviderStatus
from sparewatt.store.request_params import ChainRequestKind, ProviderParams, RegisterParams, StatusParams
from tests.integration.chain.offering import DOLLAR, Offering, node_key
from tests.integration.chain.settling import OWNER, USER, open_settling

WALLET = SigningKey(bytes(31) + b"\x77")
MICRO = 1_000_000


@pytest.fixture
async def offering(anvil: Anvil, dsn: str, tmp_path: Path) -> AsyncIterator[Offering]:
    async with open_settling(anvil.url, dsn, tmp_path / "chain", test_money=True) as settling:
        yield Offering(settling)


async def finished(offering: Offering, request_id: str) -> ChainRequestRow:
    """The request once it has ended, also if no gateway waits for it."""
    store = offering.settling.database.chain_requests

    async def has_ended() -> bool:
        row = await store.find(request_id)
        return row is not None and row.state in {ChainRequestState.DONE, ChainRequestState.FAILED}

    await offering.until(has_ended, f"{request_id} has no end")
    row = await store.find(request_id)
    assert row is not None
    return row


async def test_a_bond_goes_out_of_free_credits_and_comes_back(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(OWNER, Nano(20 * DOLLAR))
    registered = await offering.done(service.register(OWNER, node_id))
    assert registered.is_new
    assert registered.provider.state.status is ProviderStatus.ACTIVE

    bonded = await offering.done(service.bond(OWNER, node_id, Nano(12 * DOLLAR), reference="b"))
    assert bonded.provider.state.bond == BondAmounts(free=12 * MICRO)
    assert await offering.free_credits(OWNER) == 8 * DOLLAR

    address = registered.provider.row.address
    begun = await offering.done(service.unbond(OWNER, address, Nano(5 * DOLLAR), reference="u"))
    assert begun.provider.state.bond == BondAmounts(free=7 * MICRO, unbonding=5 * MICRO)
    head = await offering.settling.client.head()
    assert begun.provider.state.unbonded_unix_s in range(head.unix_s + 3_500, head.unix_s + 3_601)

    async def is_waiting() -> bool:
        row = await offering.settling.database.chain_requests.find(f"unbond:{OWNER}:u")
        return row is not None and row.step == 1 and await is_unchanged()

    async def is_unchanged() -> bool:
        return (await service.find(OWNER, node_id)).state.bond.unbonding == 5 * MICRO

    await offering.until(is_waiting, "the unbonding does not wait")
    await offering.settling.client.request("evm_increaseTime", 3_700)
    await offering.settling.client.request("evm_mine")
    await offering.settling.database.chain_requests.postpone(f"unbond:{OWNER}:u", seconds=0.0)

    async def is_back() -> bool:
        return await offering.free_credits(OWNER) == 13 * DOLLAR

    await offering.until(is_back, "the bond did not come back")
    provider = await service.find(OWNER, node_id)
    assert (provider.state.bond, provider.state.unbonded_unix_s) == (BondAmounts(free=7 * MICRO), None)


async def test_nobody_acts_for_a_node_of_another_account(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(USER, Nano(20 * DOLLAR))
    with pytest.raises(NotOwner):
        await service.register(USER, node_id)
    with pytest.raises(NotOwner):
        await service.wallet_transaction(USER, node_id, wallet=WALLET.address)
    assert offering.asked == []
    provider = (await offering.done(service.register(OWNER, node_id))).provider.row.address
    with pytest.raises(ProviderNotFound):
        await service.bond(USER, provider, DOLLAR, reference="b")
    with pytest.raises(ProviderNotFound):
        await service.unbond(USER, provider, DOLLAR, reference="u")
    with pytest.raises(ProviderNotFound):
        await service.set_status(USER, provider, ProviderStatus.LEFT, reference="s")
    assert await service.list_of(USER) == []

    # A row in the database with another account's name does not open the key.
    params = StatusParams(provider=provider, status=ProviderStatus.LEFT.value)
    forged = NewChainRequest("forged", ChainRequestKind.STATUS, USER, provider, params=params)
    assert await offering.settling.database.chain_requests.insert(forged)
    row = await finished(offering, "forged")
    assert (row.state, row.reason) == (
        ChainRequestState.FAILED,
        "The chain's process does not have the key of this provider.",
    )
    assert (await service.find(OWNER, provider)).state.status is ProviderStatus.ACTIVE


async def test_a_bond_is_paid_by_credits_that_are_there(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(OWNER, Nano(3 * DOLLAR))
    provider = (await offering.done(service.register(OWNER, node_id))).provider.row.address
    with pytest.raises(InsufficientCredits):
        await service.bond(OWNER, provider, Nano(3 * DOLLAR + 1_000), reference="too much")
    with pytest.raises(SparewattError, match="six decimals"):
        await service.bond(OWNER, provider, Nano(1), reference="dust")
    assert await offering.settling.database.chain_requests.find(f"bond:{OWNER}:too much") is None

    # Without a hold the faucet gives nothing: neither for earnings that are not there, nor for a forged request.
    with pytest.raises(UnprocessableContent, match="neither held"):
        await offering.done(service.bond(OWNER, provider, DOLLAR, reference="none", source="earnings"))
    address = offering.settling.addresses[OWNER]
    params = ProviderParams(provider=provider)
    forged = NewChainRequest("forged", ChainRequestKind.BOND, OWNER, address, MICRO, params)
    assert await offering.settling.database.chain_requests.insert(forged)
    assert (await finished(offering, "forged")).state is ChainRequestState.FAILED
    assert await offering.free_credits(OWNER) == 3 * DOLLAR

    # Two at once share what there is: one of them is refused.
    bonds = [service.bond(OWNER, provider, Nano(2 * DOLLAR), reference=name) for name in ("one", "two")]
    results = await offering.done(_collected(*bonds))
    assert sorted(isinstance(result, InsufficientCredits) for result in results) == [False, True]
    assert (await service.find(OWNER, provider)).state.bond == BondAmounts(free=2 * MICRO)

    with pytest.raises(UnprocessableContent, match=r"free bond is \$2"):
        await service.unbond(OWNER, provider, Nano(2 * DOLLAR + 1_000), reference="u")


async def _collected(*asking: Coroutine[Any, Any, ProviderChange]) -> list[ProviderChange | BaseException]:
    return await asyncio.gather(*asking, return_exceptions=True)


async def test_two_clicks_are_one_request(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(OWNER, Nano(20 * DOLLAR))
    twice = await offering.all_done(service.register(OWNER, node_id), service.register(OWNER, node_id))
    assert sorted(change.is_new for change in twice) == [False, True]
    assert not (await offering.done(service.register(OWNER, node_id))).is_new

    bonds = [service.bond(OWNER, node_id, Nano(2 * DOLLAR), reference="b") for _ in range(2)]
    assert sorted(change.is_new for change in await offering.all_done(*bonds)) == [False, True]
    assert not (await offering.done(service.bond(OWNER, node_id, Nano(2 * DOLLAR), reference="b"))).is_new
    with pytest.raises(IdReused):
        await service.bond(OWNER, node_id, Nano(3 * DOLLAR), reference="b")
    assert (await service.find(OWNER, node_id)).state.bond == BondAmounts(free=2 * MICRO)
    assert await offering.free_credits(OWNER) == 18 * DOLLAR


async def test_a_gateway_may_die_between_request_and_event(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(OWNER, Nano(20 * DOLLAR))
    register = asyncio.ensure_future(service.register(OWNER, node_id))
    await killed(offering, register, f"register:{await address_of(offering, node_id)}:0")
    bond = asyncio.ensure_future(service.bond(OWNER, node_id, Nano(4 * DOLLAR), reference="b"))
    await killed(offering, bond, f"bond:{OWNER}:b")
    again = await offering.done(service.register(OWNER, node_id))
    assert (again.is_new, again.provider.state.bond) == (False, BondAmounts(free=4 * MICRO))
    assert await offering.free_credits(OWNER) == 16 * DOLLAR


async def killed(offering: Offering, gateway: asyncio.Future[ProviderChange], request_id: str) -> None:
    """The gateway goes away as soon as the request is stored; the chain's process finishes it."""
    for _ in range(200):
        if await offering.settling.database.chain_requests.find(request_id) is not None:
            break
        await asyncio.sleep(0.01)
    gateway.cancel()
    await asyncio.gather(gateway, return_exceptions=True)
    assert (await finished(offering, request_id)).state is ChainRequestState.DONE


async def address_of(offering: Offering, node_id: NodeId) -> str:
    for _ in range(200):
        row = await offering.settling.database.providers.find_by_node(node_id)
        if row is not None:
            return row.address
        await asyncio.sleep(0.01)
    raise AssertionError("no provider was made")


async def test_a_wallet_registers_by_itself_and_is_known_by_its_node_key(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.grant(OWNER, Nano(20 * DOLLAR))
    made = await service.wallet_transaction(OWNER, node_id, wallet=WALLET.address)
    assert await service.list_of(OWNER) == []
    await offering.settling.send(ContractCall(made.to, made.data), WALLET)

    async def is_known() -> bool:
        return len(await service.list_of(OWNER)) == 1

    await offering.until(is_known, "the wallet's provider is not seen")
    (provider,) = await service.list_of(OWNER)
    assert (provider.row.address, provider.row.is_held) == (WALLET.address, False)
    assert provider.state.status is ProviderStatus.REGISTERED
    assert (await service.find(OWNER, WALLET.address)).row == provider.row

    # The account's credits may bond it. Its key is the wallet's, so all else is.
    assert not (await service.register(OWNER, node_id)).is_new
    bonded = await offering.done(service.bond(OWNER, node_id, DOLLAR, reference="b"))
    assert bonded.provider.state.bond == BondAmounts(free=MICRO)
    for refused in (
        service.unbond(OWNER, node_id, DOLLAR, reference="u"),
        service.set_status(OWNER, node_id, ProviderStatus.ACTIVE, reference="s"),
        service.wallet_transaction(OWNER, node_id, wallet="0x" + "12" * 20),
    ):
        with pytest.raises(UnprocessableContent):
            await refused


async def test_a_node_key_serves_one_provider_and_only_by_its_own_signature(offering: Offering) -> None:
    service, database = offering.service, offering.settling.database
    first, second = await offering.join(OWNER, 1), await offering.join(OWNER, 2)
    taken = await offering.done(service.register(OWNER, first))
    key = offering.service.custody.make(OWNER, second)
    await database.providers.ensure(second, account_id=OWNER, address=key.address, sealed=key.sealed)
    registry = offering.settling.contracts[PROVIDERS].address
    request = NodeKeyRequest(offering.settling.chain_id, registry, key.address)
    of_taken = sign_node_key(request, key=node_key(1), offers_leases=True, wallet=None).signature
    of_stranger = sign_node_key(request, key=node_key(9), offers_leases=True, wallet=None).signature
    for number, (signature, signer, why) in enumerate(
        [(of_taken, first, "KEY_TAKEN"), (of_stranger, second, "NOT_SIGNED_BY_NODE_KEY")]
    ):
        params = RegisterParams(
            node_id=second,
            country=0,
            zone=0,
            tier=0,
            gpu_model=0,
            vram_gb=0,
            gpu_units=0,
            price_hint_uusd=1,
            metadata_hash="0x" + bytes(32).hex(),
            node_key=signer,
            node_key_signature=f"0x{signature}",
        )
        forged = NewChainRequest(f"forged:{number}", ChainRequestKind.REGISTER, OWNER, key.address, params=params)
        assert await database.chain_requests.insert(forged)
        row = await finished(offering, forged.id)
        assert row.state is ChainRequestState.FAILED
        assert why in (row.reason or "")
    assert (await service.find(OWNER, second)).state.status is ProviderStatus.UNREGISTERED
    assert (await service.find(OWNER, first)).row == taken.provider.row


async def test_a_provider_pauses_leaves_and_returns(offering: Offering) -> None:
    service, node_id = offering.service, await offering.join(OWNER, 1)
    await offering.done(service.register(OWNER, node_id))
    for number, status in enumerate([ProviderStatus.MAINTENANCE, ProviderStatus.ACTIVE, ProviderStatus.LEFT]):
        changed = await offering.done(service.set_status(OWNER, node_id, status, reference=str(number)))
        assert (changed.is_new, changed.provider.state.status) == (True, status)
    assert not (await service.set_status(OWNER, node_id, ProviderStatus.LEFT, reference="again")).is_new
    with pytest.raises(UnprocessableContent, match="WRONG_STATUS"):
        await offering.done(service.set_status(OWNER, node_id, ProviderStatus.MAINTENANCE, reference="m"))
    back = await offering.done(service.register(OWNER, node_id))
    assert (back.is_new, back.provider.state.status) == (True, ProviderStatus.ACTIVE)
