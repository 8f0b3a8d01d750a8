"""Transactions through the outbox on a real chain: sent once, whatever happens between the decision and the block."""

from __future__ import annotations

import pytest

from sparewatt.chain.outbox import OutboxSender, enqueue
from sparewatt.core.errors import InvalidField
from sparewatt.evm.model import hex_of
from sparewatt.store.chain import OutboxState
from tests.integration.chain.echo import refusal
from tests.integration.chain.setting import DEPTH, OPERATOR, Setting


async def test_a_decision_becomes_one_transaction_and_final_at_its_depth(setting: Setting) -> None:
    business_id = await setting.enqueue(7)
    await setting.until_final(business_id)
    row = await setting.store.find(business_id)
    assert row is not None
    assert row.block_number is not None
    assert (row.nonce, row.succeeded, len(row.signed)) == (0, True, 1)
    index = await setting.store.index()
    assert index is not None
    assert index.block_number - row.block_number + 1 >= DEPTH
    assert await setting.noted_on_chain() == await setting.noted_in_index() == [7]


async def test_deciding_the_same_twice_sends_once_and_another_call_by_its_name_is_refused(setting: Setting) -> None:
    await setting.enqueue(1, business_id="payout:1")
    await setting.enqueue(1, business_id="payout:1")
    with pytest.raises(InvalidField, match="decided before"):
        await setting.enqueue(2, business_id="payout:1")
    await setting.until_final("payout:1")
    await setting.enqueue(1, business_id="payout:1")
    await setting.round()
    assert await setting.noted_on_chain() == [1]


async def test_many_decisions_of_one_key_are_all_sent_in_order(setting: Setting) -> None:
    ids = [await setting.enqueue(number) for number in range(40)]
    await setting.until_final(*ids)
    assert await setting.noted_on_chain() == await setting.noted_in_index() == list(range(40))


async def test_what_a_contract_refuses_ends_with_its_reason_and_uses_no_nonce(setting: Setting) -> None:
    call = refusal(setting.contracts["refuser"].address, "NOT_YET")
    await enqueue(setting.store, call, business_id="refused", sender=OPERATOR.address)
    after = await setting.enqueue(5)
    await setting.until_final(after)

    async def is_refused() -> bool:
        row = await setting.store.find("refused")
        return row is not None and row.state is OutboxState.REFUSED

    await setting.until(is_refused, "the refusal is not an answer yet")
    row = await setting.store.find("refused")
    assert row is not None
    assert (row.reason, row.nonce) == ("NOT_YET", None)


async def test_a_transaction_that_reverts_in_its_block_is_told_with_the_reason(setting: Setting) -> None:
    call = refusal(setting.contracts["refuser"].address, "TOO_LATE")
    fixed = type(call)(call.to, call.data, gas_limit=100_000)  # no estimate: it goes to the chain and fails there
    await enqueue(setting.store, fixed, business_id="reverts", sender=OPERATOR.address)

    async def has_reverted() -> bool:
        row = await setting.store.find("reverts")
        return row is not None and row.state is OutboxState.REVERTED

    await setting.until(has_reverted, "it did not revert")
    row = await setting.store.find("reverts")
    assert row is not None
    assert row.reason == "TOO_LATE"


async def test_a_dropped_transaction_is_sent_again(setting: Setting) -> None:
    await setting.client.request("evm_setAutomine", False)
    business_id = await setting.enqueue(3)
    await setting.sender.step()
    row = await setting.store.find(business_id)
    assert row is not None
    await setting.client.request("anvil_dropTransaction", "0x" + row.signed[0].tx_hash.hex())
    assert not await setting.client.has_transaction(row.signed[0].tx_hash)
    await setting.until_final(business_id)
    assert await setting.noted_on_chain() == [3]


async def test_a_transaction_that_pays_too_little_is_replaced_under_its_nonce(setting: Setting) -> None:
    await setting.client.request("evm_setAutomine", False)
    business_id = await setting.enqueue(4)
    await setting.sender.step()
    await setting.client.request("anvil_setBalance", OPERATOR.address, hex(10**21))
    await setting.client.request("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    await setting.client.request("evm_mine")
    await setting.until_final(business_id)
    row = await setting.store.find(business_id)
    assert row is not None
    assert len(row.signed) > 1
    assert row.nonce == 0
    assert await setting.noted_on_chain() == [4]


@pytest.mark.parametrize("is_stored", [True, False], ids=["gas limit stored", "gas limit not stored"])
async def test_a_pending_call_that_would_revert_by_now_is_replaced_and_frees_its_nonce(
    setting: Setting, *, is_stored: bool
) -> None:
    """Its fee rises at the gas limit that it was signed with: an estimate would be refused by the contract."""
    await setting.client.request("evm_setAutomine", False)
    business_id = await setting.enqueue(8)
    await setting.sender.step()
    code = {name: hex_of(await setting.client.code(setting.contracts[name].address)) for name in ("echo", "refuser")}
    await setting.client.request("anvil_setCode", setting.echo, code["refuser"])
    if not is_stored:
        await setting.execute("UPDATE chain_outbox SET gas_limit = NULL")
    await setting.client.request("anvil_setBalance", OPERATOR.address, hex(10**21))
    await setting.client.request("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    await setting.client.request("evm_mine")

    async def has_reverted() -> bool:
        row = await setting.store.find(business_id)
        return row is not None and row.state is OutboxState.REVERTED

    await setting.until(has_reverted, "it is not mined")
    row = await setting.store.find(business_id)
    assert row is not None
    assert (row.nonce, len(row.signed) > 1) == (0, True)
    await setting.client.request("anvil_setCode", setting.echo, code["echo"])
    await setting.until_final(await setting.enqueue(9))
    assert await setting.noted_on_chain() == [9]


async def test_a_nonce_that_another_took_is_given_up_for_the_next(setting: Setting) -> None:
    """The key was used elsewhere: none of our signed forms can be mined, so a new one is safe."""
    await setting.client.request("evm_setAutomine", False)
    business_id = await setting.enqueue(6)
    await setting.sender.step()
    row = await setting.store.find(business_id)
    assert row is not None
    await setting.client.request("anvil_dropTransaction", "0x" + row.signed[0].tx_hash.hex())
    await setting.client.request("anvil_setNonce", OPERATOR.address, "0x1")
    await setting.until_final(business_id)
    again = await setting.store.find(business_id)
    assert again is not None
    assert (again.nonce, len(again.signed)) == (1, 2)
    assert await setting.noted_on_chain() == [6]


async def test_two_senders_with_one_key_send_each_decision_once(setting: Setting) -> None:
    import asyncio

    from sparewatt.chain.signer import TransactionSigner

    other = OutboxSender(
        setting.client, setting.store, TransactionSigner([OPERATOR]), chain_id=setting.record.chain_id, depth=DEPTH
    )
    ids = [await setting.enqueue(number) for number in range(20)]
    for _ in range(4):
        await asyncio.gather(setting.sender.step(), other.step())
    await setting.until_final(*ids)
    assert sorted(await setting.noted_on_chain()) == list(range(20))
