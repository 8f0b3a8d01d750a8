"""Proven faults as contract calls that anyone may send: the sender gets a tenth of what the culprit loses."""

from __future__ import annotations

from collections.abc import Iterable

from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.market.faults import DISPUTE_BOOK, ProvenFault


def evidence_calls(contracts: Contracts, faults: Iterable[ProvenFault]) -> list[ContractCall]:
    """One call per fault, in the same order. A fault that was punished before makes its call revert."""
    return [contracts[each.contract].encode_call(each.function, *each.arguments) for each in faults]


def book_demand_call(contracts: Contracts, order_id: bytes, attempt: int) -> ContractCall:
    """Asks for the leaves of an accepted task, for a bond: whoever signed it and stays silent is slashed."""
    return contracts[DISPUTE_BOOK].encode_call("demand_book", order_id, attempt)
