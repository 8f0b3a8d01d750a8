"""Who may make a provider of a node, and what each act asks of the chain."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sparewatt.core.errors import (
    ChainUnavailable,
    ContractsOutdated,
    IdReused,
    InsufficientCredits,
    InvalidField,
    LeasesOff,
    NoChain,
    NotOwner,
    ProviderNotFound,
    RateLimited,
    UnprocessableContent,
)
from sparewatt.core.ids import NodeId
from sparewatt.core.money import Nano
from sparewatt.evm.contract_abi import Contract, shipped_abis
from sparewatt.leasing.claims import claims_of
from sparewatt.leasing.node_keys import is_signed_by
from sparewatt.leasing.provider_service import is_settled
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.providers import BondAmounts, ProviderRow, ProviderState, ProviderStatus
from sparewatt.store.request_params import ChainRequestKind, ProviderParams, RegisterParams
from tests.unit.leasing.memory_market import NODE, OFFERED, OTHER, OWNER, REGISTRY, Market

DOLLAR = Nano(10**9)
WALLET = "0x" + "7" * 40


@pytest.fixture
def market() -> Market:
    return Market()


async def registered(market: Market, *, credits_usd: int = 100) -> str:
    """The address of the node's provider."""
    market.database.holds.free_nano = credits_usd * DOLLAR
    return (await market.service().register(OWNER, NODE)).provider.row.address


# registering


async def test_a_node_is_registered_under_an_address_of_its_own(market: Market) -> None:
    change = await market.service().register(OWNER, NODE)
    provider = change.provider
    assert (change.is_new, provider.row.node_id, provider.row.is_held) == (True, NODE, True)
    assert provider.state.status is ProviderStatus.ACTIVE
    (request,) = market.database.sent.rows.values()
    assert (request.kind, request.address, request.account_id) == (
        ChainRequestKind.REGISTER,
        provider.row.address,
        OWNER,
    )
    held = await market.service().database.providers.find_key(provider.row.address)
    assert held is not None
    assert market.service().custody.open(OWNER, held.sealed, NODE).address == provider.row.address


async def test_what_is_registered_is_what_the_node_reports_and_has_signed(market: Market) -> None:
    address = await registered(market)
    (request,) = market.database.sent.rows.values()
    params, claims = request.params, claims_of(OFFERED)
    assert isinstance(params, RegisterParams)
    assert (params.node_key, params.country, params.gpu_model) == (NODE, claims.country, claims.gpu_model)
    question = NodeKeyRequest(31337, REGISTRY, address)
    assert market.asked == [question]
    assert is_signed_by(NODE, question, bytes.fromhex(params.node_key_signature[2:]))


async def test_a_second_time_changes_nothing(market: Market) -> None:
    address = await registered(market)
    again = await market.service().register(OWNER, NODE)
    assert (again.is_new, again.request, again.provider.row.address) == (False, None, address)
    assert len(market.asked) == 1


async def test_who_has_left_may_return_under_the_same_address(market: Market) -> None:
    address = await registered(market)
    await market.service().set_status(OWNER, address, ProviderStatus.LEFT, reference="s")
    again = await market.service().register(OWNER, NODE)
    assert (again.is_new, again.provider.row.address) == (True, address)
    assert sorted(row.id for row in market.database.sent.rows.values() if row.kind is ChainRequestKind.REGISTER) == [
        f"register:{address}:0",
        f"register:{address}:1",
    ]


async def test_only_the_owner_registers_a_node(market: Market) -> None:
    for stranger, node_id in ((OTHER, NODE), (OWNER, NodeId("0x" + "9" * 40))):
        with pytest.raises(NotOwner):
            await market.service().register(stranger, node_id)
        with pytest.raises(NotOwner):
            await market.service().wallet_transaction(stranger, node_id, wallet=WALLET)
    assert market.asked == []
    assert not market.database.held_providers.rows


@pytest.mark.parametrize("specs", [None, msgspec.structs.replace(OFFERED, leases=False)])
async def test_a_node_that_offers_no_leases_is_not_even_asked(market: Market, specs: object) -> None:
    market.specs = specs  # type: ignore[assignment]
    with pytest.raises(LeasesOff, match="sparewatt node leases on"):
        await market.service().register(OWNER, NODE)
    assert market.asked == []


async def test_without_a_chain_nothing_is_made(market: Market) -> None:
    market.database.index_of.is_up = False
    with pytest.raises(ChainUnavailable):
        await market.service().register(OWNER, NODE)
    assert not market.database.held_providers.rows


async def test_what_the_chain_refuses_is_told(market: Market) -> None:
    market.database.sent.refusal = "the contract says KEY_TAKEN."
    with pytest.raises(UnprocessableContent, match="KEY_TAKEN"):
        await market.service().register(OWNER, NODE)


async def test_a_slow_chain_is_told_and_the_request_stays(market: Market) -> None:
    market.database.sent.is_stuck = True
    with pytest.raises(ChainUnavailable, match="goes on by itself"):
        await market.service().register(OWNER, NODE)
    (request,) = market.database.sent.rows.values()
    assert request.state is ChainRequestState.ASKED


# wallets


async def test_a_wallets_transaction_carries_the_nodes_signature_for_that_wallet(market: Market) -> None:
    made = await market.service().wallet_transaction(OWNER, NODE, wallet=WALLET.upper().replace("X", "x"))
    assert (made.chain_id, made.to) == (31337, REGISTRY)
    assert market.asked == [NodeKeyRequest(31337, REGISTRY, WALLET)]
    claims = (*msgspec.structs.astuple(claims_of(OFFERED)), bytes(32))
    signature = made.data[-96:-31]
    assert is_signed_by(NODE, market.asked[0], signature)
    registry = Contract("provider_registry", REGISTRY, shipped_abis()["provider_registry"].abi)
    assert made.data == registry.encode_call("register", claims, NODE, signature).data
    assert not market.database.held_providers.rows
    assert not market.database.sent.rows


async def test_a_node_that_serves_a_provider_signs_for_no_wallet(market: Market) -> None:
    await registered(market)
    with pytest.raises(UnprocessableContent, match="one for ever"):
        await market.service().wallet_transaction(OWNER, NODE, wallet=WALLET)
    assert len(market.asked) == 1


async def test_a_wallets_provider_is_its_owners_and_acts_by_itself(market: Market) -> None:
    service, providers = market.service(), market.database.held_providers
    providers.rows[NODE] = ProviderRow(WALLET, NODE, OWNER, is_held=False)
    providers.known[WALLET] = ProviderState(ProviderStatus.ACTIVE, BondAmounts(free=5_000_000))
    market.database.holds.free_nano = 10 * DOLLAR
    assert not (await service.register(OWNER, NODE)).is_new
    assert (await service.bond(OWNER, NODE, DOLLAR, reference="b")).provider.state.bond.free == 6_000_000
    with pytest.raises(UnprocessableContent, match="your wallet"):
        await service.unbond(OWNER, NODE, DOLLAR, reference="u")
    with pytest.raises(UnprocessableContent, match="your wallet"):
        await service.set_status(OWNER, NODE, ProviderStatus.MAINTENANCE, reference="s")


# bonds


async def test_a_bond_holds_the_credits_that_pay_it(market: Market) -> None:
    address = await registered(market)
    change = await market.service().bond(OWNER, NODE, Nano(10 * DOLLAR), reference="b")
    assert change.provider.state.bond == BondAmounts(free=10_000_000)
    assert market.database.holds.held == {f"bond:{OWNER}:b": (10 * DOLLAR, True)}
    row = market.database.sent.rows[f"bond:{OWNER}:b"]
    assert (row.address, row.micro, row.params) == ("0x" + "d" * 40, 10_000_000, ProviderParams(provider=address))


async def test_free_credits_pay_only_where_money_is_test_money(market: Market) -> None:
    await registered(market)
    market.database.sent.is_stuck = True  # until a payout root is ripe
    change = await market.service(is_test_money=False).bond(OWNER, NODE, DOLLAR, reference="b")
    assert market.database.holds.held == {f"bond:{OWNER}:b": (DOLLAR, False)}
    assert change.request is not None
    assert change.request.state is ChainRequestState.ASKED


async def test_more_than_the_credits_is_refused_and_asks_nothing(market: Market) -> None:
    await registered(market, credits_usd=5)
    with pytest.raises(InsufficientCredits, match=r"\$5.000001"):
        await market.service().bond(OWNER, NODE, Nano(5 * DOLLAR + 1_000), reference="b")
    assert f"bond:{OWNER}:b" not in market.database.sent.rows


async def test_what_the_token_cannot_hold_is_refused(market: Market) -> None:
    await registered(market)
    with pytest.raises(InvalidField, match="six decimals"):
        await market.service().bond(OWNER, NODE, Nano(1_001), reference="b")
    with pytest.raises(InvalidField, match="six decimals"):
        await market.service().unbond(OWNER, NODE, Nano(999), reference="u")


async def test_a_bond_out_of_earnings_claims_them_and_holds_nothing(market: Market) -> None:
    await registered(market, credits_usd=0)
    await market.service().bond(OWNER, NODE, DOLLAR, reference="b", source="earnings")
    assert (market.claimed, market.database.holds.held) == ([OWNER], {})


async def test_the_same_id_holds_and_bonds_once(market: Market) -> None:
    await registered(market)
    for is_new in (True, False):
        change = await market.service().bond(OWNER, NODE, DOLLAR, reference="b")
        assert (change.is_new, change.provider.state.bond.free) == (is_new, 1_000_000)
    with pytest.raises(IdReused):
        await market.service().bond(OWNER, NODE, Nano(2 * DOLLAR), reference="b")
    assert market.database.holds.free_nano == 99 * DOLLAR


async def test_one_account_does_not_repeat_the_id_of_another(market: Market) -> None:
    address = await registered(market)
    await market.service().bond(OWNER, NODE, DOLLAR, reference="b")
    with pytest.raises(ProviderNotFound):
        await market.service().bond(OTHER, address, DOLLAR, reference="b")


async def test_an_account_with_too_much_under_way_keeps_its_credits(market: Market) -> None:
    await registered(market)
    market.database.sent.is_full = True
    with pytest.raises(RateLimited):
        await market.service().bond(OWNER, NODE, DOLLAR, reference="b")
    assert market.database.holds.free_nano == 100 * DOLLAR


async def test_a_chain_that_cannot_work_keeps_no_credits_of_a_new_bond(market: Market) -> None:
    await registered(market)
    await market.service().bond(OWNER, NODE, DOLLAR, reference="before")
    market.database.sent.trouble = "The contracts are of another release."
    for reference in ("before", "after"):
        with pytest.raises(ContractsOutdated):
            await market.service().bond(OWNER, NODE, DOLLAR, reference=reference)
    assert market.database.holds.held == {f"bond:{OWNER}:before": (DOLLAR, True)}


async def test_an_account_without_an_address_cannot_bond(market: Market) -> None:
    await registered(market)
    market.database.people.address = None
    with pytest.raises(InvalidField, match="no address"):
        await market.service().bond(OWNER, NODE, DOLLAR, reference="b")


async def test_without_a_chain_even_a_look_says_so(market: Market) -> None:
    service = replace(market.service(), has_chain=False)
    for look in (service.list_of(OWNER), service.find(OWNER, NODE), service.register(OWNER, NODE)):
        with pytest.raises(NoChain):
            await look


async def test_no_more_is_unbonded_than_is_free(market: Market) -> None:
    address = await registered(market)
    market.database.held_providers.known[address] = ProviderState(
        ProviderStatus.ACTIVE, BondAmounts(free=3_000_000, locked=9_000_000, unbonding=1_000_000)
    )
    with pytest.raises(UnprocessableContent, match=r"free bond is \$3"):
        await market.service().unbond(OWNER, NODE, Nano(3 * DOLLAR + 1_000), reference="u")
    change = await market.service().unbond(OWNER, NODE, Nano(3 * DOLLAR), reference="u")
    assert change.provider.state.bond == BondAmounts(0, 9_000_000, 4_000_000)
    again = await market.service().unbond(OWNER, NODE, Nano(3 * DOLLAR), reference="u")
    assert not again.is_new, "the same id is answered, although nothing is free any more"


@pytest.mark.parametrize("act", ["bond", "unbond", "status"])
async def test_a_provider_that_is_not_registered_does_nothing(market: Market, act: str) -> None:
    service = market.service()
    market.database.held_providers.rows[NODE] = ProviderRow(WALLET, NODE, OWNER, is_held=True)
    acts = {
        "bond": lambda: service.bond(OWNER, NODE, DOLLAR, reference="r"),
        "unbond": lambda: service.unbond(OWNER, NODE, DOLLAR, reference="r"),
        "status": lambda: service.set_status(OWNER, NODE, ProviderStatus.ACTIVE, reference="r"),
    }
    with pytest.raises(UnprocessableContent, match="not registered"):
        await acts[act]()
    assert not market.database.sent.rows


# status and reads


async def test_a_status_that_it_has_already_asks_nothing(market: Market) -> None:
    address = await registered(market)
    assert not (await market.service().set_status(OWNER, address, ProviderStatus.ACTIVE, reference="s")).is_new
    paused = await market.service().set_status(OWNER, address, ProviderStatus.MAINTENANCE, reference="s")
    assert (paused.is_new, paused.provider.state.status) == (True, ProviderStatus.MAINTENANCE)


async def test_a_provider_is_found_by_its_address_and_its_node(market: Market) -> None:
    address, service = await registered(market), market.service()
    for wanted in (address, address.upper().replace("X", "x"), NODE):
        assert (await service.find(OWNER, wanted)).row.address == address
    assert (await service.find(None, address)).row.account_id == OWNER
    assert [each.row.address for each in await service.list_of(OWNER)] == [address]
    assert await service.list_of(OTHER) == []
    for account, wanted in ((OTHER, address), (OWNER, WALLET), (OWNER, "nonsense")):
        with pytest.raises(ProviderNotFound):
            await service.find(account, wanted)


def test_an_unbonding_is_settled_when_it_has_begun() -> None:
    row = ChainRequestRow("u", ChainRequestKind.UNBOND, OWNER, WALLET, 1, ProviderParams(provider=WALLET))
    assert not is_settled(row)
    assert not is_settled(replace(row, step=1)), "its end is not known yet"
    assert is_settled(replace(row, step=1, result={"ready_at": 7}))
    assert is_settled(replace(row, step=2))
    assert is_settled(replace(row, state=ChainRequestState.FAILED))
    assert not is_settled(replace(row, kind=ChainRequestKind.BOND, step=1))
