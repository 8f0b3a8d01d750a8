"""/v1/leases/{lease}/…: what a renter does with a lease that runs. Nobody sees or changes those of another account."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.leases.money_replies import write_events
from sparewatt.api.leases.replies import write_changed, write_lease, write_request
from sparewatt.api.market.replies import usd
from sparewatt.api.money.credits import usable_reference
from sparewatt.core.clock import Clock
from sparewatt.core.errors import InvalidField, LeaseNotFound
from sparewatt.core.limits import KIB
from sparewatt.core.rng import Rng
from sparewatt.edge.bodies import read_json
from sparewatt.leasing.changes.change_rules import ChangePlan, LeaseChange
from sparewatt.leasing.changes.change_service import LeaseChangeService, MadeChange, MadeScale
from sparewatt.leasing.changes.content_change import read_content_change
from sparewatt.leasing.orders.order_fields import read_duration, read_max_spend, read_uusd
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.api.lease_changes import (
    LeaseChangePlan,
    LeaseEventList,
    LeaseExtendBody,
    LeaseScaleBody,
    LeaseTopUpBody,
    LeaseUpdateBody,
)
from sparewatt.protocol.api.leases import Lease, LeaseActBody, LeaseChanged, LeaseScaled, LeaseUpdated
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.lease_orders import LeaseOrderRow

NAME_CHARS_MAX = 80


UPDATE_BODY_BYTES_MAX = 128 * KIB
"""A content document has 64 KiB; in a body, characters may be escaped."""


@dataclass(slots=True, kw_only=True)
class LeaseChangeEndpoints:
    changes: LeaseChangeService
    clock: Clock
    rng: Rng
    """Makes ids for requests without one."""

    @endpoint("GET /v1/leases/{lease}/events", access="lease")
    async def list_lease_events(self, request: web.Request, principal: Principal) -> LeaseEventList:
        """List what happened to a lease of yours, the oldest first: who, why, and what was paid or refunded."""
        return write_events(await self.changes.history(await self._find(request, principal)))

    @endpoint("POST /v1/leases/{lease}/pause", access="lease", body=LeaseActBody)
    async def pause_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """Stop its program and the meter. Its provider is bound, and its data kept, until the grace ends."""
        reference, row = await self._read_act(request, principal)
        return self._changed(row, await self.changes.pause(row, reference=reference))

    @endpoint("POST /v1/leases/{lease}/resume", access="lease", body=LeaseActBody)
    async def resume_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """Have a paused lease started again; the meter runs from its provider's confirmation."""
        reference, row = await self._read_act(request, principal)
        return self._changed(row, await self.changes.resume(row, reference=reference))

    @endpoint("POST /v1/leases/{lease}/reopen", access="lease", body=LeaseActBody)
    async def reopen_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """Hold a new auction for an order that found no provider, or lost its last one."""
        reference, row = await self._read_act(request, principal)
        return self._changed(row, await self.changes.reopen(row, reference=reference))

    @endpoint("POST /v1/leases/{lease}/top-up", access="lease", body=LeaseTopUpBody)
    async def top_up_lease(self, request: web.Request, principal: Principal) -> LeaseChanged:
        """Add credits to its deposit, up to its `max_spend`. A lease that was paused for want of it is resumed."""
        body = await read_json(request, LeaseTopUpBody)
        micro, most = read_uusd(body.usd, "usd"), read_max_spend(body.max_spend)
        row, reference = await self._find(request, principal), self._reference(body.id)
        done = await self.changes.top_up(row, micro=micro, max_spend_micro=most, reference=reference)
        return self._changed(await self._find(request, principal), done)

    @endpoint("POST /v1/leases/{lease}/extend", access="lease", body=LeaseExtendBody)
    async def extend_lease(self, request: web.Request, principal: Principal) -> LeaseUpdated:
        """Ask its provider to go on for longer at the same price; the deposit grows by what that costs."""
        body = await read_json(request, LeaseExtendBody)
        if body.duration == "":
            raise InvalidField("'duration' is a time like 90m, 12h or 7d, or a number of seconds.", param="duration")
        most = read_max_spend(body.max_spend)
        change = LeaseChange(added_s=read_duration(body.duration), max_spend_uusd=most)
        return await self._change(request, principal, change, dry_run=body.dry_run, given=body.id)

    @endpoint("POST /v1/leases/{lease}/update", access="lease", body=LeaseUpdateBody)
    async def update_lease(self, request: web.Request, principal: Principal) -> LeaseUpdated:
        """Propose another price, end or program to its provider, which accepts it by its own rules or does not."""
        body = await read_json(request, LeaseUpdateBody, limit=UPDATE_BODY_BYTES_MAX)
        content = read_content_change(image=body.image, command=body.command, env=body.env, unset=body.unset)
        if body.hourly_usd is None and body.duration in (None, "") and content is None:
            raise InvalidField(
                "Say what shall change: 'hourly_usd', 'duration', 'image', 'command', 'env' or 'unset'.",
                param="hourly_usd",
            )
        change = LeaseChange(
            left_s=None if body.duration in (None, "") else read_duration(body.duration),
            rate_uusd=None if body.hourly_usd is None else read_uusd(body.hourly_usd, "hourly_usd"),
            max_spend_uusd=read_max_spend(body.max_spend),
            content=content,
        )
        return await self._change(request, principal, change, dry_run=body.dry_run, given=body.id)

    @endpoint("POST /v1/leases/{name}/scale", access="lease", body=LeaseScaleBody)
    async def scale_leases(self, request: web.Request, principal: Principal) -> LeaseScaled:
        """Have so many leases of this name: more are ordered as the last one was, surplus ones are closed."""
        body = await read_json(request, LeaseScaleBody)
        name, most = request.match_info["name"], read_max_spend(body.max_spend)
        if not (name.isprintable() and len(name) <= NAME_CHARS_MAX):
            raise LeaseNotFound(f"You have no lease {name[:70]!r}.")
        account = principal.account_id
        if body.dry_run:
            made = await self.changes.plan_scale(account, name, count=body.count, max_spend_uusd=most)
        else:
            reference = self._reference(body.id)
            made = await self.changes.scale(account, name, count=body.count, max_spend_uusd=most, reference=reference)
        return self._scaled(name, made, is_done=not body.dry_run)

    async def _change(
        self, request: web.Request, principal: Principal, change: LeaseChange, *, dry_run: bool, given: str | None
    ) -> LeaseUpdated:
        row, reference = await self._find(request, principal), self._reference(given)
        if dry_run:
            await self.changes.changed_spec(row, change)  # raises what is wrong with it
            return self._updated(row, self.changes.plan(row, change), None)
        made = await self.changes.change(row, change, reference=reference)
        return self._updated(await self._find(request, principal), made.plan, made)

    # replies

    def _changed(self, row: LeaseOrderRow, done: ChainRequestRow) -> LeaseChanged:
        return write_changed(self._view(), row, done, unix_s=self.clock.unix_s())

    def _updated(self, row: LeaseOrderRow, plan: ChangePlan, made: MadeChange | None) -> LeaseUpdated:
        return LeaseUpdated(
            plan=LeaseChangePlan(
                hourly_usd=usd(plan.rate_uusd),
                duration_s=plan.duration_s,
                ends_at=plan.ends_at,
                cost_usd=usd(plan.cost_uusd),
                top_up_usd=usd(plan.top_up_uusd),
            ),
            update=None if made is None else write_request(made.update),
            top_up=None if made is None or made.top_up is None else write_request(made.top_up),
            accepted=made is not None and made.is_accepted,
            lease=self._lease(row),
        )

    def _scaled(self, name: str, made: MadeScale, *, is_done: bool) -> LeaseScaled:
        plan = made.plan
        return LeaseScaled(
            name=name,
            done=is_done,
            kept=[self._lease(row) for row in plan.kept],
            ended=[self._lease(row) for row in plan.ended],
            ordered=[self._lease(row) for row in made.ordered],
            to_order=plan.ordered,
            deposit_usd=usd(made.deposit_uusd),
        )

    def _lease(self, row: LeaseOrderRow) -> Lease:
        return write_lease(self._view(), row, unix_s=self.clock.unix_s())

    # what was asked

    async def _read_act(self, request: web.Request, principal: Principal) -> tuple[str, LeaseOrderRow]:
        body = await read_json(request, LeaseActBody)
        return self._reference(body.id), await self._find(request, principal)

    def _reference(self, given: str | None) -> str:
        return usable_reference(given, rng=self.rng)

    async def _find(self, request: web.Request, principal: Principal) -> LeaseOrderRow:
        self._view()
        return await self.changes.orders.find(principal.account_id, request.match_info["lease"])

    def _view(self) -> ChainView:
        """Raises NoChain or ChainUnavailable."""
        return self.changes.orders.market.view()
