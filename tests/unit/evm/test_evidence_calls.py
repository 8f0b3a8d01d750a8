"""That the contracts take the calls is tested on the EVM (tests/evm/test_faults.py)."""

from __future__ import annotations

from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.evidence_calls import book_demand_call, evidence_calls
from sparewatt.market.faults import MarketFault, find_faults
from sparewatt.market.match.evidence_pool import EvidencePool
from tests.market_network.by_hand import USD, HandMatch

DISPUTE, BOOK = "0x" + "d1" * 20, "0x" + "d2" * 20


def test_each_fault_is_one_call_to_its_contract() -> None:
    match = HandMatch.of({0: 2 * USD, 1: USD})
    pool = EvidencePool(match.cast.context)
    pool.add_all([match.commit_list(0), match.commit_list(0, [1]), match.commit(1), match.commit(1, 5)])
    faults = find_faults(pool, indices=dict.fromkeys(match.cast.context.weights, 3))
    assert [fault.fault for fault in faults] == [MarketFault.DOUBLE_SIGN, MarketFault.TWO_COMMITS]
    contracts = Contracts(shipped_abis(), {"dispute": DISPUTE, "dispute_book": BOOK})
    calls = evidence_calls(contracts, faults)
    assert [call.to for call in calls] == [DISPUTE, BOOK]
    assert match.commit_list(0).signature in calls[0].data
    assert match.commit(1, 5).signature in calls[1].data


def test_a_book_is_demanded_of_one_attempt() -> None:
    call = book_demand_call(Contracts(shipped_abis(), {"dispute_book": BOOK}), b"\7" * 32, 2)
    assert (call.to, call.data[4:]) == (BOOK, b"\7" * 32 + (2).to_bytes(32, "big"))
