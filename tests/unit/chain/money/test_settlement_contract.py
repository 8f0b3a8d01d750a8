"""A claim as the settlement contract reads it."""

from __future__ import annotations

from eth_abi.abi import decode

from sparewatt.chain.money.settlement_contract import claim_call
from sparewatt.core.ids import AccountId
from sparewatt.evm.contract_abi import AbiEntry, AbiParam, Contract
from sparewatt.ledger.payouts import PayoutLeafProof
from sparewatt.store.payouts import CREDIT_POOL_ID, PayoutLeafRow

ADDRESS, ACCOUNT = "0x" + "11" * 20, "0x" + "22" * 20
ENTRY = (AbiParam(type="address"), AbiParam(type="uint256"), AbiParam(type="uint256"))
CLAIM = AbiEntry(
    type="function",
    name="claim",
    inputs=(
        AbiParam(type="uint256"),
        AbiParam(type="uint256"),
        AbiParam(type="tuple", components=ENTRY),
        AbiParam(type="uint256"),
        AbiParam(type="bytes32[]"),
    ),
)
PROOF = PayoutLeafProof(2, PayoutLeafRow(ACCOUNT, AccountId("acc_1"), 300, 7), index=4, path=(b"\x05" * 32,))


def test_a_claim_carries_the_leaf_and_its_proof() -> None:
    call = claim_call(Contract("settlement", ADDRESS, (CLAIM,)), PROOF)
    assert call.to == ADDRESS
    types = ["uint256", "uint256", "(address,uint256,uint256)", "uint256", "bytes32[]"]
    assert decode(types, call.data[4:]) == (CREDIT_POOL_ID, 2, (ACCOUNT, 300, 7), 4, (b"\x05" * 32,))
