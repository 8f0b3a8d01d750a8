"""/v1/leases: a renter's orders and leases. Nobody sees or changes those of another account here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.api.leases.replies import write_changed, write_created, write_details, write_lease
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
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.api.leases import (
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
        last = shown[-1] if len(rows) > limit else None
        return LeaseList(
            data=[write_lease(view, row, unix_s=self.clock.unix_s()) for row in shown],
            next=None if last is None else write_cursor(OlderThan(last.created_unix_s, last.lease_id)),
        )

    @endpoint("GET /v1/leases/{lease}", access="lease")
    async def show_lease(self, request: web.Request, principal: Principal) -> LeaseDetails:
        """Show a lease of yours by its id, its order's id, or its name, with what runs."""
        view, row = self._view(), await self._find(request, principal)
        missing = await self.secrets.missing(row) if view is not None else []
        running = await self.orders.running_spec(row) if view is not None else None
        return write_details(view, row, running=running, missing_secrets=missing, unix_s=self.clock.unix_s())

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
