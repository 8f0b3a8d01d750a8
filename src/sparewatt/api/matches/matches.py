"""GET /v1/matches: past matches, and why a node was chosen in each. POST /v1/match: a dry run of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec import structs

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import Reply, endpoint
from sparewatt.core.clock import Clock
from sparewatt.core.errors import MatchNotFound
from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.limits import MATCHES_KEPT, MATCHES_STORED_DAYS
from sparewatt.core.money import Nano
from sparewatt.edge.bodies import read_json, whole_number
from sparewatt.inference.capabilities import RequiredCapabilities
from sparewatt.inference.dispatch.dispatcher import ONE_IN
from sparewatt.inference.dispatch.model import Gate
from sparewatt.inference.dispatch.node_selection import no_match_error
from sparewatt.inference.matcher.model import Decision, MatchJob
from sparewatt.inference.routing import Routing
from sparewatt.inference.service import InferenceService
from sparewatt.ledger.chart import promo_of
from sparewatt.policy.formatter import to_object
from sparewatt.policy.parser import HEADER as ROUTE_HEADER
from sparewatt.protocol.api.matches import DryRunExplanation, DryRunRequest, MatchExplanation, MatchList
from sparewatt.telemetry.explanations import Explanations

LISTED_DEFAULT, LISTED_MAX = 50, 500


@dataclass(slots=True, kw_only=True)
class MatchEndpoints:
    """A match is shown to the account that made the request, and to operators."""

    explanations: Explanations

    @endpoint("GET /v1/matches", access="inference", query=("limit",))
    async def list_matches(self, request: web.Request, principal: Principal) -> MatchList:
        """List the last matches of your account, or of all accounts to an operator, the latest first."""
        limit = whole_number(request, "limit", default=LISTED_DEFAULT, most=LISTED_MAX)
        return MatchList(data=await self.explanations.last(principal.account_filter, limit))

    @endpoint("GET /v1/matches/{match_id}", access="inference", reply=MatchExplanation)
    async def show_match(self, request: web.Request, principal: Principal) -> web.Response:
        """Explain a past match, to the account that made the request and to operators."""
        match_id = request.match_info["match_id"]
        explanation = await self.explanations.find(match_id)
        if explanation is None or principal.account_filter not in (None, explanation.account):
            raise MatchNotFound(
                f"Your account has no match {match_id[:60]!r}. The last {MATCHES_KEPT:,} are kept; "
                f"failures, and one in {ONE_IN}, for {MATCHES_STORED_DAYS} days. Others' are shown to their own keys."
            )
        return web.Response(body=explanation.body, content_type="application/json")


class Balances(Protocol):
    """Implemented by `LedgerStore`."""

    async def balances(self, accounts: Sequence[str]) -> Mapping[str, Nano]: ...


@dataclass(slots=True, kw_only=True)
class DryRunEndpoints:
    inference: InferenceService
    explanations: Explanations
    books: Balances | None
    """None on a network without books."""
    clock: Clock

    @endpoint("POST /v1/match", access="inference", body=DryRunRequest)
    async def explain_dry_run(self, request: web.Request, principal: Principal) -> Reply[DryRunExplanation]:
        """Show which node would serve a job, or why none can. Nothing is sent and nothing is stored."""
        body, inference = await read_json(request, DryRunRequest), self.inference
        routing = inference.route(
            body.model, principal, header=request.headers.get(ROUTE_HEADER), provider=bytes(body.provider)
        )
        job = self._job_of(body, routing)
        price = inference.price_cap(routing.policy, job.model)
        owned = inference.table.nodes_of(principal.account_id)
        payer = await self._promo_payer(principal.account_id) if owned else None
        needs = RequiredCapabilities(frozenset(body.capabilities), declared=bool(routing.policy.require_parameters))
        gate = inference.gate(routing.policy, job.model, price=price, payer=payer, needs=needs)
        ranking = inference.ranking_named(body.policy)
        decision = inference.dispatcher.dry_run(job, ranking=ranking, gate=gate)
        return Reply(self._explain(decision, routing, gate), headers=routing.headers())

    async def _promo_payer(self, account: AccountId) -> AccountId | None:
        """The account, if free credits would pay for the job: then the nodes that it owns may not serve it.

        A request knows it from its hold. A dry run holds nothing, and reads the balance instead.
        """
        name = promo_of(account)
        has_promo = self.books is not None and (await self.books.balances([name]))[name] > 0
        return account if has_promo else None

    def _job_of(self, body: DryRunRequest, routing: Routing) -> MatchJob:
        model = ModelId(routing.model)
        typical = self.inference.table.typical_output_tokens(model)
        return MatchJob(
            id=self.inference.new_match_id(),
            model=model,
            prompt_tokens=body.prompt_tokens,
            output_tokens=min(body.max_tokens or typical, typical),
            prompt_tokens_floor=body.prompt_tokens,
            preference=routing.preference,
        )

    def _explain(self, decision: Decision, routing: Routing, gate: Gate | None) -> DryRunExplanation:
        explanation = structs.asdict(self.explanations.explain_decision(decision))
        has_match = decision.best is not None
        if not has_match and gate is not None:
            explanation["nearest_relaxations"] += gate.relaxations()
        error = None if has_match else no_match_error(decision, self.inference.table, gate)
        return DryRunExplanation(
            **explanation,
            why_nobody=msgspec.UNSET if error is None else error.message,
            policy_effective=to_object(routing.policy),
            created_at=self.clock.unix_s(),
        )
