"""The table of a renter's calls, and the order's id in the events."""

from __future__ import annotations

from typing import cast

import pytest

from sparewatt.chain.contracts import shipped_artifacts
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.leases import SIGNED_CALLS, lease_handlers
from sparewatt.core.ids import AccountId
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.request_params import ChainRequestKind

HERS, OTHERS = "0x" + "ab" * 20, "0x" + "cd" * 20
ROW = ChainRequestRow("order:1", ChainRequestKind.ORDER, AccountId("acc_a"), HERS, 5)


def test_every_kind_of_a_renter_has_its_call() -> None:
    kinds = ["ORDER", "REOPEN", "CANCEL", "PAUSE", "RESUME", "CLOSE", "TOP_UP", "UPDATE"]
    assert set(SIGNED_CALLS) == {ChainRequestKind[kind] for kind in kinds}
    assert {kind for kind, call in SIGNED_CALLS.items() if call.is_paid} == {
        ChainRequestKind.ORDER,
        ChainRequestKind.TOP_UP,
    }


@pytest.mark.parametrize("kind", SIGNED_CALLS)
def test_its_function_is_in_the_compiled_contract(kind: ChainRequestKind) -> None:
    call = SIGNED_CALLS[kind]
    (entry,) = [each for each in shipped_artifacts()[call.contract].abi if each.name == call.function]
    assert [param.name for param in entry.inputs[-2:]] == ["deadline", "signature"]


def lookup(renter: str, order_id: str) -> ChainEvent:
    args = {"order_id": order_id, "renter": renter}
    return ChainEvent(1, 0, b"", b"", 0, "deployment_order", "PROVIDER_LOOKUP", args)


def test_the_result_of_an_order_is_the_id_in_the_renters_own_lookup() -> None:
    handler = lease_handlers(cast("ChainRequestContext", None))[ChainRequestKind.ORDER]
    assert handler.result_events == ("deployment_order.PROVIDER_LOOKUP",)
    assert handler.read_result(ROW, []) == {}
    assert handler.read_result(ROW, [lookup(OTHERS, "0x1")]) == {}
    assert handler.read_result(ROW, [lookup(OTHERS, "0x1"), lookup(HERS, "0x2")]) == {"order_id": "0x2"}
