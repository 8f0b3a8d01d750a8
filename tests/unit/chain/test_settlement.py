"""A claim as the settlement contract reads it."""

from __future__ import annotations

import pytest
from eth_abi.abi import decode

from sparewatt.chain.abi import AbiEntry, AbiParam, Artifact
from sparewatt.chain.contracts import Contracts
from sparewatt.chain.money.settlement_contract import SettlementClaim, claim_call
from sparewatt.core.errors import ContractsMissing

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
A_CLAIM = SettlementClaim(pool=1, epoch=2, account=ACCOUNT, earned=300, spent=0, index=4, path=[b"\x05" * 32])


def test_a_claim_carries_the_line_and_its_proof() -> None:
    call = claim_call(Contracts({"settlement": Artifact(abi=(CLAIM,))}, {"settlement": ADDRESS}), A_CLAIM)
    assert call.to == ADDRESS
    types = ["uint256", "uint256", "(address,uint256,uint256)", "uint256", "bytes32[]"]
    assert decode(types, call.data[4:]) == (1, 2, (ACCOUNT, 300, 0), 4, (b"\x05" * 32,))


def test_without_the_contract_the_lack_is_said() -> None:
    with pytest.raises(ContractsMissing, match="chain deploy"):
        claim_call(Contracts({}, {}), A_CLAIM)
