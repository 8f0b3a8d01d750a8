"""/v1/leases: a renter's orders and leases. Nobody sees or changes those of another account here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import structs

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.leases.program_replies import write_program
from sparewatt.api.leases.replies import write_changed, write_created, write_details, write_lease
from sparewatt.api.leases.uptime_replies import write_credit
from sparewatt.api.money.credits import usable_reference
from sparewatt.api.paging import PAGE_QUERY, read_cursor, read_limit, write_cursor
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.core.limits import KIB
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json, whole_number
from sparewatt.leasing.changes.secret_intake import SecretIntake
from sparewatt.leasing.orders.order_fields import LeaseOrder, read_order
from sparewatt.leasing.orders.order_service import LeaseOrderService
from sparewatt.leasing.running.programs import LeasePrograms, ProviderWord
from sparewatt.leasing.uptime_credits import UptimeCredits
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.api.lease_uptime import LeaseUptimeCredit
from sparewatt.protocol.api.leases import (
    Lease,
    LeaseActBody,
    LeaseBody,
    LeaseChanged,
    LeaseCreated,
    LeaseDetails,
    LeaseList,
    LeaseOrderBody,
    LeaseQuote,
)
from sparewatt.store.lease_orders import LeaseOrderRow

ORDER_BODY_BYTES_MAX = 128 * KIB
"""A content document has 64 KiB, and JSON may write a character with several."""
WAIT_MS_MAX = 10_000


class OlderThan(NamedTuple):
    """The cursor of a list."""

    created_unix_s: float
    id: str


@dataclass(slots=True, kw_only=True)
class LeaseEndpoints:
    orders: LeaseOrderService
    secrets: SecretIntake
    uptime_credits: UptimeCredits
    programs: LeasePrograms
    clock: Clock
    rng: Rng
    """Makes ids for requests without one."""

    @endpoint("POST /v1/leases/dry-run", access="lease", body=LeaseOrderBody)
    async def quote_lease(self, request: web.Request, _: Principal) -> LeaseQuote:
        """Show who could serve an order and what it would cost. Nothing is sent or held."""
        order, _reference = await self._read(request)
        return await self.orders.quote(order)

    @endpoint("POST /v1/leases", access="lease", body=LeaseBody, query=("wait_ms",), status=201, other_statuses=(200,))
    async def create_lease(self, request: web.Request, principal: Principal) -> Reply[LeaseCreated]:
        """Order leases out of your credits. With `wait_ms` the reply waits for the orders' ids on the chain."""
        wait_ms = whole_number(request, "wait_ms", default=0, most=WAIT_MS_MAX)
        order, given = await self._read(request)
        account, reference = principal.account_id, usable_reference(given, rng=self.rng)
        made = await self.orders.create(account, order, reference=reference)
        rows = made.rows
        if wait_ms:
            rows = tuple(await self.orders.wait_for_ids(account, reference, wait_s=wait_ms / 1_000))
        reply = write_created(
            self._view(),
            list(rows),
            reference=reference,
            is_new=made.is_new,
            notes=list(made.notes),
            unix_s=self.clock.unix_s(),
        )
        return Reply(reply, status=201 if made.is_new else 200)

    @endpoint("GET /v1/leases", access="lease", query=PAGE_QUERY)
    async def list_leases(self, request: web.Request, principal: Principal) -> LeaseList:
        """List your leases, the newest first, those that have ended included."""
        limit, after, view = read_limit(request), read_cursor(request, OlderThan), self._view()
        rows = await self.orders.list_of(principal.account_id, before=after, limit=limit + 1)
        shown = rows[:limit]
        last, ruled = shown[-1] if len(rows) > limit else None, await self._credits(shown)
        return LeaseList(
            data=[self._with_program(view, row, ruled.get(row.order_id or "")) for row in shown],
            next=None if last is None else write_cursor(OlderThan(last.created_unix_s, last.lease_id)),
        )

    @endpoint("GET /v1/leases/{lease}", access="lease")
    async def show_lease(self, request: web.Request, principal: Principal) -> LeaseDetails:
        """Show a lease of yours by its id, its order's id, or its name, with what runs."""
        view, row = self._view(), await self._find(request, principal)
        missing = await self.secrets.missing(row) if view is not None else []
        running = await self.orders.running_spec(row) if view is not None else None
        credit = (await self._credits([row])).get(row.order_id or "")
        details = write_details(
            view, row, running=running, missing_secrets=missing, unix_s=self.clock.unix_s(), credit=credit
        )
        placed = _placed(view, row)
        if placed is None:
            return details
        word = await self.programs.word_of(placed)
        return structs.replace(details, program=write_program(placed, word, lease_id=row.lease_id))

    @endpoint("POST /v1/leases/{lease}/cancel", access="lease", body=LeaseActBody)
    async def cancel_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """Withdraw an order that has no provider yet. The whole deposit comes back."""
        reference, row = await self._read_act(request, principal)
        done = await self.orders.cancel(row, reference=reference)
        return write_changed(self._view(), row, done, unix_s=self.clock.unix_s())

    @endpoint("POST /v1/leases/{lease}/close", access="lease", body=LeaseActBody)
    async def close_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """End a lease. What is left of the deposit comes back."""
        reference, row = await self._read_act(request, principal)
        done = await self.orders.close(row, reference=reference)
        return write_changed(self._view(), row, done, unix_s=self.clock.unix_s())

    async def _credits(self, rows: Sequence[LeaseOrderRow]) -> dict[str, LeaseUptimeCredit]:
        """By order: what was ruled on the uptime of those that have ended below the goal."""
        ruled, fund = await self.uptime_credits.told_of([row.order_id for row in rows if row.order_id is not None])
        return {order_id: write_credit(row, fund) for order_id, row in ruled.items()}

    def _with_program(self, view: ChainView | None, row: LeaseOrderRow, credit: LeaseUptimeCredit | None) -> Lease:
        lease, placed = write_lease(view, row, unix_s=self.clock.unix_s(), credit=credit), _placed(view, row)
        if placed is None:
            return lease
        word = ProviderWord(self.programs.report_of(placed), None)
        return structs.replace(lease, program=write_program(placed, word, lease_id=row.lease_id))

    async def _read(self, request: web.Request) -> tuple[LeaseOrder, str | None]:
        """The order of a body, and the id of the request. Raises BadRequest."""
        fields = await read_json(request, dict[str, Any], limit=ORDER_BODY_BYTES_MAX)
        given = fields.pop("id", None)
        return read_order(fields), None if given is None else str(given)

    async def _read_act(self, request: web.Request, principal: Principal) -> tuple[str, LeaseOrderRow]:
        body = await read_json(request, LeaseActBody)
        self._view()
        return usable_reference(body.id, rng=self.rng), await self._find(request, principal)

    async def _find(self, request: web.Request, principal: Principal) -> LeaseOrderRow:
        return await self.orders.find(principal.account_id, request.match_info["lease"])

    def _view(self) -> ChainView | None:
        """Raises NoChain."""
        try:
            return self.orders.market.view()
        except ChainUnavailable:
            return None  # what was ordered is known all the same


def _placed(view: ChainView | None, row: LeaseOrderRow) -> LeaseRecord | None:
    """The lease of an order that has a provider now."""
    found = None if view is None or row.order_id is None else view.latest.leases.get(row.order_id)
    return None if found is None or found.provider is None or found.state is LeaseState.CLOSED else found
