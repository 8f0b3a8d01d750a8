"""The replies of `/v1/leases` out of stored orders and the market's records. Pure."""

from __future__ import annotations

import json

from sparewatt.api.leases.money_replies import write_ending, write_money
from sparewatt.api.leases.uptime_replies import write_uptime
from sparewatt.api.market.replies import ORDER_STATES, order_reply, usd
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.api.lease_uptime import LeaseUptimeCredit
from sparewatt.protocol.api.leases import (
    Lease,
    LeaseChanged,
    LeaseCreated,
    LeaseDetails,
    LeasePhase,
    LeaseRequestInfo,
)
from sparewatt.protocol.contracts.lease_content import content_hash_of, read_content
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.lease_orders import LeaseOrderRow, LeaseSpec

MIB_PER_GB = 10**9 / 2**20


def phase_of(view: ChainView | None, row: LeaseOrderRow) -> LeasePhase:
    """By the index where it has the order; an order of which it has not read yet is open."""
    order = None if view is None or row.order_id is None else view.latest.orders.get(row.order_id)
    if order is not None:
        return ORDER_STATES[order.state]
    if row.state is ChainRequestState.FAILED:
        return "failed"
    return "sending" if row.order_id is None else "open"


def write_lease(
    view: ChainView | None, row: LeaseOrderRow, *, unix_s: float, credit: LeaseUptimeCredit | None = None
) -> Lease:
    """`view`: None while the market cannot be read. `credit`: what was ruled on its uptime."""
    order = None if view is None or row.order_id is None else view.latest.orders.get(row.order_id)
    spec, terms = row.specification, None if row.params is None else row.params.terms
    return Lease(
        id=row.lease_id,
        name=row.name,
        order_id=row.order_id,
        phase=phase_of(view, row),
        problem=row.reason if row.state is ChainRequestState.FAILED else None,
        created_at=row.created_unix_s,
        image=row.image,
        gpus=spec.gpus,
        cpus=spec.cpu_milli / 1_000,
        memory_gb=round(spec.memory_mib / MIB_PER_GB, 2),
        disk_gb=round(spec.disk_mib / MIB_PER_GB, 2),
        secrets=list(row.secrets),
        duration_s=0 if terms is None else terms.duration_s,
        max_hourly_usd=usd(0 if terms is None else terms.max_price_uusd),
        deposit_usd=usd(row.deposit_micro),
        spec_hash=row.spec_hash,
        order=None if view is None or order is None else order_reply(view, order),
        max_spend_usd=None if row.max_spend_micro is None else usd(row.max_spend_micro),
        money=None if view is None or order is None else write_money(view, order, row.lease_id, unix_s=unix_s),
        ending=None if view is None or order is None else write_ending(view, order),
        uptime=None if view is None or order is None else write_uptime(view, order, unix_s=unix_s, credit=credit),
    )


def write_details(
    view: ChainView | None,
    row: LeaseOrderRow,
    *,
    running: LeaseSpec | None = None,
    missing_secrets: list[str],
    unix_s: float,
    credit: LeaseUptimeCredit | None = None,
) -> LeaseDetails:
    """`running`: what runs, where it is known and was updated; else what was ordered."""
    lease = write_lease(view, row, unix_s=unix_s, credit=credit)
    content = (running.content if running is not None else row.content) or "{}"
    fields = {name: getattr(lease, name) for name in lease.__struct_fields__}
    if running is not None:
        fields |= {"image": read_content(content).image, "spec_hash": running.spec_hash}
    return LeaseDetails(
        **fields,
        content=json.loads(content),
        content_hash=f"0x{content_hash_of(content).hex()}",
        missing_secrets=missing_secrets,
    )


def write_created(
    view: ChainView | None,
    rows: list[LeaseOrderRow],
    *,
    reference: str,
    is_new: bool,
    notes: list[str],
    unix_s: float,
) -> LeaseCreated:
    leases = [write_lease(view, row, unix_s=unix_s) for row in rows]
    return LeaseCreated(
        id=reference,
        name=rows[0].name,
        created=is_new,
        max_hourly_usd=leases[0].max_hourly_usd,
        total_usd=usd(sum(row.deposit_micro for row in rows)),
        leases=leases,
        notes=notes,
    )


def write_request(request: ChainRequestRow) -> LeaseRequestInfo:
    return LeaseRequestInfo(
        id=request.id, kind=request.kind.value, state=request.state.value, reason=request.reason, tx=request.tx
    )


def write_changed(
    view: ChainView | None, row: LeaseOrderRow, request: ChainRequestRow, *, unix_s: float
) -> LeaseChanged:
    return LeaseChanged(request=write_request(request), lease=write_lease(view, row, unix_s=unix_s))
