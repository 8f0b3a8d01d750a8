"""One order as a renter places it: a batch of one."""

from __future__ import annotations

from sparewatt.core.ids import AccountId
from sparewatt.leasing.lease_requests import BatchNames, LeaseRequestService, request_id
from sparewatt.protocol.contracts.match import Specification
from sparewatt.store.lease_orders import LeaseSpec
from sparewatt.store.request_params import ChainRequestKind, OrderParams

SPECIFICATION = Specification(b"\x09" * 32, 1, 1_000, 1_024, 1_024, 0, 0)


async def order_one(
    leases: LeaseRequestService, account: AccountId, asked: OrderParams, *, deposit_micro: int, reference: str
) -> str:
    """The id of its request, also if the reference was used before."""
    spec = LeaseSpec(asked.spec_hash, SPECIFICATION, "{}")
    batch = BatchNames(
        reference=reference, name=reference, asked_hash="0x" + "00" * 32, spec=spec, lease_ids=(reference,)
    )
    await leases.order_batch(account, asked, deposit_micro=deposit_micro, batch=batch)
    return request_id(ChainRequestKind.ORDER, account, reference)
